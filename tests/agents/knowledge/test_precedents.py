"""Precedents and proposals: promoted by a person, accepted at most once, retired, and traced to runs."""

import pytest

from agents.enums import ProposalStatus
from agents.exceptions import Invalid, InvalidTransition, NotAllowed, NotFound
from agents.knowledge.projects import (
    CONTEXT_CHARS,
    SUMMARY_CHARS,
    precedent_dismiss,
    precedent_promote,
    precedents_open,
    project_edit,
    proposal_accept,
    proposal_reject,
    proposal_retire,
    proposal_text,
    proposal_trace,
)
from agents.models import ContextProposal, ContextRevision
from tests.agents.people.rows import allowed, make_precedent, make_project, told
from tests.factories import NOW, make_session, make_user
from tests.flows.processes import in_threads
from tests.table import every_row

pytestmark = pytest.mark.django_db

LINE = "Seen 3 times: Liability is not capped."


def make_proposal(**project_fields):
    owner = make_user()
    project = make_project(owner, **project_fields)
    return precedent_promote(precedent=make_precedent(owner), project=project, by=owner, now=NOW)


def act(verb, proposal, by=None):
    return verb(proposal=proposal, by=by or proposal.owner, now=NOW)


def context(proposal):
    proposal.project.refresh_from_db()
    return proposal.project.context_md


# --- The board ---


def test_board_hides_dismissed_and_shows_newest_first():
    owner = make_user()
    old = make_precedent(owner, "old")
    new = make_precedent(owner, "new", last_seen_at=NOW.replace(hour=23), pattern_kind="habit")
    make_precedent(owner, "gone", dismissed_at=NOW)
    make_precedent(summary="somebody else's")
    assert list(precedents_open(owner.pk)) == [new, old]
    assert list(precedents_open(owner.pk, "habit")) == [new]


def test_dismissing_twice_is_recorded_once():
    precedent = make_precedent()
    for _ in range(2):
        row = precedent_dismiss(precedent=precedent, by=precedent.owner, now=NOW)
    assert row.dismissed_at == NOW
    [(kind, actor, details)] = told("autonomous_precedent")
    assert (kind, actor) == ("autonomous_precedent.dismiss", f"user:{precedent.owner_id}")
    assert details == {"precedent_id": str(precedent.public_id)}


def test_stranger_cannot_dismiss_a_precedent():
    precedent = make_precedent()
    with pytest.raises(NotFound):
        precedent_dismiss(precedent=precedent, by=make_user(), now=NOW)
    precedent.refresh_from_db()
    assert precedent.dismissed_at is None


# --- Promotion ---


def test_promotion_makes_a_proposal_and_changes_no_context():
    proposal = make_proposal(context_md="We buy.")
    assert (proposal.text, proposal.status, context(proposal)) == (LINE, ProposalStatus.PROPOSED, "We buy.")
    assert proposal.proposed_by == proposal.owner == proposal.project.owner
    ids = {"precedent_id": str(proposal.precedent.public_id), "proposal_id": str(proposal.public_id)}
    assert told("autonomous_precedent") == [("autonomous_precedent.promote", f"user:{proposal.owner_id}", ids)]


@every_row(
    ("summary", "count", "line"),
    [
        ("one", 1, "Seen 1 time: one"),
        ("two\r\nlines\u2028and\u2029more\x0b", 2, "Seen 2 times: two lines and more"),
        ("\u202eturned\u202c \u2066around\u2069", 2, "Seen 2 times: turned around"),
        ("\x1b[31mred\x00\x07", 2, "Seen 2 times: [31mred"),
        ("tag\U000e0041\U000e0042\u200b\ufeff", 2, "Seen 2 times: tag"),
        ("half \ud83d pair", 2, "Seen 2 times: half pair"),
    ],
)
def test_proposal_text_is_one_clean_line(summary, count, line):
    precedent = make_precedent()
    precedent.summary, precedent.observed_count = summary, count
    assert proposal_text(precedent) == line


def test_long_summary_is_cut():
    proposal = make_proposal()
    proposal.precedent.summary = "word " * SUMMARY_CHARS
    text = proposal_text(proposal.precedent)
    assert text.endswith("word…")
    assert len(text) <= SUMMARY_CHARS + len("Seen 3 times: ")


