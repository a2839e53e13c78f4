"""What people do about findings: states, assignees, comments, what dismissals teach, and the export."""

import csv
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from agents.enums import FindingState, NoticeKind
from agents.exceptions import Invalid, InvalidTransition, NotFound
from agents.knowledge.findings import (
    ALARM_DAYS,
    COMMENT_CHARS,
    CSV_COLUMNS,
    assignable_users,
    false_alarms,
    finding_acknowledge,
    finding_add,
    finding_assign,
    finding_comment,
    finding_dismiss,
    finding_reopen,
    finding_resolve,
    findings_expire,
    findings_export,
)
from agents.knowledge.projects import precedent_dismiss, precedent_merge, precedent_trace
from agents.models import Document, Finding, Notification, Playbook, Precedent
from agents.policy.transitions import FINDING_MOVES
from audit.models import AuditEvent
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db

ACTS = {
    "acknowledge": (finding_acknowledge, {}, FindingState.ACKNOWLEDGED),
    "resolve": (finding_resolve, {}, FindingState.RESOLVED),
    "dismiss": (finding_dismiss, {"reason": "Usual here"}, FindingState.DISMISSED),
    "reopen": (finding_reopen, {}, FindingState.OPEN),
}


def make_finding(owner=None, **fields):
    session = fields.pop("session", None) or make_session(owner=owner or make_user())
    return Finding.objects.create(**{"session": session, "title": "Term: too long", "created_at": NOW, **fields})


def make_triager():
    user = make_user()
    user.user_permissions.add(Permission.objects.get(codename="change_finding"))
    return user


def kinds():
    found = AuditEvent.objects.filter(kind__startswith="finding.").order_by("pk")
    return [kind.removeprefix("finding.") for kind in found.values_list("kind", flat=True)]


# --- States ---


def test_states_change_as_the_table_says_and_each_change_is_recorded():
    for act, given, to in ACTS.values():
        for state in FindingState:
            row = make_finding(state=state)
            before = len(kinds())
            if state != to and to not in FINDING_MOVES[state]:
                with pytest.raises(InvalidTransition, match="reopen it before"):
                    act(finding=row, by=row.session.owner, now=NOW, **given)
                expected, events = state, 0
            else:
                act(finding=row, by=row.session.owner, now=NOW, **given)
                expected, events = to, int(state != to)
            row.refresh_from_db()
            assert (row.state, len(kinds()) - before) == (expected, events), (act, state)


def test_last_change_names_the_person_and_the_time():
    row, by = make_finding(), make_triager()
    done = finding_resolve(finding=row, by=by, now=NOW)
    assert (done.triaged_by, done.triaged_at) == (by, NOW)
    event = AuditEvent.objects.get(kind="finding.resolved")
    assert (event.chain, event.actor) == ("system", f"user:{by.pk}")
    assert event.details == {"finding_id": str(row.public_id), "session_id": row.session.chain}


@pytest.mark.parametrize("name", [*ACTS, "assign", "comment"])
def test_only_the_owner_and_those_with_the_permission_act(name):
    acts = {name: (act, given) for name, (act, given, _) in ACTS.items()}
    acts |= {"assign": (finding_assign, {"assignee": None}), "comment": (finding_comment, {"text": "x"})}
    act, given = acts[name]
    viewer = make_user()
    viewer.groups.add(Group.objects.get_or_create(name="viewer")[0])
    for stranger in (make_user(), viewer, make_user(is_active=False)):
        with pytest.raises(NotFound):
            act(finding=make_finding(), by=stranger, now=NOW, **given)
    assert kinds() == []
    row = make_finding(state="resolved" if name == "reopen" else "open", assignee=make_user())
    act(finding=row, by=make_triager(), now=NOW, **given)
    assert len(kinds()) == 1


# --- Expiry ---

WAIT = timedelta(days=90)
OLD = {"created_at": NOW - WAIT}


