"""Every page escapes the text of models, documents and people."""

import pytest
from django.urls import reverse

from agents.models import (
    Agent,
    AgentSession,
    ApiKey,
    Approval,
    Collection,
    ContextProposal,
    ContextRevision,
    Document,
    Finding,
    FindingComment,
    Halt,
    InboundEvent,
    InferenceLog,
    Memory,
    ModelPrice,
    Notification,
    Playbook,
    PlaybookPosition,
    Precedent,
    Project,
    PromptSkill,
    SuspendedModel,
    ToolCall,
    Trigger,
)
from tests.agents.admin.hostile import MARK, PAYLOADS, read
from tests.agents.admin.rows import (
    act_page,
    make_approval,
    make_call,
    make_document,
    make_playbook,
    make_skill,
    page,
    sign_in,
    text_of,
)
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

ALL = "\n".join(PAYLOADS)


def test_reader_notices_live_payloads():
    assert len(set(PAYLOADS)) >= 60
    for live in (
        f"<script>{MARK}(1)</script>", f"<img onerror={MARK}()>", f"<a href='javascript:{MARK}'>", f"<!-- {MARK} -->",
        f"<div x-init='{MARK}'>", f"<p {MARK}>", f"<style>{MARK}</style>",
    ):  # fmt: skip
        assert read(live).live, live
    assert not read(f'<p title="{MARK}">{MARK} &lt;script&gt;{MARK}</p>').live


def rows_with(short, long, owner, number):
    """One row of everything, every text of which is hostile."""
    agent = make_agent(owner=owner, name=short[:120])
    project = Project.objects.create(owner=owner, name=short, context_md=long, parties=long)
    collection = Collection.objects.create(owner=owner, name=short[:120])
    trigger = make_trigger(owner=owner, agent=agent, name=short[:120], collection=collection, query=short)
    document = make_document(owner, name=short, text=long, collection=collection)
    playbook = make_playbook(owner, short[:120])
    PlaybookPosition.objects.create(
        playbook=playbook, issue=short, standard=long, guidance=long, fallbacks=[short], must_contain=[short]
    )
    session = make_session(
        owner=owner, agent=agent, trigger=trigger, project=project, error=long[:2_000],
        params={"query": long, "skill": short, "document": str(document.public_id), "x": {long: long}},
    )  # fmt: skip
    precedent = Precedent.objects.create(owner=owner, pattern_kind=short[:64], summary=long, summary_hash=str(number))
    ContextRevision.objects.create(project=project, version=1, text=long)
    finding = Finding.objects.create(
        session=session, severity=short[:32], title=short, content=long, document=document, quote=long,
        quote_start=0, quote_end=min(30, len(long)), quote_check="verified", playbook=playbook, position=short[:200],
        reason=long, precedent=precedent, triaged_at=NOW,
    )  # fmt: skip
    FindingComment.objects.create(finding=finding, author=owner, text=long)
    make_call(session, name=short, error=long[:2_000], arguments={short: long}, result={"r": long}, key=short[:90])
    made = {"agent": agent, "project": project, "collection": collection, "trigger": trigger, "document": document}
    made |= {"playbook": playbook, "session": session, "precedent": precedent}
    return made | left_behind(short, long, number, **made)


def left_behind(short, long, number, *, session, project, precedent, trigger, **_):
    """Results of runs and people with hostile texts."""
    owner = session.owner
    return {
        "approval": make_approval(
            session, key=f"k{number}", arguments={short: long}, action=short, simulation=long, note=long
        ),
        "memory": Memory.objects.create(owner=owner, session=session, content=long),
        "proposal": ContextProposal.objects.create(owner=owner, project=project, precedent=precedent, text=long),
        "notice": Notification.objects.create(owner=owner, session=session, title=short[:200], body=long),
        "halt": Halt.objects.create(scope="session", session=session, reason=long),
        "event": InboundEvent.objects.create(
            owner=owner,
            trigger=trigger,
            source=short,
            event_type=short,
            title=short,
            data={"d": long},
            outcome="spawned",
        ),
        "skill": make_skill(name=f"skill-{number}", description=long, body=long, folder=short),
        "log": InferenceLog.objects.create(session=session, model=short, purpose="chat", outcome="success"),
        "suspended": SuspendedModel.objects.create(model=f"{short[:100]}{number}", bound_usd=1, actual_usd=2),
        "price": ModelPrice.objects.create(model=f"{short[:100]}{number}", input_usd=1, output_usd=1),
        "key": ApiKey.objects.create(user=owner, name=short[:120], prefix=f"p{number}", hash="h", scopes=["read"]),
        "call": session.tool_calls.get(),
        "finding": session.findings.get(),
    }


