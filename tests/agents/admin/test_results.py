"""Precedents, proposals, memories, notifications, findings and projects on the admin pages."""

import pytest
from django.urls import reverse

from agents.enums import ApprovalStatus, Outcome, ProposalStatus, ToolIntent
from agents.models import AgentSession, Approval, ContextProposal, Finding, Memory, Notification, Precedent, Project
from audit.models import AuditEvent
from tests.agents.admin.rows import (
    act_page,
    kinds_since,
    last_event,
    make_approval,
    make_call,
    make_document,
    page,
    sign_in,
    text_of,
)
from tests.factories import NOW, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db


def make_precedent(owner=None, **fields):
    given = {"pattern_kind": "clause", "summary": "Five-year terms.", "summary_hash": "h", "observed_count": 3}
    return Precedent.objects.create(owner=owner or make_user(), **{**given, **fields})


# --- Precedents and proposals ---


def test_precedent_is_proposed_for_an_own_project(client):
    user = sign_in(client, "operator")
    mine = Project.objects.create(owner=user, name="Mine")
    Project.objects.create(owner=make_user(), name="Somebody else's")
    row = make_precedent(user)
    address = act_page(row, "promote")
    asked = text_of(client.get(address))
    assert "Somebody else" not in asked
    assert '">Seen 3 times: Five-year terms.</pre>' in asked
    before = last_event()

    answer = client.post(address, {"confirmed": "1", "project": mine.pk}, follow=True)
    assert f'href="{page(ContextProposal, "changelist")}?status__exact=proposed">' in text_of(answer)

    mine.refresh_from_db()
    proposal = ContextProposal.objects.get()
    assert (proposal.status, mine.context_md) == (ProposalStatus.PROPOSED, "")
    assert kinds_since(before) == ["autonomous_precedent.promote"]
    client.post(act_page(proposal, "accept"), {"confirmed": "1"})
    mine.refresh_from_db()
    assert "Five-year terms." in mine.context_md


def test_near_duplicates_are_listed_and_merged(client):
    user = sign_in(client, "operator")
    row = make_precedent(user, summary="Payments are due after 60 days")
    like = make_precedent(user, summary="Payment is due 60 days after receipt", summary_hash="i")
    make_precedent(user, summary="No parking", summary_hash="j")
    listed = text_of(client.get(page(Precedent, "changelist"), {"board": "alike"}))
    assert listed.count("Payments are due after 60 days") == 2, "itself, and beside the one that is like it"
    assert "No parking" not in listed
    asked = text_of(client.get(act_page(row, "merge")))
    assert f'<option value="{like.pk}" selected>' in asked
    before = last_event()
    client.post(act_page(row, "merge"), {"confirmed": "1", "into": like.pk})
    like.refresh_from_db()
    row.refresh_from_db()
    assert (like.observed_count, row.merged_into) == (6, like)
    assert kinds_since(before) == ["autonomous_precedent.merge"]


def test_line_is_edited_before_it_is_accepted(client):
    user = sign_in(client)
    row = ContextProposal.objects.create(
        owner=user, project=Project.objects.create(owner=user, name="Mine"), text="Seen 1 time: x"
    )
    assert "Seen 1 time: x</textarea>" in text_of(client.get(act_page(row, "edit")))
    client.post(act_page(row, "edit"), {"confirmed": "1", "text": "Cap it."})
    client.post(act_page(row, "accept"), {"confirmed": "1"})
    row.project.refresh_from_db()
    assert row.project.context_md == "Cap it."


def test_accept_reject_accept_leaves_one_copy(client):
    user = sign_in(client)
    project = Project.objects.create(owner=user, name="Mine")
    row = ContextProposal.objects.create(owner=user, project=project, text="A line.")

    for act in ("accept", "reject", "accept"):
        client.post(act_page(row, act), {"confirmed": "1"})

    project.refresh_from_db()
    assert project.context_md.count("A line.") == 1


@pytest.mark.parametrize(
    ("act", "fields"),
    [("accept", {}), ("reject", {}), ("retire", {"status": ProposalStatus.ACCEPTED, "applied_version": 1})],
)
def test_decision_on_a_proposal_shows_its_line(client, act, fields):
    user = sign_in(client)
    project = Project.objects.create(owner=user, name="Mine", context_version=4)
    row = ContextProposal.objects.create(owner=user, project=project, text="A <b>line</b>.", **fields)

    found = text_of(client.get(act_page(row, act)))

    assert "A &lt;b&gt;line&lt;/b&gt;.</pre>" in found
    assert "For Mine, context version 4" in found


def test_precedent_seen_once_is_in_the_singular(client):
    row = make_precedent(sign_in(client), pattern_kind="playbook_deviation", observed_count=1)

    assert "Playbook deviation, seen 1 time<" in text_of(client.get(act_page(row, "dismiss")))
    assert "playbook deviation" in text_of(client.get(page(Precedent, "changelist")))
    assert str(row) == "playbook_deviation: seen 1 time"


