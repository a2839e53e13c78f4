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
    Document,
    Finding,
    Halt,
    InboundEvent,
    InferenceLog,
    Memory,
    ModelPrice,
    Notification,
    Playbook,
    Precedent,
    Project,
    PromptSkill,
    SuspendedModel,
    ToolCall,
    Trigger,
)
from tests.agents.admin.hostile import MARK, PAYLOADS, read
from tests.agents.admin.hostile_rows import ALL, rows_with
from tests.agents.admin.rows import (
    act_page,
    make_approval,
    page,
    sign_in,
    text_of,
)
from tests.factories import NOW, make_session, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("charted")]


def test_reader_notices_live_payloads():
    assert len(set(PAYLOADS)) >= 60
    for live in (
        f"<script>{MARK}(1)</script>", f"<img onerror={MARK}()>", f"<a href='javascript:{MARK}'>", f"<!-- {MARK} -->",
        f"<div x-init='{MARK}'>", f"<p {MARK}>", f"<style>{MARK}</style>",
    ):  # fmt: skip
        assert read(live).live, live
    assert not read(f'<p title="{MARK}">{MARK} &lt;script&gt;{MARK}</p>').live


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


def test_lists_and_home_escape_payloads(client, some):
    owner = sign_in(client)
    pairs = some(zip(PAYLOADS[::2], PAYLOADS[1::2], strict=True), 16)
    for number, pair in enumerate(pairs):
        rows_with(" ".join(pair), " ".join(pair), owner, number)

    for model in LISTS:
        assert judge(client.get(page(model, "changelist")), model) >= 2 * len(pairs), model
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