@pytest.mark.parametrize("severity", ["info", "warn"])
def test_finding_of_low_severity_expires_on_record_when_nobody_has_come_for_90_days(severity):
    row = make_finding(severity=severity, quote="sixty days", quote_check="verified", **OLD)
    young = make_finding(severity=severity, created_at=NOW - WAIT + timedelta(seconds=1))

    assert findings_expire(NOW) == 1
    assert findings_expire(NOW) == 0

    row.refresh_from_db()
    assert (row.state, row.triaged_by, row.triaged_at) == (FindingState.EXPIRED, None, NOW)
    assert (row.quote, row.quote_check) == ("sixty days", "verified")
    event = AuditEvent.objects.get(kind="finding.expired")
    assert (event.chain, event.actor) == ("system", "system")
    assert event.details == {"finding_id": str(row.public_id), "session_id": row.session.chain}
    assert Finding.objects.get(pk=young.pk).state == FindingState.OPEN


@pytest.mark.parametrize(
    "fields",
    [
        {"severity": "critical"},
        {"severity": "WARN"},
        {"severity": "blocker"},
        {"state": FindingState.ACKNOWLEDGED},
        {"state": FindingState.RESOLVED},
        {"state": FindingState.DISMISSED},
        {"about_run": True},
        {"triaged_at": NOW - WAIT + timedelta(seconds=1)},
    ],
    ids=str,
)
def test_other_findings_do_not_expire(fields):
    row = make_finding(**{**OLD, **fields})

    assert findings_expire(NOW) == 0
    assert Finding.objects.get(pk=row.pk).state == fields.get("state", FindingState.OPEN)


def test_finding_that_is_assigned_waits_for_its_assignee():
    make_finding(assignee=make_user(), **OLD)

    assert findings_expire(NOW) == 0


def test_reopened_finding_waits_as_long_again():
    row = make_finding(**OLD)
    findings_expire(NOW)

    finding_reopen(finding=row, by=row.session.owner, now=NOW)

    assert findings_expire(NOW + WAIT - timedelta(seconds=1)) == 0
    assert findings_expire(NOW + WAIT) == 1
    assert kinds() == ["expired", "reopened", "expired"]
    for act in (finding_acknowledge, finding_resolve):
        with pytest.raises(InvalidTransition, match="reopen it before"):
            act(finding=row, by=row.session.owner, now=NOW)


def test_setting_says_how_long_findings_wait_and_0_is_for_good(settings):
    make_finding(**OLD)
    settings.LQOPS_FINDING_DAYS = 0
    assert findings_expire(NOW + 100 * WAIT) == 0
    settings.LQOPS_FINDING_DAYS = 91
    assert findings_expire(NOW) == 0
    settings.LQOPS_FINDING_DAYS = 30
    assert findings_expire(NOW) == 1


def test_so_many_expire_at_once_that_a_tick_stays_short_and_the_rest_follows(monkeypatch):
    monkeypatch.setattr("agents.knowledge.findings.EXPIRED_AT_ONCE", 2)
    for _ in range(3):
        make_finding(**OLD)

    assert [findings_expire(NOW) for _ in range(3)] == [2, 1, 0]


def test_finding_that_somebody_has_just_taken_on_does_not_expire(monkeypatch):
    """The person comes between the reading of the row and its change."""
    row = make_finding(**OLD)
    inside = transaction.atomic

    def come_before():
        if not kinds():
            finding_acknowledge(finding=row, by=row.session.owner, now=NOW)
        return inside()

    monkeypatch.setattr("agents.knowledge.findings.transaction.atomic", come_before)

    assert findings_expire(NOW) == 0
    assert kinds() == ["acknowledged"]


# --- Dismissals teach ---


def test_dismissal_needs_a_reason():
    for reason in ("", "  \n ", "\u200b"):
        with pytest.raises(Invalid, match="reason"):
            finding_dismiss(finding=make_finding(), reason=reason, by=None, now=NOW)