def test_promotion_needs_the_project_owner_with_access():
    owner, stranger = make_user(), make_user()
    project, precedent = make_project(owner), make_precedent(owner)
    with pytest.raises(NotAllowed, match="Only a person can decide"):
        precedent_promote(precedent=precedent, project=project, by=None, now=NOW)
    with pytest.raises(NotFound):
        precedent_promote(precedent=precedent, project=project, by=stranger, now=NOW)
    with pytest.raises(NotFound):  # his own project, somebody else's precedent
        precedent_promote(precedent=precedent, project=make_project(stranger), by=stranger, now=NOW)
    with pytest.raises(NotFound):  # may see every precedent, but does not own the project
        precedent_promote(precedent=precedent, project=project, by=allowed("change_precedent"), now=NOW)
    assert not ContextProposal.objects.exists()


def test_permission_holder_may_promote_into_an_own_project():
    lead = allowed("change_precedent")
    proposal = precedent_promote(precedent=make_precedent(), project=make_project(lead), by=lead, now=NOW)
    assert proposal.owner == lead


def test_open_proposal_is_returned_again():
    proposal = make_proposal()
    again = precedent_promote(precedent=proposal.precedent, project=proposal.project, by=proposal.owner, now=NOW)
    assert again == proposal
    assert len(told("autonomous_precedent.promote")) == 1


def test_applied_precedent_is_not_proposed_until_retired():
    proposal = make_proposal()
    act(proposal_accept, proposal)
    for _ in range(2):
        with pytest.raises(InvalidTransition, match="retire it first"):
            precedent_promote(precedent=proposal.precedent, project=proposal.project, by=proposal.owner, now=NOW)
        act(proposal_reject, proposal)
    act(proposal_retire, proposal)
    newer = precedent_promote(precedent=proposal.precedent, project=proposal.project, by=proposal.owner, now=NOW)
    assert newer != proposal


def test_dismissed_precedent_and_a_deleted_project_cannot_be_used():
    owner = make_user()
    project = make_project(owner)
    with pytest.raises(InvalidTransition, match="was dismissed"):
        precedent_promote(precedent=make_precedent(owner, dismissed_at=NOW), project=project, by=owner, now=NOW)
    project_pk = project.pk
    project.delete()
    project.pk = project_pk
    with pytest.raises(NotFound):
        precedent_promote(precedent=make_precedent(owner, "b"), project=project, by=owner, now=NOW)


# --- Decisions ---


@pytest.mark.parametrize(
    ("before", "after"),
    [("", LINE), ("We buy.", f"We buy.\n{LINE}"), ("We buy.\n", f"We buy.\n{LINE}")],
)
def test_accepting_adds_one_line_in_a_new_version(before, after):
    proposal = make_proposal(context_md=before, context_version=4)
    row = act(proposal_accept, proposal)
    assert (context(proposal), row.status, row.applied_version) == (after, ProposalStatus.ACCEPTED, 5)
    revision = ContextRevision.objects.get()
    assert (revision.version, revision.text, revision.proposal, revision.written_by) == (5, after, row, row.owner)
    assert (row.decided_by, row.decided_at) == (row.owner, NOW)
    [(kind, actor, details)] = told("project_context_proposal")
    assert (kind, actor) == ("project_context_proposal.accept", f"user:{row.owner_id}")
    assert details == {
        "proposal_id": str(row.public_id),
        "project_id": str(proposal.project.public_id),
        "context_version": 5,
    }


def test_accept_reject_accept_leaves_one_copy():
    proposal = make_proposal(context_md="We buy.")
    for verb in (proposal_accept, proposal_accept, proposal_reject, proposal_reject, proposal_accept):
        act(verb, proposal)
        assert context(proposal) == f"We buy.\n{LINE}"
    assert ContextRevision.objects.count() == 1
    verbs = [kind.partition(".")[2] for kind, _, _ in told("project_context_proposal")]
    assert verbs == ["accept", "reject", "accept"]


def test_line_removed_by_hand_does_not_return():
    proposal = make_proposal()
    act(proposal_accept, proposal)
    project_edit(project=proposal.project, by=proposal.owner, now=NOW, context_md="")
    act(proposal_reject, proposal)
    act(proposal_accept, proposal)
    assert context(proposal) == ""


def test_rejecting_changes_no_context():
    proposal = make_proposal(context_md="We buy.")
    assert act(proposal_reject, proposal).status == ProposalStatus.REJECTED
    assert (context(proposal), ContextRevision.objects.count()) == ("We buy.", 0)


def test_only_one_proposal_of_a_precedent_is_accepted():
    first = make_proposal()
    act(proposal_reject, first)
    second = precedent_promote(precedent=first.precedent, project=first.project, by=first.owner, now=NOW)
    with pytest.raises(InvalidTransition, match=str(second.public_id)):
        act(proposal_accept, first)
    act(proposal_accept, second)
    assert context(first) == LINE


def test_proposal_outlives_its_precedent():
    proposal = make_proposal()
    proposal.precedent.delete()
    act(proposal_accept, proposal)
    assert context(proposal) == LINE


