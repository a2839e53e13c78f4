"""Precedents: sightings that add up, one that the model names, merging, weight and expiry."""

from datetime import timedelta

import pytest

from agents.enums import PrecedentEnd, ProposalStatus, ToolIntent
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.guard import guarded_tool_call
from agents.knowledge.projects import (
    precedent_count,
    precedent_dismiss,
    precedent_merge,
    precedent_promote,
    precedent_trace,
    precedent_weight,
    precedents_expire,
    proposal_accept,
    proposal_edit,
    proposal_reject,
)
from agents.models import Precedent
from agents.ticker import DUTIES
from tests.agents.people.rows import allowed, make_precedent, make_project, told
from tests.factories import NOW, make_session, make_user
from tests.flows.processes import in_threads

pytestmark = pytest.mark.django_db

OLD = NOW - timedelta(days=180)


def count(owner, summary="Liability is not capped.", *, session=None, kind="deviation", **more):
    session_pk = session.pk if session else 0
    return precedent_count(
        owner_id=owner.pk, session_pk=session_pk, pattern_kind=kind, summary=summary, now=NOW, **more
    )


def shown_to(owner, *precedents):
    return make_session(owner=owner, metadata={"inputs": {"precedent_ids": [str(one.public_id) for one in precedents]}})


# --- Counting ---


def test_sightings_in_other_marks_and_kinds_in_other_forms_add_up():
    owner = make_user()
    first = count(owner, "Liability is not capped.")
    again = count(owner, "liability is  not capped", kind="Deviation")
    third = count(owner, "“Liability is not capped”!", kind="deviation ")
    assert ({first[0], again[0], third[0]}, third[1]) == ({first[0]}, 3)
    assert Precedent.objects.get().summary == "Liability is not capped."


def test_precedent_that_was_shown_and_is_named_is_counted():
    owner = make_user()
    known = make_precedent(owner)
    session = shown_to(owner, known)
    counted = count(owner, "No limit to damages", session=session, same_as=str(known.public_id))
    assert counted == (known.public_id, 4)
    known.refresh_from_db()
    assert (known.observed_count, known.summary) == (4, "Liability is not capped.")


@pytest.mark.parametrize(
    "named", ["not shown", "of others", "dismissed", "nonsense", "00000000-0000-0000-0000-000000000000"]
)
def test_precedent_that_was_not_shown_or_is_not_open_is_ignored(named):
    owner = make_user()
    others = make_precedent(make_user())
    rows = {
        "not shown": make_precedent(owner, "a"),
        "of others": others,
        "dismissed": make_precedent(owner, "b", dismissed_at=NOW),
    }
    session = shown_to(owner, others, rows["dismissed"])
    same_as = str(rows[named].public_id) if named in rows else named
    precedent_id, number = count(owner, "Something new", session=session, same_as=same_as)
    assert number == 1
    assert Precedent.objects.get(public_id=precedent_id).summary == "Something new"


def test_named_precedent_that_was_merged_meanwhile_counts_for_the_other():
    owner = make_user()
    known, kept = make_precedent(owner), make_precedent(owner, "Damages have no limit")
    session = shown_to(owner, known)
    precedent_merge(precedent=known, into=kept, by=owner, now=NOW)
    assert count(owner, session=session, same_as=str(known.public_id)) == (kept.public_id, 7)


def test_call_through_the_guard_takes_the_named_precedent():
    owner = make_user()
    known = make_precedent(owner)
    params = {"pattern_kind": "k", "summary": "No cap", "same_as": str(known.public_id)}
    made = guarded_tool_call(shown_to(owner, known), ToolIntent.PROPOSE_PRECEDENT, params, key="p:1", now=NOW)
    assert made.data == {"precedent_id": str(known.public_id), "observed_count": 4}


@pytest.mark.django_db(transaction=True)
def test_concurrent_sightings_of_a_named_precedent_are_all_counted():
    owner = make_user()
    known = make_precedent(owner)
    session = shown_to(owner, known)
    in_threads(20, lambda _: count(owner, "x", session=session, same_as=str(known.public_id)))
    known.refresh_from_db()
    assert known.observed_count == 23


# --- Merging ---


def test_merging_adds_up_and_keeps_the_other_row_closed():
    owner = make_user()
    one = make_precedent(owner, first_seen_at=OLD, last_seen_at=OLD)
    other = make_precedent(owner, "Damages have no limit", observed_count=2)
    kept = precedent_merge(precedent=one, into=other, by=owner, now=NOW)
    one.refresh_from_db()
    assert (kept.observed_count, kept.first_seen_at, kept.last_seen_at) == (5, OLD, NOW)
    assert (one.merged_into, one.ended_as, one.dismissed_at) == (other, PrecedentEnd.MERGED, NOW)
    [(kind, actor, details)] = told("autonomous_precedent")
    assert (kind, actor) == ("autonomous_precedent.merge", f"user:{owner.pk}")
    assert details == {"precedent_id": str(one.public_id), "into": str(other.public_id)}


def test_runs_of_merged_precedents_are_traced():
    owner = make_user()
    session = make_session(owner=owner)
    params = {"pattern_kind": "k", "summary": "No cap"}
    guarded_tool_call(session, ToolIntent.PROPOSE_PRECEDENT, params, key="p:1", now=NOW)
    first, second, third = Precedent.objects.get(), make_precedent(owner, "b"), make_precedent(owner, "c")
    precedent_merge(precedent=first, into=second, by=owner, now=NOW)
    precedent_merge(precedent=second, into=third, by=owner, now=NOW)
    first.refresh_from_db()
    assert first.merged_into == third
    assert list(precedent_trace(third)) == [session]