def test_same_position_and_reason_count_as_one_precedent_of_the_owner():
    owner = make_user()
    rows = [make_finding(owner, position="Term", title=f"Term {number}") for number in range(3)]
    for row in rows:
        finding_dismiss(finding=row, reason="Usual here", by=make_triager(), now=NOW)
    precedent = Precedent.objects.get()
    assert (precedent.owner, precedent.observed_count, precedent.pattern_kind) == (owner, 3, "dismissed_finding")
    assert precedent.summary == "Dismissed as no problem: Term. Reason: Usual here"
    assert [run.pk for run in precedent_trace(precedent)] == [row.session_id for row in reversed(rows)]


def test_dismissal_that_is_not_to_teach_counts_nothing():
    row = finding_dismiss(finding=make_finding(), reason="Duplicate", by=None, now=NOW, teach=False)
    assert (row.state, row.reason, row.precedent) == ("dismissed", "Duplicate", None)
    assert not Precedent.objects.exists()


def test_reopening_takes_back_what_the_dismissal_taught():
    owner = make_user()
    first, second = (make_finding(owner, position="Term") for _ in range(2))
    for row in (first, second):
        finding_dismiss(finding=row, reason="Usual here", by=None, now=NOW)
    again = finding_reopen(finding=first, by=owner, now=NOW)
    assert (again.state, again.reason, again.precedent) == ("open", "", None)
    assert Precedent.objects.get().observed_count == 1
    finding_reopen(finding=second, by=owner, now=NOW)
    assert Precedent.objects.get().ended_as == "dismissed"
    assert AuditEvent.objects.filter(kind="autonomous_precedent.dismiss", actor=f"user:{owner.pk}").count() == 1


def test_reopening_lowers_the_count_of_the_precedent_that_has_it_now():
    owner = make_user()
    row = make_finding(owner)
    finding_dismiss(finding=row, reason="Usual here", by=None, now=NOW)
    taught = Precedent.objects.get()
    other = Precedent.objects.create(owner=owner, pattern_kind="k", summary="s", summary_hash="s", observed_count=4)
    precedent_merge(precedent=taught, into=other, by=owner, now=NOW)
    finding_reopen(finding=row, by=owner, now=NOW)
    other.refresh_from_db()
    assert other.observed_count == 4

    again = finding_dismiss(finding=row, reason="Usual here", by=None, now=NOW)
    precedent_dismiss(precedent=again.precedent, by=owner, now=NOW)
    finding_reopen(finding=row, by=owner, now=NOW)  # what is over stays as it is


def test_secrets_in_reasons_and_comments_are_masked():
    secret = "sk-ant-api03-" + "a1B2" * 20
    row = finding_dismiss(finding=make_finding(), reason=f"Known {secret}", by=None, now=NOW)
    comment = finding_comment(finding=row, text=f"Use {secret}", by=None, now=NOW)
    assert secret not in row.reason + comment.text + Precedent.objects.get().summary


# --- Assignees and comments ---


def test_finding_is_assigned_to_its_owner_or_to_those_who_may_settle_it():
    row, helper = make_finding(), make_triager()
    owner = row.session.owner
    assert set(assignable_users(owner.pk)) == {owner, helper}
    for stranger in (make_user(), make_user(is_active=False, is_superuser=True)):
        with pytest.raises(Invalid, match="change_finding"):
            finding_assign(finding=row, assignee=stranger, by=owner, now=NOW)
    finding_assign(finding=row, assignee=helper, by=owner, now=NOW)
    finding_assign(finding=row, assignee=helper, by=owner, now=NOW)  # again changes nothing
    assert kinds() == ["assigned"]
    assert finding_assign(finding=row, assignee=None, by=owner, now=NOW).assignee is None


def test_assignee_is_notified_with_a_link_and_without_content():
    owner, helper = make_user(), make_triager()
    document = Document.objects.create(owner=owner, name="lease.txt", media_type="text/plain", digest="d", size=1)
    row = make_finding(owner, severity="warn", position="Term", document=document, content="Secret terms")
    finding_assign(finding=row, assignee=helper, by=owner, now=NOW)
    notice = Notification.objects.get()
    assert (notice.owner, notice.finding, notice.kind) == (helper, row, NoticeKind.FINDING)
    assert notice.title == "Finding assigned to you: warn, Term, lease.txt"
    finding_assign(finding=row, assignee=owner, by=owner, now=NOW)
    assert Notification.objects.count() == 1  # nobody is told what they did themselves


