"""The list of findings, the page where one is settled, and what leads there."""

import csv
from datetime import timedelta
from io import StringIO

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.conf import clock
from agents.knowledge.findings import finding_dismiss
from agents.models import Finding, FindingComment, Notification, Playbook, Precedent
from agents.people.notifications import finding_path, findings_path
from audit.models import AuditEvent
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.links import unrendered
from tests.agents.admin.rows import act_page, make_document, make_playbook, page, sign_in, text_of
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db

LIST = page(Finding, "changelist")


def make_finding(session=None, **fields):
    return Finding.objects.create(**{"session": session or make_session(), "title": "Term: too long", **fields})


def listed(client, **query):
    return {row.title for row in unrendered(client, LIST, query).context_data["cl"].result_list}


# --- The list ---


def test_list_is_the_queue_of_open_findings_without_notes_of_runs(client):
    sign_in(client, "viewer")
    for state in ("open", "acknowledged", "dismissed", "resolved"):
        make_finding(title=state, state=state)
    make_finding(title="note", about_run=True)
    assert listed(client) == {"open"}
    for state in ("acknowledged", "dismissed", "resolved"):
        assert listed(client, state=state) == {state}
    assert listed(client, state="notes") == {"note"}
    assert len(listed(client, state="all")) == 5


def test_list_is_filtered_by_severity_assignee_agent_owner_and_date(client):
    me = sign_in(client)
    other, agent = make_user(is_superuser=True), make_agent(name="Clerk")
    now = clock()
    make_finding(title="mine", severity="critical", assignee=me, created_at=now)
    make_finding(title="theirs", severity="odd", assignee=other, created_at=now - timedelta(days=3))
    make_finding(make_session(agent=agent, owner=agent.owner), title="agent", created_at=now - timedelta(days=40))
    day = f"{now - timedelta(days=3):%Y-%m-%d}"
    expected = {
        "severity": {"critical": {"mine"}, "other": {"theirs"}, "info": {"agent"}},
        "assignee": {"me": {"mine"}, "nobody": {"agent"}, str(other.pk): {"theirs"}},
        "session__agent__id__exact": {str(agent.pk): {"agent"}},
        "session__owner__id__exact": {str(agent.owner_id): {"agent"}},
        "from": {f"{now:%Y-%m-%d}": {"mine"}, day: {"mine", "theirs"}},
        "to": {day: {"theirs", "agent"}},
    }
    for name, values in expected.items():
        for value, titles in values.items():
            assert listed(client, **{name: value}) == titles, (name, value)
    assert listed(client, **{"from": day, "to": day}) == {"theirs"}


@pytest.mark.parametrize("query", [{"from": "x"}, {"to": "2026-02-31"}, {"assignee": "x"}])
def test_odd_filter_leads_back_to_the_list(client, query):
    sign_in(client, "viewer")
    answer = client.get(LIST, query)
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{LIST}?e=1")


def test_list_is_searched_by_short_ids_title_position_document_and_agent(client):
    owner = sign_in(client)
    document = make_document(owner, name="northgate.md")
    agent = make_agent(name="Inbox clerk")
    rows = {
        "northgate": make_finding(title="a", document=document),
        "governing": make_finding(title="b", position="Governing law"),
        "clerk": make_finding(make_session(agent=agent), title="c"),
        "deadline": make_finding(title="The deadline is missing"),
    }
    for typed, row in rows.items():
        assert listed(client, q=typed) == {row.title}, typed
        assert listed(client, q=str(row.public_id)[:8]) == {row.title}
        assert listed(client, q=row.session.chain[:8]) == {row.title}


def test_words_are_looked_for_in_the_newest_rows_only_and_ids_everywhere(client, monkeypatch):
    monkeypatch.setattr("agents.sessions.reads.MOST_SEARCHED", 2)
    sign_in(client)
    old, *_ = [make_finding(title=f"Term {number}") for number in range(3)]
    assert listed(client, q="Term") == {"Term 1", "Term 2"}
    assert listed(client, q=str(old.public_id)[:10]) == {"Term 0"}
    assert listed(client) == {"Term 0", "Term 1", "Term 2"}
    assert listed(client, o="1") == {"Term 1", "Term 2"}


