"""A run that somebody asks for: by exactly one target, with the owner's own things, under a cap."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission

from agents.enums import Status, TriggerKind
from agents.exceptions import Invalid, NotAllowed, NotFound, SessionHalted
from agents.models import AgentSession, InboundEvent
from agents.sessions.leases import lease_claim
from agents.triggers.firing import require_run_allowed
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_project, make_session, make_trigger, make_user, start_run

from .rows import halt_all, make_collection, make_document, make_playbook, make_skill, rows_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return make_user()


def run(owner, by=None, **what):
    return start_run(owner=owner, by=by or owner, now=NOW, **what)


def test_a_run_by_a_playbook_over_a_whole_collection(owner):
    playbook, collection, project = make_playbook(owner), make_collection(owner), make_project(owner)
    agent = make_agent(owner=owner)
    session = run(owner, playbook=playbook, collection=collection, project=project, agent=agent, emit_artifacts=True)

    assert (session.status, session.trigger_kind, session.trigger, session.slot) == (Status.QUEUED, "manual", None, "")
    assert (session.owner, session.project, session.agent, session.max_cost_usd) == (owner, project, agent, 5)
    assert session.params == {
        "playbook": str(playbook.public_id),
        "collection": str(collection.public_id),
        "emit_artifacts": True,
    }
    [row] = AuditEvent.objects.filter(kind="autonomous_trigger.run_now")
    assert (row.chain, row.actor) == ("system", f"user:{owner.pk}")
    assert row.details == {
        "session_id": str(session.public_id),
        "cap_usd": "5.000000",
        "playbook_id": str(playbook.public_id),
        "collection_id": str(collection.public_id),
        "project_id": str(project.public_id),
    }


def test_a_run_by_a_skill_over_one_document_or_a_query(owner):
    skill, document = make_skill(), make_document(owner)
    one = run(owner, skill=skill, document=document)
    assert one.params == {"skill": skill.name, "document": str(document.public_id)}
    assert run(owner, skill=skill, query="late\nfee").params == {"skill": skill.name, "query": "late fee"}
    assert rows_of("autonomous_trigger.run_now")[0]["skill_id"] == str(skill.public_id)


def test_both_or_neither_target_is_refused(owner):
    for what in ({}, {"playbook": make_playbook(owner), "skill": make_skill()}):
        with pytest.raises(Invalid, match="exactly one"):
            run(owner, **what)
    assert not AgentSession.objects.exists()


def test_a_playbook_or_a_skill_alone_is_enough(owner):
    playbook, skill = make_playbook(owner), make_skill()
    assert run(owner, playbook=playbook).params == {"playbook": str(playbook.public_id)}
    assert run(owner, skill=skill).params == {"skill": skill.name}


def test_a_trigger_that_has_nothing_to_read_by_hand_is_refused(owner):
    bare = make_trigger(owner=owner, kind=TriggerKind.EVENT, name="Triage", skill=make_skill())
    with pytest.raises(Invalid, match="The trigger Triage has nothing to read when it is run by hand"):
        run(owner, trigger=bare)
    assert not AgentSession.objects.exists()
    assert run(owner, trigger=bare, document=make_document(owner)).params["document"]
    query = make_trigger(owner=owner, query="late fees", skill=make_skill())
    assert run(owner, trigger=query).params["query"] == "late fees"


def test_a_trigger_that_checks_against_nothing_is_refused(owner):
    bare = make_trigger(owner=owner, name="Triage", collection=make_collection(owner))
    with pytest.raises(Invalid, match="The trigger Triage has nothing to check against: give it a playbook or a skill"):
        run(owner, trigger=bare)
    with pytest.raises(Invalid, match="nothing to check against"):
        require_run_allowed(owner=owner, agent=None, trigger=bare)
    assert not AgentSession.objects.exists()


def test_a_run_can_be_put_before_a_person_if_it_flags_a_concern(owner):
    assert run(owner, skill=make_skill(), query="q", review_flagged=True).params["review_flagged"] is True


def test_a_run_can_be_asked_to_think_in_steps(owner):
    what = {"skill": make_skill(), "query": "term"}
    asked = run(owner, **what, analysis_mode="agentic", agent=make_agent(owner=owner))

    assert asked.params["analysis_mode"] == "agentic"
    assert "analysis_mode" not in run(owner, **what, analysis_mode="single").params
    with pytest.raises(Invalid, match="single, agentic"):
        run(owner, **what, analysis_mode="deep")


def test_a_trigger_lends_how_its_runs_think_and_a_person_can_say_otherwise(owner, settings):
    settings.LQOPS_LOOP = {"token_budget": 7_000}
    think = {"analysis_mode": "agentic", "loop": {"max_steps": 9}, "guardrails": {"reserve_tokens": 64}}
    trigger = make_trigger(owner=owner, query="term", skill=make_skill(), **think)
    agentic, single = run(owner, trigger=trigger), run(owner, trigger=trigger, analysis_mode="single")

    assert {name: agentic.params[name] for name in think} == think
    assert (agentic.token_budget, single.token_budget) == (7_000, 0)
    assert single.params["analysis_mode"] == "single"


def test_who_asked_stands_in_the_first_row_of_the_run(owner):
    for by, actor, named in ((owner, "command", f"user:{owner.pk}"), (None, "command", "command")):
        session = start_run(owner=owner, by=by, now=NOW, skill=make_skill(), query="q", actor=actor)
        lease_claim(session.pk, owner="w", now=NOW)
        started = AuditEvent.objects.get(chain=session.chain, kind="autonomous_session.started")
        assert started.details["asked_by"] == named
    lease_claim(make_session(owner=owner, status=Status.QUEUED).pk, owner="w", now=NOW)
    assert rows_of("autonomous_session.started")[-1]["asked_by"] is None


@pytest.mark.parametrize("cap", [Decimal("0.001"), Decimal(0)])
def test_a_run_has_the_cap_that_was_asked_for(owner, cap):
    assert run(owner, skill=make_skill(), query="q", max_cost_usd=cap).max_cost_usd == cap


@pytest.mark.parametrize("cap", [Decimal(-1), Decimal("0.00001"), Decimal("NaN")])
def test_a_cap_that_is_no_amount_is_refused(owner, cap):
    with pytest.raises(Invalid, match="4 places"):
        run(owner, skill=make_skill(), query="q", max_cost_usd=cap)


MAKERS = {
    "playbook": make_playbook,
    "collection": make_collection,
    "document": make_document,
    "project": make_project,
    "agent": lambda owner: make_agent(owner=owner),
    "trigger": lambda owner: make_trigger(owner=owner),
    "event": lambda owner: InboundEvent.objects.create(owner=owner, outcome="no_match"),
    "restarted_from": lambda owner: make_session(owner=owner),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_somebody_else_s_is_not_found(owner, name):
    what = {"skill": make_skill(), name: MAKERS[name](make_user())}
    if name in {"playbook", "trigger"}:
        del what["skill"]
    with pytest.raises(NotFound):
        run(owner, **what)
    assert AgentSession.objects.filter(owner=owner).count() == 0


@pytest.mark.parametrize("name", ["playbook", "collection", "document"])
def test_what_was_deleted_is_not_found(owner, name):
    gone = MAKERS[name](owner)
    type(gone).objects.filter(pk=gone.pk).update(deleted_at=NOW)
    with pytest.raises(NotFound):
        run(owner, **{name: gone}, **({} if name == "playbook" else {"skill": make_skill()}))


def test_what_is_switched_off_is_refused(owner):
    with pytest.raises(Invalid, match="skill"):
        run(owner, skill=make_skill(enabled=False))
    with pytest.raises(Invalid, match="agent"):
        run(owner, skill=make_skill(), query="q", agent=make_agent(owner=owner, enabled=False))


def test_a_trigger_lends_what_it_goes_by_and_its_cap(owner):
    playbook, collection, project = make_playbook(owner), make_collection(owner), make_project(owner)
    trigger = make_trigger(
        owner=owner,
        kind=TriggerKind.SCHEDULE,
        agent=make_agent(owner=owner),
        playbook=playbook,
        collection=collection,
        project=project,
        judge_citations=True,
        max_cost_usd=Decimal("0.25"),
        paused_at=NOW,
    )
    session = run(owner, trigger=trigger)
    session.refresh_from_db()
    assert (session.trigger, session.trigger_kind, session.slot) == (trigger, "manual", "")
    assert (session.agent, session.project, session.max_cost_usd) == (trigger.agent, project, Decimal("0.25"))
    assert session.params == {
        "playbook": str(playbook.public_id),
        "judge_citations": True,
        "collection": str(collection.public_id),
    }
    assert rows_of("autonomous_trigger.run_now")[0]["trigger_id"] == str(trigger.public_id)


def test_what_is_said_goes_before_what_the_trigger_has(owner):
    other, document = make_collection(owner), make_document(owner)
    reads = {"collection": make_collection(owner), "query": "old", "skill": make_skill()}
    trigger = make_trigger(owner=owner, max_cost_usd=Decimal(1), **reads)
    session = run(owner, trigger=trigger, collection=other, document=document, query="new", max_cost_usd=Decimal(2))
    assert session.params["collection"] == str(other.public_id)
    assert (session.params["document"], session.params["query"]) == (str(document.public_id), "new")
    assert session.max_cost_usd == 2


def test_a_trigger_takes_no_other_target_and_a_deleted_one_does_not_run(owner):
    with pytest.raises(Invalid, match="trigger alone"):
        run(owner, trigger=make_trigger(owner=owner), skill=make_skill())
    with pytest.raises(NotFound):
        run(owner, trigger=make_trigger(owner=owner, deleted_at=NOW))


def test_a_restart_names_what_it_was_restarted_from(owner):
    before = make_session(owner=owner)
    assert run(owner, skill=make_skill(), query="q", restarted_from=before).restarted_from == before


def test_a_run_can_answer_an_event_again(owner):
    skill = make_skill()
    trigger = make_trigger(owner=owner, kind=TriggerKind.EVENT, skill=skill)
    event = InboundEvent.objects.create(owner=owner, trigger=trigger, outcome="spawned")
    params = {"skill": skill.name, "event": {"id": str(event.public_id)}}
    assert run(owner, trigger=trigger, event=event).params == params


def test_a_stranger_cannot_run_for_somebody_else_but_an_operator_can(owner):
    stranger = make_user()
    with pytest.raises(NotFound):
        run(owner, by=stranger, skill=make_skill(), query="q")
    stranger.user_permissions.add(Permission.objects.get(codename="add_agentsession"))
    operator = type(stranger).objects.get(pk=stranger.pk)
    assert run(owner, by=operator, skill=make_skill(), query="q").owner == owner
    assert AuditEvent.objects.get(kind="autonomous_trigger.run_now").actor == f"user:{operator.pk}"


def test_nothing_runs_without_opt_in_or_while_all_work_is_halted(owner):
    with pytest.raises(NotAllowed):
        run(make_user(opted_in=False), skill=make_skill(), query="q")
    halt_all(reason="An incident.", requested_by=make_user(username="olga"))
    told = (
        r"All work is halted by olga since 2026-03-14 09:26 UTC: An incident\. Release it first: .+manage\.py release"
    )
    with pytest.raises(SessionHalted, match=told):
        run(owner, skill=make_skill(), query="q")
    assert not AuditEvent.objects.filter(kind="autonomous_trigger.run_now").exists()