def test_comment_notifies_the_owner_and_the_assignee_but_not_its_author():
    owner, helper, third = make_user(), make_triager(), make_triager()
    row = make_finding(owner, assignee=helper)
    finding_comment(finding=row, text="First", by=owner, now=NOW)
    assert [notice.owner for notice in Notification.objects.all()] == [helper]
    finding_comment(finding=row, text="Second", by=third, now=NOW)
    assert {notice.owner for notice in Notification.objects.order_by("-pk")[:2]} == {owner, helper}
    assert [comment.text for comment in row.comments.order_by("pk")] == ["First", "Second"]


@pytest.mark.parametrize(("text", "error"), [("  \x00 ", "needs text"), ("x" * (COMMENT_CHARS + 1), "shorten it")])
def test_comment_that_cannot_be_kept_is_refused(text, error):
    with pytest.raises(Invalid, match=error):
        finding_comment(finding=make_finding(), text=text, by=None, now=NOW)


# --- Positions and false alarms ---


def test_position_is_stored_only_with_a_playbook_of_the_owner():
    session, other = make_session(), Playbook.objects.create(owner=make_user(), name="Theirs")
    own = Playbook.objects.create(owner=session.owner, name="Own")
    stored = [
        finding_add(owner_id=session.owner_id, session_pk=session.pk, title="t", now=NOW, playbook=named, position="P")
        for named in (str(own.public_id), str(other.public_id), "no id", "")
    ]
    assert [(row.playbook_id, row.position) for row in stored] == [(own.pk, "P"), (None, ""), (None, ""), (None, "")]


def test_false_alarms_are_counted_by_position_with_the_last_reasons():
    owner = make_user()
    playbook = Playbook.objects.create(owner=owner, name="Lease")
    fields = {"playbook": playbook, "owner": owner}
    for number, reason in enumerate(("Old", "Usual", "Usual", "Accepted")):
        row = make_finding(position="Term", **fields)
        finding_dismiss(finding=row, reason=reason, by=None, now=NOW + timedelta(minutes=number))
    make_finding(position="Term", **fields)
    make_finding(position="Law", state="resolved", **fields)
    late = NOW - timedelta(days=ALARM_DAYS + 1)
    make_finding(position="Law", state="dismissed", reason="x", created_at=late, **fields)
    [found] = false_alarms(playbook, now=NOW)
    assert (found.position, found.found, found.dismissed, found.percent) == ("Term", 5, 4, 80)
    assert found.reasons == ("Accepted", "Usual", "Old")


# --- Export ---


def test_export_has_a_line_for_each_finding_and_no_formula():
    owner = make_user()
    make_finding(owner, title="=cmd|' /C calc'!A0", content="two\nlines, “quoted”")
    make_finding(owner, title="Plain")
    lines = list(csv.DictReader(StringIO(findings_export(Finding.objects.order_by("pk"), by=owner, now=NOW))))
    assert tuple(lines[0]) == CSV_COLUMNS
    assert [line["title"] for line in lines] == ["'=cmd|' /C calc'!A0", "Plain"]
    assert lines[0]["content"] == "two\nlines, “quoted”"
    assert lines[0]["link"].endswith(f"/admin/agents/finding/by-id/{lines[0]['id']}/")
    assert AuditEvent.objects.get(kind="finding.exported").details == {"rows": 2}


def test_export_of_others_findings_is_recorded_and_its_statements_are_constant():
    by, owner = make_user(is_superuser=True), make_user()

    def statements():
        with CaptureQueriesContext(connection) as seen:
            findings_export(Finding.objects.all(), by=by, now=NOW)
        return len(seen)

    make_finding(owner)
    statements()  # its first event opens the chain
    few = statements()
    for _ in range(30):
        make_finding(owner)
    assert statements() == few
    assert AuditEvent.objects.filter(kind="row.listed").exists()
