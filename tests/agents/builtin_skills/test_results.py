"""Skills that leave results: each is judged by R6 as the act it stands for, and writes rows of the owner alone."""

from decimal import Decimal

import pytest

from agents.definitions.playbooks import Position
from agents.engine.prompting import skills_of
from agents.enums import Level, Mode, Outcome, Phase, ToolIntent
from agents.exceptions import ToolNotGranted
from agents.guard import guarded_tool_call
from agents.guard.tools import BadParams
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.knowledge.projects import project_create
from agents.models import AgentSession, Finding, Memory, Precedent, ToolCall
from agents.policy.brakes import PHASE_GRANTS
from agents.sessions.reads import asked_by, started_by
from agents.skills.registry import skill_named
from audit.models import AuditEvent
from tests.agents.people.rows import allowed, make_precedent
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

INTENTS = {
    "remember": ToolIntent.PROPOSE_MEMORY,
    "emit_finding": ToolIntent.EMIT_FINDING,
    "propose_precedent": ToolIntent.PROPOSE_PRECEDENT,
    "run_playbook": ToolIntent.RUN_PLAYBOOK,
}
TEXT = "The Customer shall pay invoices within 60 days of receipt."


def use(session, name, key="turn:1", intent=None, **arguments):
    params = {"skill": name, "arguments": arguments}
    return guarded_tool_call(session, intent or INTENTS[name], params, key=key, now=NOW)


@pytest.fixture
def owner():
    return make_user()


@pytest.fixture
def session(owner):
    return make_session(owner=owner, mode=Mode.CHAT, agent=make_agent(owner=owner), max_cost_usd=Decimal(2))


@pytest.fixture
def office(owner):
    """A collection with one document, and a playbook."""
    by = {"owner": owner, "by": owner, "now": NOW}
    collection = collection_create(name="Leases", **by)
    playbook = playbook_create(name="Lease review", positions=[Position("Payment", "warn", "Within 30 days.")], **by)
    document, _ = document_add(name="lease.txt", data=TEXT.encode(), collection=collection, **by)
    return {"collection": collection, "playbook": playbook, "document": document}


# --- Intents and phases ---


@pytest.mark.parametrize(("name", "intent"), INTENTS.items())
def test_skill_stands_for_its_own_intent_and_is_granted_in_turns(name, intent):
    skill = skill_named(name)
    assert (skill.intent, skill.local, skill.side_effects) == (intent, True, True)
    assert intent in PHASE_GRANTS[Phase.TURN]
    assert name in skills_of(None, phase=Phase.TURN)
    assert name not in skills_of(None, phase=Phase.ANALYSIS)
    assert "Use it" in skill.description


def test_phase_that_does_not_grant_the_act_ends_the_run(owner):
    session = make_session(owner=owner, current_phase=Phase.ANALYSIS)
    with pytest.raises(ToolNotGranted):
        use(session, "remember", content="x")
    assert not Memory.objects.exists()


@pytest.mark.parametrize("intent", [ToolIntent.RUN_SKILL, ToolIntent.NOTIFY])
def test_skill_cannot_be_called_under_another_intent(session, intent):
    with pytest.raises(BadParams, match="not found"):
        use(session, "remember", intent=intent, content="x")
    with pytest.raises(BadParams, match="not found"):
        use(session, "now", intent=ToolIntent.PROPOSE_MEMORY)


# --- What they leave ---


def test_memory_is_proposed_and_not_kept(session):
    made = use(session, "remember", content="Answers are to be in French.")
    memory = Memory.objects.get()
    assert (memory.owner, memory.session, memory.state) == (session.owner, session, "proposed")
    assert made.data == {"memory_id": str(memory.public_id), "state": "proposed", "is_new": True}
    assert use(session, "remember", "turn:2", content="answers are to be in french").data["is_new"] is False
    row = ToolCall.objects.first()
    assert (row.intent, row.name, row.outcome) == (ToolIntent.PROPOSE_MEMORY, "remember", Outcome.SUCCESS)
    tools = AuditEvent.objects.filter(kind="autonomous_session.tool_call").values_list("details__tool", flat=True)
    assert set(tools) == {"propose_memory"}


def test_finding_has_its_quote_verified(session, office):
    document = str(office["document"].public_id)
    given = {"title": "Pays late", "severity": "critical", "document": document}
    made = use(session, "emit_finding", quote="shall pay invoices  within 60 days", **given)
    finding = Finding.objects.get()
    assert made.data == {"finding_id": str(finding.public_id), "quote_check": "verified"}
    assert (finding.document, finding.quote, finding.quote_start) == (
        office["document"], "shall pay invoices within 60 days", TEXT.index("shall"),
    )  # fmt: skip
    assert use(session, "emit_finding", "turn:2", quote="words that nobody wrote", **given).data["quote_check"] == (
        "unverified"
    )
    assert use(session, "emit_finding", "turn:3", title="No quote", document="nonsense").data["quote_check"] == ""