def test_list_is_sorted_by_severity_with_the_most_severe_first(client):
    sign_in(client)
    for severity in ("info", "critical", "odd", "warn"):
        make_finding(severity=severity)
    rows = client.get(LIST, {"o": "2"}).context["cl"].result_list
    assert [row.severity for row in rows] == ["critical", "warn", "info", "odd"]


def test_each_column_sorts_both_ways(client, some):
    rows = {model: [] for model in ("agentsession", "approval", "trigger", "agent")}
    sign_in(client)
    rows["finding"] = [make_finding()]
    rows["agentsession"] = [rows["finding"][0].session]
    orders = [f"{sign}{number}" for number in range(1, 10) for sign in ("", "-")]
    for model, listed_rows in rows.items():
        address = reverse(f"admin:agents_{model}_changelist")
        for order in some(orders, 9):
            found = unrendered(client, address, {"o": order}).context_data["cl"].result_list
            assert list(found) == listed_rows, (model, order)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", ["finding", "agentsession"])
def test_number_of_statements_is_the_same_for_few_and_many_rows(client, model):
    by = sign_in(client)
    address = reverse(f"admin:agents_{model}_changelist")
    document, playbook = make_document(by), make_playbook(by)

    def fill(number):
        for _ in range(number):
            owner = make_user()
            session = make_session(owner=owner, agent=make_agent(owner=owner), started_at=NOW)
            make_finding(session, document=document, playbook=playbook, assignee=by)

    def statements(**query):
        with CaptureQueriesContext(connection) as seen:
            assert client.get(address, query).status_code == 200
        return len(seen)

    fill(4)
    statements()  # the first view opens a chain of the audit log
    few = [statements(), statements(o="-2"), statements(q="Term")]
    fill(36)
    assert [statements(), statements(o="-2"), statements(q="Term")] == few
    assert max(few) <= 25


# --- New rows ---


def test_open_list_learns_how_many_rows_are_newer_within_its_filters(client):
    sign_in(client, "viewer")
    make_finding()
    shown = client.get(LIST, {"severity": "critical"})
    address = shown.context["cl"].newer_address
    assert f'data-newer="{address.replace("&", "&amp;")}"' in text_of(shown)
    assert client.get(address).json() == {"newer": 0, "most": 99}
    make_finding(severity="info")
    make_finding(severity="critical")
    before = AuditEvent.objects.count()
    assert client.get(address).json()["newer"] == 1
    assert AuditEvent.objects.count() == before  # asking shows nothing, so it is no view


def test_count_of_newer_rows_ends_at_its_limit(client, monkeypatch):
    monkeypatch.setattr("agents.admin.base.MOST_NEWER", 2)
    sign_in(client, "viewer")
    session = make_session()
    for _ in range(5):
        make_finding(session)
    assert client.get(page(Finding, "newer", 0)).json() == {"newer": 3, "most": 2}


@pytest.mark.parametrize("model", ["finding", "agentsession", "approval"])
def test_count_of_newer_rows_needs_the_permission_to_view(client, model):
    client.force_login(make_user(is_staff=True))
    assert client.get(reverse(f"admin:agents_{model}_newer", args=[0])).status_code == 403
    client.logout()
    assert client.get(reverse(f"admin:agents_{model}_newer", args=[0])).status_code == 302


# --- Acts ---


def test_button_of_a_row_settles_it_in_one_click_and_leads_back_to_the_list_as_it_was(client):
    sign_in(client, "operator")
    row = make_finding()
    address = f"{act_page(row, 'resolve')}?from=list"
    assert f'formaction="{address}"' in text_of(client.get(LIST))
    shown = f"http://testserver{LIST}?severity=info"
    answer = client.post(address, {"confirmed": "1"}, headers={"referer": shown})
    row.refresh_from_db()
    assert (row.state, answer.headers["Location"]) == ("resolved", f"{LIST}?severity=info")
    elsewhere = {"referer": "https://evil.example/x?y"}
    again = client.post(f"{act_page(row, 'reopen')}?from=list", {"confirmed": "1"}, headers=elsewhere)
    assert again.headers["Location"] == LIST