def test_merged_precedent_that_is_in_the_context_is_not_proposed_again():
    owner = make_user()
    project, one, other = make_project(owner), make_precedent(owner), make_precedent(owner, "Damages have no limit")
    proposal_accept(proposal=precedent_promote(precedent=one, project=project, by=owner, now=NOW), by=owner, now=NOW)
    kept = precedent_merge(precedent=one, into=other, by=owner, now=NOW)
    with pytest.raises(InvalidTransition, match="retire it first"):
        precedent_promote(precedent=kept, project=project, by=owner, now=NOW)
    with pytest.raises(InvalidTransition, match="was merged"):
        precedent_promote(precedent=one, project=project, by=owner, now=NOW)


def test_what_cannot_be_merged_is_refused():
    owner = make_user()
    one, ended = make_precedent(owner), make_precedent(owner, "b", dismissed_at=NOW)
    others = make_precedent(make_user(), "c")
    with pytest.raises(Invalid, match="into itself"):
        precedent_merge(precedent=one, into=one, by=owner, now=NOW)
    with pytest.raises(InvalidTransition, match="no longer open"):
        precedent_merge(precedent=one, into=ended, by=owner, now=NOW)
    with pytest.raises(NotFound):
        precedent_merge(precedent=one, into=others, by=owner, now=NOW)
    with pytest.raises(NotFound):  # rows of two owners
        precedent_merge(precedent=one, into=others, by=allowed("change_precedent"), now=NOW)
    assert not told("autonomous_precedent")


# --- Weight and expiry ---


def test_weight_falls_evenly_until_a_precedent_expires(settings):
    settings.LQOPS_PRECEDENT_DAYS = 100
    row = make_precedent(observed_count=8)
    weights = [precedent_weight(row, now=NOW + timedelta(days=days)) for days in (-1, 0, 25, 50, 100, 200)]
    assert weights == [8, 8, 6, 4, 0, 0]
    settings.LQOPS_PRECEDENT_DAYS = 0
    assert precedent_weight(row, now=NOW + timedelta(days=900)) == 8


def test_precedent_that_is_not_seen_expires_and_starts_again_when_seen():
    owner = make_user()
    old = make_precedent(owner, last_seen_at=OLD)
    young = make_precedent(owner, "young", last_seen_at=OLD + timedelta(seconds=1))
    assert (precedents_expire(NOW), precedents_expire(NOW)) == (1, 0)
    old.refresh_from_db()
    assert (old.ended_as, old.dismissed_at) == (PrecedentEnd.EXPIRED, NOW)
    assert told("autonomous_precedent") == [
        ("autonomous_precedent.expire", "system", {"precedent_id": str(old.public_id)})
    ]
    assert list(Precedent.objects.open()) == [young]
    assert count(owner)[1] == 1


def test_promoted_precedent_does_not_expire_while_its_proposal_is_live():
    owner = make_user()
    project = make_project(owner)
    one, other = make_precedent(owner, last_seen_at=OLD), make_precedent(owner, "b", last_seen_at=OLD)
    proposal = precedent_promote(precedent=one, project=project, by=owner, now=NOW)
    precedent_merge(precedent=one, into=other, by=owner, now=NOW)
    assert precedents_expire(NOW) == 0
    proposal_reject(proposal=proposal, by=owner, now=NOW)
    assert precedents_expire(NOW) == 1


def test_nothing_expires_without_a_limit_and_the_ticker_asks(settings):
    make_precedent(last_seen_at=OLD)
    settings.LQOPS_PRECEDENT_DAYS = 0
    assert precedents_expire(NOW) == 0
    assert precedents_expire in [duty.do for duty in DUTIES]


def test_dismissed_precedent_says_so():
    row = make_precedent()
    assert precedent_dismiss(precedent=row, by=row.owner, now=NOW).ended_as == PrecedentEnd.DISMISSED


# --- The line of a proposal ---


def test_line_is_edited_before_it_enters_the_context():
    owner = make_user()
    project = make_project(owner)
    proposal = precedent_promote(precedent=make_precedent(owner), project=project, by=owner, now=NOW)
    for _ in range(2):
        row = proposal_edit(proposal=proposal, text="Cap the\nliability.\u202e", by=owner, now=NOW)
    assert row.text == "Cap the liability."
    ids = {"proposal_id": str(row.public_id), "project_id": str(project.public_id)}
    assert told("project_context_proposal") == [("project_context_proposal.edit", f"user:{owner.pk}", ids)]
    row = proposal_accept(proposal=proposal, by=owner, now=NOW)
    assert (row.project.context_md, row.status) == ("Cap the liability.", ProposalStatus.ACCEPTED)
    with pytest.raises(InvalidTransition, match="edit the context"):
        proposal_edit(proposal=proposal, text="Too late.", by=owner, now=NOW)


def test_line_can_be_given_with_the_promotion_and_is_never_empty():
    owner = make_user()
    project, precedent = make_project(owner), make_precedent(owner)
    with pytest.raises(Invalid, match="needs a text"):
        precedent_promote(precedent=precedent, project=project, by=owner, now=NOW, text="\u202e \n")
    proposal = precedent_promote(precedent=precedent, project=project, by=owner, now=NOW, text="Cap it.")
    assert proposal.text == "Cap it."
    with pytest.raises(NotFound):
        proposal_edit(proposal=proposal, text="x", by=make_user(), now=NOW)
