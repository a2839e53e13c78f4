"""Rows of everything with hostile texts in them."""

import json
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.db import models, transaction

from agents.conf import clock
from agents.enums import Status, WaitingOn
from agents.models import (
    Agent,
    AgentSession,
    Alert,
    ApiKey,
    Collection,
    ContextProposal,
    ContextRevision,
    Finding,
    FindingComment,
    Halt,
    HotField,
    InboundEvent,
    InferenceLog,
    Memory,
    ModelOutage,
    ModelPrice,
    Notification,
    Pause,
    PlaybookPosition,
    Precedent,
    Project,
    SavedView,
    Sensor,
    SuspendedModel,
    Turn,
)
from audit import recorder
from audit.models import AuditEvent
from tests.agents.admin.hostile import PAYLOADS
from tests.agents.admin.rows import (
    make_approval,
    make_call,
    make_document,
    make_everything,
    make_playbook,
    make_skill,
)
from tests.agents.ask.rows import CALL, make_chat, make_entry, make_transcript
from tests.factories import NOW, make_agent, make_session, make_trigger

ALL = "\n".join(PAYLOADS)
# Texts that only programs write and read: a page or a worker could not open the row with anything else in them.
MACHINE = {
    "Agent": "definition definition_digest waived_skills",
    "AgentSession": "definition_digest lease_owner metadata params slot",
    "ApiKey": "hash prefix scopes",
    "Approval": "call_key digest original_arguments original_digest rules signature",
    "ApprovalRule": "conditions destinations role",
    "Channel": "choices sealed_address zone",
    "DeclaredModel": "settings",
    "Document": "digest indexed_as marks",
    "Finding": "severity",
    "Halt": "actor",
    "Host": "name keys",
    "InboundEvent": "webhook_id",
    "Lease": "name owner",
    "Memory": "content_hash",
    "Message": "calls",
    "Notification": "page",
    "Pause": "actor",
    "Playbook": "digest",
    "PlaybookPosition": "severity",
    "Precedent": "summary_hash",
    "PromptSkill": "digest found_digest front_matter name",
    "Question": "call_key",
    "SavedView": "list_name query",
    "SkillSetting": "name",
    "ToolCall": "asked_digest budget_ids digest key",
    "Trigger": "cron guardrails loop pause_reason zone",
    "UnreadInput": "reason",
}


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


# --- A world in which every text is hostile ---


@transaction.atomic
def make_hostile_world(viewer: User) -> Any:
    """Every payload in the texts of every list, and one row of each kind all texts of which are payloads.

    Its runs wait, so that no worker touches them. The newest run is the one with calls, findings and a transcript.
    """
    for number, pair in enumerate(zip(PAYLOADS[::2], PAYLOADS[1::2], strict=True)):
        rows_with(" ".join(pair), " ".join(pair), viewer, number)
    make_chat(viewer, ALL, answer=ALL)
    made = make_everything(viewer)
    _make_more(viewer, made)
    owner = User.objects.filter(pk=made.owner.pk)
    owner.update(username=_fitting(0, 150), first_name=_fitting(5, 150), last_name=_fitting(9, 150))
    for model in apps.get_app_config("agents").get_models():
        _fill(model)
    waiting = {"status": Status.WAITING, "waiting_on": WaitingOn.APPROVAL, "last_activity_at": clock()}
    AgentSession.objects.filter(status=Status.RUNNING).update(**waiting)
    return made


def _make_more(viewer: User, made: Any) -> None:
    """Make the kinds of rows that `make_everything` leaves out."""
    session = made.session
    make_transcript(session)
    session.messages.update(content=ALL)
    make_entry(session, "assistant", calls=[{**CALL, "name": ALL, "arguments": json.dumps({PAYLOADS[0]: ALL})}])
    Agent.objects.filter(pk=made.agent.pk).update(definition=f"instructions: {json.dumps(ALL)}\n", definition_version=1)
    Turn.objects.create(session=session, number=1, started_at=NOW)
    HotField.objects.create(session=session, name="n", value="v", source="agent", updated_at=NOW, changed_at=NOW)
    Alert.objects.create(session=session, name="n", text="t", created_at=NOW)
    Sensor.objects.create(agent=made.agent, name="s", kind="poll", state="failing", problem="p", value="v")
    ModelOutage.objects.create(model="m", since=NOW, next_try_at=NOW.replace(year=2100), error="e")
    SavedView.objects.create(owner=viewer, list_name="finding", name="n", query="state=all")
    FindingComment.objects.create(finding=session.findings.first(), author=made.owner, text="t")
    Pause.objects.create(scope="session", session=session, reason="r")
    started = recorder.append(session.chain, "autonomous_session.started", now=NOW, details={"owner_id": viewer.pk})
    _forge_event(AuditEvent.objects.get(chain=session.chain, seq=started.seq))


def _forge_event(before: AuditEvent) -> None:
    """An event that the recorder would refuse, written past it: its receipt says that the log was changed."""
    AuditEvent.objects.create(
        chain=before.chain,
        seq=before.seq + 1,
        kind="autonomous_session.tool_call",
        actor=_fitting(1, 64),
        subject=_fitting(2, 96),
        at=NOW,
        details=dict.fromkeys(("tool", "outcome", "call_id", "name", "detail", "model"), ALL),
        prev_hash=before.hash,
        hash="f" * 64,
    )


def _fill(model: type[models.Model]) -> None:
    """Write payloads into every text of the newest row that is not a program's own."""
    newest = model._default_manager.order_by("-pk").first()
    if newest is None:
        return
    texts = {}
    for number, field in enumerate(model._meta.fields):
        if field.name in MACHINE.get(model.__name__, "").split() or field.choices or field.primary_key:
            continue
        if isinstance(field, models.JSONField):
            texts[field.name] = _hostile(getattr(newest, field.name))
        elif isinstance(field, models.CharField | models.TextField):
            texts[field.name] = _fitting(number * 7, field.max_length) if field.max_length else ALL
    if texts:
        model._default_manager.filter(pk=newest.pk).update(**texts)


def _fitting(first: int, most: int) -> str:
    """As many payloads as a field holds, beginning with one of them."""
    text = ""
    for payload in [*PAYLOADS, *PAYLOADS][first % len(PAYLOADS) :]:
        if len(text) + len(payload) < most:
            text += payload
    return text


def _hostile(value: Any) -> Any:
    """The same JSON with payloads as texts, and one more entry."""
    if isinstance(value, dict):
        return {**{name: _hostile(one) for name, one in value.items()}, PAYLOADS[0]: ALL}
    if isinstance(value, list):
        return [*map(_hostile, value), ALL]
    return value if isinstance(value, bool | int | float) else ALL