def test_nothing_happens_on_a_get(client):
    sign_in(client, "operator")
    row = make_finding()
    for name in ("acknowledge", "resolve", "dismiss", "assign", "comment"):
        client.get(f"{act_page(row, name)}?confirmed=1&from=list")
    row.refresh_from_db()
    assert row.state == "open"


def test_viewer_sees_no_buttons_and_may_not_act(client):
    sign_in(client, "viewer")
    row = make_finding()
    assert "formaction" not in text_of(client.get(LIST))
    shown = text_of(client.get(page(Finding, "change", row.pk)))
    assert "<form method" not in shown.partition("lq-grid")[2]
    assert client.post(act_page(row, "resolve"), {"confirmed": "1"}).status_code == 403
    row.refresh_from_db()
    assert row.state == "open"


def test_twenty_findings_are_dismissed_together(client):
    by = sign_in(client, "operator")
    session = make_session()
    rows = [make_finding(session, position="Term") for _ in range(20)]
    chosen = {"action": "dismiss", "_selected_action": [row.pk for row in rows]}
    asked = text_of(client.post(LIST, chosen))
    assert "dismiss-reasons" in asked
    answer = client.post(LIST, {**chosen, "confirmed": "1", "reason": "Usual here", "teach": "on"}, follow=True)
    assert "20 findings dismissed." in text_of(answer)
    assert set(Finding.objects.values_list("state", "reason", "triaged_by")) == {("dismissed", "Usual here", by.pk)}
    assert Precedent.objects.get().observed_count == 20


def test_dismissal_without_a_reason_asks_again(client):
    sign_in(client, "operator")
    row = make_finding()
    answer = client.post(act_page(row, "dismiss"), {"confirmed": "1", "reason": " "})
    assert "This field is required" in text_of(answer)
    row.refresh_from_db()
    assert row.state == "open"


def test_stale_page_says_what_was_done_meanwhile(client):
    sign_in(client, "operator")
    row = make_finding(state="resolved")
    answer = text_of(client.post(act_page(row, "dismiss"), {"confirmed": "1", "reason": "x"}))
    assert "is resolved: reopen it before it can be dismissed" in answer


def test_only_those_who_may_settle_a_finding_are_offered_as_assignees(client):
    by = sign_in(client, "operator")
    row, stranger = make_finding(), make_user(is_staff=True)
    offered = text_of(client.get(page(Finding, "change", row.pk)))
    assert f'<option value="{by.pk}"' in offered
    assert f'<option value="{row.session.owner_id}"' in offered
    assert f'<option value="{stranger.pk}"' not in offered
    client.post(act_page(row, "assign"), {"confirmed": "1", "assignee": stranger.pk})
    row.refresh_from_db()
    assert row.assignee is None


# --- The page ---


def test_page_shows_the_quote_its_document_the_comments_and_the_next_open_finding(client):
    sign_in(client, "operator")
    session = make_session()
    document = make_document(session.owner)
    row = make_finding(
        session, document=document, quote="five years", quote_start=12, quote_end=22, quote_check="verified"
    )
    following = make_finding(session)
    FindingComment.objects.create(finding=row, author=session.owner, text="Looks right")
    shown = text_of(client.get(page(Finding, "change", row.pk)))
    for words in ("five years", "Quote verified", f"#finding-{row.pk}", "Looks right", session.owner.username):
        assert words in shown, words
    assert page(Finding, "change", following.pk) in shown


def test_page_shows_the_quote_in_its_document(client):
    user = sign_in(client, "operator")
    session = make_session()
    text = "a" * 1000 + "\u202efive years" + "z" * 1000
    document = make_document(session.owner, text=text)
    row = make_finding(session, document=document, quote="five years", quote_start=1001, quote_end=1011)

    answer = client.get(page(Finding, "change", row.pk))
    shown = text_of(answer).partition('id="around-quote"')[2].partition("</section>")[0]

    assert f"…{'a' * 399}⟨U+202E⟩<mark>five years</mark>{'z' * 400}</div>" in shown
    assert f"?finding={row.pk}#finding-{row.pk}" in shown
    assert AuditEvent.objects.filter(actor=f"user:{user.pk}", kind="row.viewed").exists()