def test_only_the_project_owner_decides(client):
    sign_in(client)
    project = Project.objects.create(owner=make_user(), name="Theirs")
    row = ContextProposal.objects.create(owner=project.owner, project=project, text="A line.")

    answer = client.post(act_page(row, "accept"), {"confirmed": "1"})

    assert "There is nothing of that kind here." in text_of(answer)
    project.refresh_from_db()
    assert project.context_md == ""


def test_dismissed_precedent_leaves_the_list(client):
    row = make_precedent(sign_in(client))
    client.post(act_page(row, "dismiss"), {"confirmed": "1"})

    assert "Five-year terms." not in text_of(client.get(page(Precedent, "changelist")))
    assert "Five-year terms." in text_of(client.get(page(Precedent, "changelist"), {"board": "dismissed"}))


def test_proposal_lists_the_runs_that_read_it(client):
    user = sign_in(client)
    project = Project.objects.create(owner=user, name="Mine")
    row = ContextProposal.objects.create(owner=user, project=project, text="x", applied_version=2)
    read = make_session(owner=user, project=project, context_version=2, params={"query": "read it"})
    make_session(owner=user, project=project, context_version=1, params={"query": "before that"})

    found = text_of(client.get(page(ContextProposal, "change", row.pk)))

    assert "read it" in found
    assert "before that" not in found
    assert str(read.pk) in found


def test_precedent_lists_the_runs_that_saw_it(client):
    user = sign_in(client)
    row = make_precedent(user)
    session = make_session(owner=user, params={"query": "seen here"})
    make_call(
        session,
        intent=ToolIntent.PROPOSE_PRECEDENT,
        outcome=Outcome.SUCCESS,
        result={"precedent_id": str(row.public_id)},
    )

    assert "seen here" in text_of(client.get(page(Precedent, "change", row.pk)))


# --- Memories ---


def test_memory_is_kept_with_edited_text(client):
    user = sign_in(client)
    row = Memory.objects.create(owner=user, content="old words")
    assert "old words" in text_of(client.get(act_page(row, "keep")))

    client.post(act_page(row, "keep"), {"confirmed": "1", "content": "new words"})

    row.refresh_from_db()
    assert (row.state, row.content) == ("kept", "new words")
    assert AuditEvent.objects.get(kind="autonomous_memory.keep").details["edited"] is True


def test_deleted_memory_leaves_the_list(client):
    row = Memory.objects.create(owner=sign_in(client), content="old words")

    client.post(act_page(row, "delete"), {"confirmed": "1"})

    assert "old words" not in text_of(client.get(page(Memory, "changelist")))


# --- Notifications and findings ---


def test_own_notifications_can_be_marked_as_read(client):
    user = sign_in(client, "viewer")
    mine = Notification.objects.create(owner=user, title="for me")
    theirs = Notification.objects.create(owner=make_user(), title="for somebody else")

    found = text_of(client.get(page(Notification, "changelist")))
    assert "for me" in found
    assert "for somebody else" not in found
    assert client.post(act_page(theirs, "read"), {"confirmed": "1"}).status_code == 403
    chosen = {"action": "read", "_selected_action": [mine.pk, theirs.pk], "confirmed": "1"}
    client.post(page(Notification, "changelist"), chosen)

    mine.refresh_from_db()
    theirs.refresh_from_db()
    assert mine.read_at is not None
    assert theirs.read_at is None
    assert "for me" not in text_of(client.get(page(Notification, "changelist"), {"read": "no"}))
    assert "for me" in text_of(client.get(page(Notification, "changelist"), {"read": "yes"}))


def test_opening_a_notification_marks_it_as_read_once(client):
    mine = Notification.objects.create(owner=sign_in(client, "viewer"), title="for me", body="1 call, 0.500000 USD.")
    before = last_event()

    found = text_of(client.get(page(Notification, "change", mine.pk)))
    client.get(page(Notification, "change", mine.pk))

    assert "1 call, $0.50." in found
    assert kinds_since(before) == ["notification.read"]
    mine.refresh_from_db()
    assert mine.read_at is not None


def test_notifications_show_and_link_their_runs(client):
    user = sign_in(client)
    given = {"params": {"document": str(make_document(user).public_id)}, "started_at": NOW}
    session = make_session(owner=user, trigger=make_trigger(name="Watch it"), **given)
    receipt = reverse("audit:receipt", args=[session.chain])
    body = f"Findings: none.\nReceipt: {receipt}"
    row = Notification.objects.create(owner=user, session=session, title="t", body=body)
    Notification.objects.create(owner=user, title="of no run")

    listed, found = (text_of(client.get(page(Notification, *where))) for where in (["changelist"], ["change", row.pk]))

    assert "<span>nda.txt<br>" in listed
    assert "Watch it" in listed
    assert f'href="{receipt}">Open receipt</a>' in found
    assert "Receipt: /" not in found
    assert f'href="{page(AgentSession, "change", session.pk)}">Open run' in found