def test_full_context_refuses_a_proposal():
    proposal = make_proposal(context_md="x" * CONTEXT_CHARS)
    with pytest.raises(Invalid, match="shorten it"):
        act(proposal_accept, proposal)
    proposal.refresh_from_db()
    assert (proposal.status, proposal.applied_version) == (ProposalStatus.PROPOSED, None)


@pytest.mark.parametrize("verb", [proposal_accept, proposal_reject, proposal_retire])
def test_only_the_owner_of_the_project_decides(verb):
    proposal = make_proposal()
    with pytest.raises(NotFound):
        act(verb, proposal, by=allowed("change_contextproposal", "change_project", "change_precedent"))
    with pytest.raises(NotAllowed):
        verb(proposal=proposal, by=None, now=NOW)
    gone = ContextProposal(pk=0, project=proposal.project)
    with pytest.raises(NotFound):
        act(verb, gone, by=proposal.owner)
    proposal.refresh_from_db()
    assert (proposal.status, context(proposal)) == (ProposalStatus.PROPOSED, "")


# --- Retiring ---


def test_retiring_removes_exactly_that_line_in_a_new_version():
    proposal = make_proposal(context_md=f"We buy.\n{LINE} And more.")
    act(proposal_accept, proposal)
    project_edit(project=proposal.project, by=proposal.owner, now=NOW, context_md=f"{context(proposal)}\nWe sell.")
    row = act(proposal_retire, proposal)
    assert context(proposal) == f"We buy.\n{LINE} And more.\nWe sell."
    assert (row.status, row.applied_version, row.retired_version) == (ProposalStatus.RETIRED, 1, 3)
    assert ContextRevision.objects.get(version=3).proposal == row
    assert told("project_context_proposal.retire")[0][2]["context_version"] == 3
    assert act(proposal_retire, proposal).retired_version == 3
    assert len(told("project_context_proposal.retire")) == 1


def test_retired_proposal_cannot_be_decided_on_again():
    proposal = make_proposal()
    act(proposal_accept, proposal)
    act(proposal_retire, proposal)
    for verb, says in ((proposal_accept, "promote the precedent again"), (proposal_reject, "nothing left to reject")):
        with pytest.raises(InvalidTransition, match=says):
            act(verb, proposal)
    assert context(proposal) == ""


def test_changed_line_is_not_retired():
    proposal = make_proposal()
    act(proposal_accept, proposal)
    project_edit(project=proposal.project, by=proposal.owner, now=NOW, context_md=LINE.upper())
    with pytest.raises(InvalidTransition, match="edit the context by hand"):
        act(proposal_retire, proposal)
    proposal.refresh_from_db()
    assert (context(proposal), proposal.status) == (LINE.upper(), ProposalStatus.ACCEPTED)


def test_unapplied_proposal_cannot_be_retired():
    with pytest.raises(InvalidTransition, match="never entered"):
        act(proposal_retire, make_proposal())


# --- Traces ---


def test_trace_lists_the_runs_that_read_the_line():
    proposal = make_proposal(context_version=2)
    assert list(proposal_trace(proposal)) == []
    row = act(proposal_accept, proposal)  # version 3
    project, owner = proposal.project, proposal.owner
    runs = {number: make_session(owner=owner, project=project, context_version=number) for number in (None, 2, 3, 4, 5)}
    make_session(owner=owner, project=make_project(owner), context_version=4)
    assert list(proposal_trace(row)) == [runs[5], runs[4], runs[3]]
    project_edit(project=project, by=owner, now=NOW, context_md=f"We buy.\n{LINE}")  # version 4
    row = act(proposal_retire, proposal)  # version 5
    assert list(proposal_trace(row)) == [runs[4], runs[3]]


# --- At once ---


@pytest.mark.django_db(transaction=True)
def test_concurrent_accepts_add_one_line():
    proposal = make_proposal(context_md="We buy.")
    pk, owner = proposal.pk, proposal.owner
    in_threads(20, lambda _: proposal_accept(proposal=ContextProposal.objects.get(pk=pk), by=owner, now=NOW))
    assert context(proposal) == f"We buy.\n{LINE}"
    assert ContextRevision.objects.count() == len(told("project_context_proposal")) == 1


@pytest.mark.django_db(transaction=True)
def test_concurrent_promotions_make_one_proposal():
    owner = make_user()
    project, precedent = make_project(owner), make_precedent(owner)
    made = in_threads(20, lambda _: precedent_promote(precedent=precedent, project=project, by=owner, now=NOW).pk)
    assert set(made) == {ContextProposal.objects.get().pk}