@pytest.mark.parametrize(("start", "end"), [(None, None), (5000, 5010), (10, 5)])
def test_quote_that_is_not_in_the_document_has_no_surroundings(client, start, end):
    sign_in(client)
    session = make_session()
    row = make_finding(session, document=make_document(session.owner), quote="x", quote_start=start, quote_end=end)
    assert "around-quote" not in text_of(client.get(page(Finding, "change", row.pk)))


def test_very_long_quote_is_cut(client, monkeypatch):
    monkeypatch.setattr("agents.admin.results.QUOTE_CHARS", 5)
    sign_in(client)
    session = make_session()
    row = make_finding(
        session, document=make_document(session.owner, text="one two three"), quote="x", quote_start=0, quote_end=13
    )
    shown = text_of(client.get(page(Finding, "change", row.pk)))
    assert "<mark>one t</mark>" in shown
    assert "Cut here; the quote is longer." in shown


def test_id_and_link_of_a_finding_can_be_copied(client):
    sign_in(client)
    row = make_finding()
    shown = text_of(client.get(page(Finding, "change", row.pk)))
    assert f"http://testserver{finding_path(row)}</span><button" in shown
    assert f"{row.public_id}</span><button" in shown


def test_link_by_public_id_leads_to_the_page(client):
    row = make_finding()
    assert client.get(finding_path(row)).headers["Location"].startswith(reverse("admin:login"))
    sign_in(client, "viewer")
    assert client.get(finding_path(row)).headers["Location"] == page(Finding, "change", row.pk)
    assert client.get(finding_path(Finding())).status_code == 404
    assert findings_path(row.session).startswith(LIST)


def test_notification_leads_to_the_finding_or_to_those_of_its_run(client):
    by = sign_in(client, "viewer")
    row = make_finding()
    about = Notification.objects.create(owner=by, session=row.session, finding=row, title="Finding assigned to you")
    of_run = Notification.objects.create(owner=by, session=row.session, title="Run completed: 1 finding")
    assert page(Finding, "change", row.pk) in text_of(client.get(page(Notification, "change", about.pk)))
    shown = text_of(client.get(page(Notification, "change", of_run.pk)))
    assert f"{LIST}?q={row.session.chain}" in shown
    assert "Review 1 finding<" in shown


def test_playbook_shows_its_author_the_false_alarms(client):
    owner = sign_in(client, "operator")
    playbook = make_playbook(owner)
    assert "False alarms" not in text_of(client.get(page(Playbook, "change", playbook.pk)))
    for _ in range(2):
        row = make_finding(make_session(owner=owner), playbook=playbook, position="Term", created_at=clock())
    finding_dismiss(finding=row, reason="The wording says <b>the same</b>", by=owner, now=clock())
    shown = text_of(client.get(page(Playbook, "change", playbook.pk)))
    assert "False alarms" in shown
    assert "The wording says &lt;b&gt;the same&lt;/b&gt;" in shown
    assert "(50 %)" in shown


def test_hostile_reasons_and_comments_stay_text(client, some):
    owner = sign_in(client)
    playbook = make_playbook(owner)
    for payload in some(PAYLOADS[::6], 6):
        row = make_finding(
            make_session(owner=owner),
            title=payload[:300],
            position=payload[:200],
            playbook=playbook,
            created_at=clock(),
        )
        FindingComment.objects.create(finding=row, text=payload)
        finding_dismiss(finding=row, reason=payload, by=owner, now=clock())
        for address in (page(Finding, "change", row.pk), act_page(row, "reopen"), f"{LIST}?state=all"):
            found = read(text_of(client.get(address)))
            assert found.live == [], (payload, address)
            assert found.seen, address
    assert read(text_of(client.get(page(Playbook, "change", playbook.pk)))).live == []


# --- Export ---


def test_export_has_the_rows_of_the_list_as_it_is_filtered(client):
    sign_in(client, "viewer")
    for severity in ("critical", "info"):
        make_finding(severity=severity)
    make_finding(severity="critical", state="resolved")
    shown = text_of(client.get(LIST, {"severity": "critical"}))
    assert f"{page(Finding, 'export')}?severity=critical" in shown
    answer = client.get(page(Finding, "export"), {"severity": "critical"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert [line["severity"] for line in csv.DictReader(StringIO(text_of(answer)))] == ["critical"]
    client.force_login(make_user(is_staff=True))
    assert client.get(page(Finding, "export")).status_code == 403