def test_notifications_lead_to_where_they_are_settled(client):
    user = sign_in(client)
    approval = make_approval()
    row = Notification.objects.create(owner=user, session=approval.session, title="t", kind="approval_waiting")
    message = Notification.objects.create(owner=user, session=approval.session, title="from the agent", body="text")

    listed = text_of(client.get(page(Notification, "changelist")))

    link = reverse("admin:agents_notification_go", args=[row.public_id])
    assert f'href="{link}' in listed
    assert client.get(link).url == page(Approval, "change", approval.pk)
    row.refresh_from_db()
    assert row.read_at is not None
    own = page(Notification, "change", message.pk)
    assert f'href="{own}' in listed
    assert "<dt>Page</dt>" not in text_of(client.get(own))


def test_notification_of_a_decided_call_is_settled(client):
    user = sign_in(client)
    approval = make_approval()
    row = Notification.objects.create(owner=user, session=approval.session, title="t", kind="approval_waiting")

    assert "waiting for approval" in text_of(client.get(page(Notification, "changelist")))
    Approval.objects.update(status=ApprovalStatus.REJECTED)
    assert "approval, decided" in text_of(client.get(page(Notification, "changelist")))
    assert "decided" in text_of(client.get(page(Notification, "change", row.pk)))
    Approval.objects.update(status=ApprovalStatus.PENDING)
    assert client.get(page(Notification, "change", row.pk)).url == page(Approval, "change", approval.pk)


def test_view_of_another_users_finding_is_a_view_of_its_run(client):
    sign_in(client, "viewer")
    row = Finding.objects.create(session=make_session(), title="t")

    client.get(page(Finding, "change", row.pk))

    assert AuditEvent.objects.filter(kind="session.viewed").count() == 1


# --- Projects ---


def test_project_context_gets_a_version_per_edit(client):
    user = sign_in(client, "operator")
    before = last_event()

    client.post(page(Project, "add"), {"owner": user.pk, "name": "P", "context_md": "One.", "parties": ""})
    row = Project.objects.get()
    given = {"name": "P", "context_md": "Two.", "parties": "Acme", "seen_version": "1"}
    client.post(page(Project, "change", row.pk), given)

    row.refresh_from_db()
    assert (row.context_md, row.context_version, row.parties) == ("Two.", 2, "Acme")
    assert kinds_since(before) == ["project.created", "project.edited", "project.edited"]
    found = text_of(client.get(page(Project, "change", row.pk)))
    assert "Version 1," in found
    assert "Version 2," in found


def test_outdated_form_overwrites_nothing(client):
    user = sign_in(client)
    row = Project.objects.create(owner=user, name="P", context_md="Newer.", context_version=5)

    given = {"name": "P", "context_md": "Older.", "parties": "", "seen_version": "4"}
    answer = client.post(page(Project, "change", row.pk), given)

    assert "review it again" in text_of(answer)
    row.refresh_from_db()
    assert row.context_md == "Newer."


def test_context_of_another_user_is_read_only(client):
    sign_in(client, "operator")
    row = Project.objects.create(owner=make_user(), name="P", context_md="Theirs.", context_version=1)
    assert "can change the context" in text_of(client.get(page(Project, "change", row.pk)))

    client.post(page(Project, "change", row.pk), {"name": "Q", "context_md": "Mine.", "seen_version": "1"})

    row.refresh_from_db()
    assert (row.name, row.context_md) == ("Q", "Theirs.")


# --- Browsers that show what waits ---


def test_browser_is_told_of_own_unread_decisions_after_the_last_one(client):
    user = sign_in(client, "approver")
    session = make_session(owner=user)
    made = [
        Notification.objects.create(owner=owner, session=session, title=title, body="Line\nmore", kind=kind, **more)
        for owner, title, kind, more in (
            (user, "old", "approval_waiting", {}),
            (user, "A call waits", "approval_waiting", {}),
            (user, "a\u202eb", "question_waiting", {}),
            (user, "done", "run_completed", {}),
            (user, "seen", "approval_waiting", {"read_at": NOW}),
            (make_user(), "theirs", "approval_waiting", {}),
        )
    ]

    found = client.get(page(Notification, "waiting", made[0].pk)).json()

    assert [(row["title"], row["text"]) for row in found["rows"]] == [("A call waits", "Line"), ("a⟨U+202E⟩b", "Line")]
    assert found["rows"][0]["link"] == page(Notification, "go", made[1].public_id)
    assert found["newest"] == made[2].pk
    assert client.get(page(Notification, "waiting", made[2].pk)).json() == {"newest": made[2].pk, "rows": []}


def test_notifications_of_a_browser_need_a_role(client):
    client.force_login(make_user(is_staff=True))

    assert client.get(page(Notification, "waiting", 0)).status_code == 403
