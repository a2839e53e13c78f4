"""From a precedent of two runs to a line of the context that later runs read."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.enums import Mode, Outcome, Phase, Status, ToolIntent
from agents.guard import guarded_tool_call
from agents.knowledge.projects import (
    precedent_dismiss,
    precedent_promote,
    precedent_trace,
    proposal_accept,
    proposal_trace,
)
from agents.models import AgentSession, ContextRevision, Precedent, Project, ToolCall
from agents.runner import run_session
from agents.sessions.lifecycle import session_create, session_enter_phase
from agents.types import Finished
from tests.agents.people.rows import make_precedent, make_project
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db(transaction=True)


def run_once(project):
    """A run that sees the pattern; it notes the version of the context that it reads, as a walk does."""
    session = session_create(owner=project.owner, now=NOW, mode=Mode.PHASED, project=project)

    def engine(held):
        version = Project.objects.get(pk=held.project_id).context_version
        AgentSession.objects.filter(pk=held.pk).update(context_version=version)
        session_enter_phase(held, Phase.ANALYSIS, now=NOW)
        seen = {"pattern_kind": "deviation", "summary": "Liability is not capped."}
        assert guarded_tool_call(held, ToolIntent.PROPOSE_PRECEDENT, seen).ok
        return Finished()

    assert run_session(session.pk, engine, owner="worker:1")
    session.refresh_from_db()
    assert session.status == Status.COMPLETED, session.error
    return session


def test_two_runs_make_one_precedent_and_a_person_one_line():
    project = make_project(make_user(), context_md="We buy.")
    first, second = run_once(project), run_once(project)
    precedent = Precedent.objects.get()
    project.refresh_from_db()
    assert (precedent.observed_count, project.context_md, ContextRevision.objects.count()) == (2, "We buy.", 0)
    assert list(precedent_trace(precedent)) == [second, first]

    proposal = precedent_promote(precedent=precedent, project=project, by=project.owner, now=NOW)
    for _ in range(2):
        proposal = proposal_accept(proposal=proposal, by=project.owner, now=NOW)
    project.refresh_from_db()
    assert project.context_md == "We buy.\nSeen 2 times: Liability is not capped."

    third = run_once(project)
    assert list(proposal_trace(proposal)) == [third]
    assert list(precedent_trace(precedent)) == [third, second, first]


def test_proposing_a_precedent_touches_no_project():
    session = make_session(owner=make_user(), current_phase=Phase.ANALYSIS)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        guarded_tool_call(session, ToolIntent.PROPOSE_PRECEDENT, {"pattern_kind": "k", "summary": "s"}, now=NOW)
    tables = [query["sql"] for query in seen if Project._meta.db_table in query["sql"]]
    assert tables == []


def test_trace_leaves_out_failed_calls_and_other_precedents():
    precedent = make_precedent()
    results = [
        (Outcome.SUCCESS, {"precedent_id": str(make_precedent(summary="other").public_id)}),
        (Outcome.ERROR, {"precedent_id": str(precedent.public_id)}),
        (Outcome.SUCCESS, None),
    ]
    session = make_session(owner=precedent.owner)
    for number, (outcome, result) in enumerate(results):
        ToolCall.objects.create(
            session=session, key=f"k:{number}", intent=ToolIntent.PROPOSE_PRECEDENT, phase="turn", arguments={},
            digest="d", asked_digest="d", fencing=0, started_at=NOW, settled_at=NOW, outcome=outcome, result=result,
        )  # fmt: skip
    assert list(precedent_trace(precedent)) == []


def test_dismissed_precedent_starts_a_new_count_when_seen_again():
    project = make_project()
    run_once(project)
    old = Precedent.objects.get()
    precedent_dismiss(precedent=old, by=project.owner, now=NOW)
    run_once(project)
    counts = dict(Precedent.objects.values_list("pk", "observed_count"))
    assert (len(counts), counts[old.pk]) == (2, 1)