def test_document_of_others_is_not_cited(office):
    stranger = make_session(mode=Mode.LOOP)
    document = str(office["document"].public_id)
    made = use(stranger, "emit_finding", title="x", document=document, quote="shall pay invoices within 60 days")
    assert made.data["quote_check"] == "unverified"
    assert Finding.objects.get().document is None


def test_precedent_is_counted_and_a_shown_one_may_be_named(session):
    known = make_precedent(session.owner)
    session.metadata["inputs"] = {"precedent_ids": [str(known.public_id)]}
    session.save()
    assert use(session, "propose_precedent", summary="No parking").data["observed_count"] == 1
    made = use(session, "propose_precedent", "turn:2", summary="No cap", same_as=str(known.public_id))
    assert made.data == {"precedent_id": str(known.public_id), "observed_count": 4}
    assert Precedent.objects.get(summary="No parking").pattern_kind == "pattern"


# --- Runs of playbooks ---


def test_run_of_a_playbook_is_a_session_of_its_own_within_the_cap(session, office):
    session.project = project_create(owner=session.owner, name="Matter", by=session.owner, now=NOW)
    session.save()
    made = use(session, "run_playbook", playbook="Lease review", collection="Leases", max_cost_usd=0.5)
    run = AgentSession.objects.get(public_id=made.data["session_id"])
    assert (run.mode, run.owner, run.agent, run.project, run.depth) == (
        Mode.PHASED, session.owner, session.agent, session.project, 1,
    )  # fmt: skip
    assert (run.spec.playbook, run.spec.collection) == (
        str(office["playbook"].public_id), str(office["collection"].public_id),
    )  # fmt: skip
    assert run.max_cost_usd == Decimal("0.5")
    assert (run.metadata["asked_by"], asked_by(run)) == (started_by(session), f"another run of {session.agent.name}")
    [event] = AuditEvent.objects.filter(kind="autonomous_trigger.run_now")
    assert (event.actor, event.details["playbook_id"]) == (started_by(session), str(office["playbook"].public_id))


def test_runs_together_stay_within_what_is_left_of_the_cap(session, office):
    given = {"playbook": "Lease review", "document": str(office["document"].public_id)}
    first = use(session, "run_playbook", "turn:1", max_cost_usd=1.5, **given)
    second = use(session, "run_playbook", "turn:2", **given)
    third = use(session, "run_playbook", "turn:3", **given)
    assert [Decimal(made.data["max_cost_usd"]) for made in (first, second)] == [Decimal("1.5"), Decimal("0.25")]
    assert Decimal(third.data["max_cost_usd"]) == Decimal("0.125")
    fourth = use(session, "run_playbook", "turn:4", **given)
    assert fourth.outcome == Outcome.ERROR
    assert "$0.125 is left of this run's cap, and it keeps $0.10 to finish" in fourth.error
    assert AgentSession.objects.filter(mode=Mode.PHASED).count() == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"playbook": "Leases"}, "there are: Lease review"),
        ({"playbook": "Lease review"}, "something to read"),
        ({"playbook": "Lease review", "collection": "Nothing"}, "there are: Leases"),
        ({"playbook": "Lease review", "document": "00000000-0000-0000-0000-000000000000"}, "no such document"),
    ],
)
def test_run_that_cannot_start_says_why(session, office, arguments, error):
    made = use(session, "run_playbook", **arguments)
    assert made.outcome == Outcome.ERROR
    assert error in made.error
    assert not AgentSession.objects.filter(mode=Mode.PHASED).exists()


def test_rows_of_others_and_deep_runs_are_refused(office):
    stranger = make_session(mode=Mode.LOOP, max_cost_usd=None)
    assert "there are: none" in use(stranger, "run_playbook", playbook="Lease review", query="x").error
    deep = make_session(owner=office["document"].owner, mode=Mode.LOOP, depth=3)
    assert "levels deep" in use(deep, "run_playbook", playbook="Lease review", query="x").error


def test_run_without_a_cap_above_it_gets_the_installations(office):
    free = make_session(owner=office["document"].owner, mode=Mode.LOOP, max_cost_usd=None)
    made = use(free, "run_playbook", playbook="Lease review", query="payment")
    assert Decimal(made.data["max_cost_usd"]) == Decimal(5)
    assert asked_by(AgentSession.objects.get(public_id=made.data["session_id"])) == "another run"


def test_run_of_a_playbook_asks_a_person_in_mode_manual(owner, office):
    allowed("resolve_approval")
    session = make_session(owner=owner, mode=Mode.CHAT, agent=make_agent(owner=owner, mode="manual"))
    made = use(session, "run_playbook", playbook="Lease review", query="payment")
    assert made.outcome == Outcome.APPROVAL_PENDING
    assert skill_named("run_playbook").level == Level.CONTROLLED