LISTS = [
    Agent, AgentSession, ApiKey, Approval, Collection, ContextProposal, Document, Finding, Halt, InboundEvent,
    InferenceLog, Memory, ModelPrice, Notification, Playbook, Precedent, Project, PromptSkill, SuspendedModel, ToolCall,
    Trigger,
]  # fmt: skip


def judge(answer, address):
    assert answer.status_code == 200, address
    found = read(text_of(answer))
    assert found.live == [], address
    return found.seen


def test_lists_and_home_escape_payloads(client):
    owner = sign_in(client)
    for number, pair in enumerate(zip(PAYLOADS[::2], PAYLOADS[1::2], strict=True)):
        rows_with(" ".join(pair), " ".join(pair), owner, number)

    for model in LISTS:
        assert judge(client.get(page(model, "changelist")), model) >= len(PAYLOADS), model
    assert judge(client.get(reverse("admin:index")), "home") > 0
    assert judge(client.get(reverse("admin:agents_document_search"), {"q": MARK}), "search") > 0


def test_row_pages_escape_payloads(client):
    made = rows_with(" ".join(PAYLOADS[::24]), ALL, sign_in(client), 0)
    for name, row in made.items():
        assert judge(client.get(page(type(row), "change", row.pk)), name) > 0, name


def test_action_pages_escape_payloads(client):
    owner = sign_in(client)
    made = rows_with(PAYLOADS[0], ALL, owner, 0)
    acts = {
        "session": "halt", "trigger": "pause", "document": "attach", "memory": "keep", "proposal": "accept",
        "precedent": "promote", "approval": "approve", "skill": "disable", "collection": "delete", "agent": "halt",
        "playbook": "delete", "project": "delete", "key": "revoke", "notice": "read", "suspended": "accept",
    }  # fmt: skip
    for name, act in acts.items():
        judge(client.get(act_page(made[name], act)), (name, act))


def test_messages_after_actions_are_escaped(client):
    owner = sign_in(client)
    made = rows_with(PAYLOADS[0], ALL, owner, 0)

    answer = client.post(act_page(made["trigger"], "pause"), {"confirmed": "1"}, follow=True)
    judge(answer, "pause")
    refused = client.post(act_page(made["agent"], "delete"), {"confirmed": "1"}, follow=True)
    assert "has sessions or triggers" in text_of(refused)
    judge(refused, "delete")


def test_diff_of_arguments_is_escaped(client):
    sign_in(client)
    approval = make_approval(intent="notify", arguments={"a": ALL})
    given = {
        "decision": "edit",
        "digest": approval.digest,
        "note": PAYLOADS[0],
        "arguments": '{"a": "<script>zq</script>"}',
    }

    answer = client.post(reverse("admin:agents_approval_decide", args=[approval.pk]), given)

    assert judge(answer, "difference") > 60


@pytest.mark.parametrize("payloads", [PAYLOADS[:5], PAYLOADS[5:10]])
def test_reason_of_a_halt_is_escaped(client, payloads):
    sign_in(client)
    client.post(reverse("admin:halt_everything"), {"reason": " ".join(payloads)})

    assert judge(client.get(reverse("admin:index")), "home") >= len(payloads)


def test_user_names_are_escaped(client):
    sign_in(client, username=f"<b>{MARK}</b>")
    make_session(owner=make_user(username=f"<img src=x onerror={MARK}()>"), started_at=NOW)

    assert judge(client.get(reverse("admin:index")), "home") > 1
