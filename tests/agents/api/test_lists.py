"""Lists: pages, limits, order, filters and rate limits."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.api import paging
from agents.enums import Outcome, Status
from agents.models import Approval, Notification, Precedent, Project, ToolCall
from audit.models import AuditEvent
from tests.factories import NOW, make_session, make_trigger, make_user

from .conftest import client_of
from .world import make_approval, make_world

pytestmark = pytest.mark.django_db
PROJECTS = "/api/v1/projects"


@pytest.fixture
def many(person):
    Project.objects.bulk_create(Project(owner=person, name=f"{number:03}") for number in range(205))


def names(answer):
    return [row["name"] for row in answer.json()["results"]]


def test_a_page_holds_fifty_rows_newest_first(api, many):
    first = api.get(PROJECTS)
    assert first.json().keys() == {"count", "page", "page_size", "next", "previous", "results"}
    assert names(first) == [f"{number:03}" for number in range(204, 154, -1)]
    assert first.json()["count"] == 205
    assert first.json()["previous"] is None
    assert names(api.get(first.json()["next"])) == [f"{number:03}" for number in range(154, 104, -1)]


def test_page_size_is_clamped(api, many):
    for given, size in [
        ("1", 1),
        ("200", 200),
        ("201", 200),
        ("0", 1),
        ("-7", 1),
        ("9" * 400, 200),
        ("-" + "9" * 400, 1),
        (" 3 ", 3),
    ]:
        answer = api.get(PROJECTS, {"page_size": given})
        assert answer.status_code == 200, given
        assert (answer.json()["page_size"], len(answer.json()["results"])) == (size, size), given


def test_page_number_is_clamped_and_late_pages_are_empty(api, many):
    for given, page in [("0", 1), ("-1", 1), ("99999999999999999999", 1_000_000), ("7", 7)]:
        answer = api.get(PROJECTS, {"page": given})
        assert (answer.status_code, answer.json()["page"]) == (200, page), (given, page)
        assert bool(answer.json()["results"]) == (page == 1), (given, page)


def test_page_that_is_no_number_is_refused(api):
    for name in ["page", "page_size"]:
        for given in ["x", "", "1.5", "1e3", "\x00", "1,2", "--1", "0x10"]:
            answer = api.get(PROJECTS, {name: given})
            assert (answer.status_code, list(answer.json()["detail"])) == (422, [name]), (name, given)


def test_pages_return_every_row_once(api, many):
    seen, address = [], f"{PROJECTS}?page_size=100"
    while address:
        answer = api.get(address)
        seen += names(answer)
        address = answer.json()["next"]
    assert seen == [f"{number:03}" for number in range(204, -1, -1)]


def test_very_many_rows_are_not_all_counted_and_all_pages_are_reached(api, many, monkeypatch):
    monkeypatch.setattr(paging, "MOST_COUNTED", 100)
    counts, address = [], f"{PROJECTS}?page_size=90"
    while address:
        page = api.get(address).json()
        counts.append((page["count"], len(page["results"])))
        address = page["next"]
    assert counts == [(100, 90), (181, 90), (205, 25)]


def test_unknown_parameter_is_refused(api):
    answer = api.get(PROJECTS, {"nmae": "x"})
    assert (answer.status_code, list(answer.json()["detail"])) == (422, ["nmae"])


def test_invalid_filter_value_is_refused(api):
    for address, query in [
        ("sessions", "status=nonsense"),
        ("sessions", "trigger=nonsense"),
        ("sessions", "status=%00"),
        ("notifications", "unread=maybe"),
        ("approvals", "session=1"),
        ("precedents", "kind=" + "x" * 65),
        ("search", "q="),
        ("search", "q=%00"),
        ("search", "q=x&limit=0"),
        ("search", "q=x&limit=9999999999999999999999"),
        ("search", ""),
    ]:
        answer = api.get(f"/api/v1/{address}?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), (address, query)


def test_sessions_are_filtered(api, person):
    trigger = make_trigger(owner=person)
    mine = make_session(owner=person, trigger=trigger)
    make_session(owner=person, status=Status.QUEUED)

    def found(query):
        return [row["id"] for row in api.get(f"/api/v1/sessions?{query}").json()["results"]]

    assert found("status=running") == [str(mine.public_id)]
    assert len(found("status=running&status=queued")) == 2
    assert found(f"trigger={trigger.public_id}") == [str(mine.public_id)]
    assert found(f"agent={uuid4()}") == []


def test_unread_notices_are_filtered(api, person):
    Notification.objects.create(owner=person, title="old", read_at=NOW)
    Notification.objects.create(owner=person, title="new")

    def found(query):
        return [row["title"] for row in api.get(f"/api/v1/notifications{query}").json()["results"]]

    assert found("?unread=true") == ["new"]
    assert found("?unread=false") == ["old"]
    assert found("") == ["new", "old"]


def test_precedents_are_ordered_without_dismissed_ones(api, person):
    def seen(summary, days, **fields):
        at = NOW + timedelta(days=days)
        Precedent.objects.create(
            owner=person, pattern_kind="clause", summary=summary, summary_hash=summary, last_seen_at=at, **fields
        )

    seen("late", 2)
    seen("early", 1)
    seen("gone", 3, dismissed_at=NOW)
    Precedent.objects.create(owner=person, pattern_kind="other", summary="x", summary_hash="x", last_seen_at=NOW)
    answer = api.get("/api/v1/precedents?kind=clause").json()
    assert [row["summary"] for row in answer["results"]] == ["late", "early"]


def test_pending_approvals_come_first_oldest_first(approver):
    session = make_world().waiting
    Approval.objects.all().delete()
    for number, status in enumerate(["rejected", "pending", "approved", "pending"]):
        make_approval(session, call_key=f"k{number}", status=status)
    found = client_of(approver).get("/api/v1/approvals").json()["results"]
    ids = list(Approval.objects.order_by("pk").values_list("public_id", flat=True))
    assert [row["id"] for row in found] == [str(ids[number]) for number in (1, 3, 2, 0)]


@pytest.mark.parametrize("sub", ["findings", "artifacts", "calls"])
def test_lists_inside_a_session_have_pages_too(api, person, sub):
    session = make_world(person).rows["session"]
    answer = api.get(f"/api/v1/sessions/{session.public_id}/{sub}?page_size=1")
    assert answer.json()["page_size"] == 1


# --- Deep pages ---


def test_next_names_the_row_where_its_page_begins(api, many, person):
    first = api.get(PROJECTS, {"page_size": 2}).json()
    Project.objects.create(owner=person, name="added meanwhile")
    second = api.get(first["next"])

    last = Project.objects.get(public_id=first["results"][-1]["id"])
    assert f"cursor=after-{last.pk}" in first["next"]
    assert (second.json()["page"], names(second)) == (2, ["202", "201"])


def test_previous_leads_back_over_the_same_rows(api, many):
    addresses, pages = [f"{PROJECTS}?page_size=90"], []
    while addresses[-1]:
        pages.append(api.get(addresses[-1]))
        addresses.append(pages[-1].json()["next"])
    back = api.get(pages[-1].json()["previous"])
    assert (back.json()["page"], names(back)) == (2, names(pages[1]))
    assert back.json()["next"] == pages[1].json()["next"]
    first = api.get(back.json()["previous"])
    assert (first.json()["previous"], names(first)) == (None, names(pages[0]))


def test_no_row_is_missed_when_those_of_the_page_before_were_deleted(api, many):
    second = api.get(PROJECTS, {"page_size": 2}).json()["next"]
    Project.objects.filter(name__gte="203").delete()
    assert names(api.get(second)) == ["202", "201"]


def test_empty_page_leads_back_to_rows(api, many):
    found = api.get(PROJECTS, {"page": 900, "page_size": 90}).json()
    assert (found["results"], found["next"]) == ([], None)
    assert api.get(found["previous"]).json()["page"] == 3
    lowest = Project.objects.order_by("pk").first()
    found = api.get(PROJECTS, {"page": 900, "cursor": f"after-{lowest.pk}"}).json()
    assert (found["results"], found["next"]) == ([], None)
    assert names(api.get(found["previous"]))


def test_list_in_another_order_takes_no_cursor(approver):
    answer = client_of(approver).get("/api/v1/approvals?cursor=after-1")
    assert (answer.status_code, list(answer.json()["detail"])) == (422, ["cursor"])


def test_rows_beyond_those_counted_are_reached_by_next_alone(api, many, monkeypatch):
    monkeypatch.setattr(paging, "MOST_COUNTED", 100)
    answer = api.get(PROJECTS, {"page": 4})
    assert (answer.status_code, list(answer.json()["detail"])) == (422, ["page"])
    assert "Follow `next`" in answer.json()["detail"]["page"][0]
    Project.objects.filter(name__gte="090").delete()
    assert api.get(PROJECTS, {"page": 4}).json()["results"] == []


def test_deep_page_reads_its_own_rows(api, many):
    row = Project.objects.get(name="010")
    with CaptureQueriesContext(connection) as seen:
        answer = api.get(PROJECTS, {"page": 4000, "page_size": 5, "cursor": f"after-{row.pk}"})
    assert names(answer) == ["009", "008", "007", "006", "005"]
    assert not any("OFFSET" in query["sql"] for query in seen.captured_queries)


def test_cursor_that_is_none_is_refused(api):
    for given in ["", "x", "after-", "beside-1", "after-1x", "after--1", "after-१", f"after-{10**18}"]:
        answer = api.get(PROJECTS, {"cursor": given})
        assert (answer.status_code, list(answer.json()["detail"])) == (422, ["cursor"]), given


@pytest.mark.parametrize(
    "query",
    ["sessions?status=completed", "sessions?result=ok", "events?kind=autonomy:turn_started", "findings?state=open"],
)
def test_filters_by_several_values_do_not_sort_all_rows(api, person, query):
    with CaptureQueriesContext(connection) as seen:
        assert api.get(f"/api/v1/{query}").status_code == 200
    assert not any("DISTINCT" in found["sql"] for found in seen.captured_queries)


@pytest.mark.parametrize("listed", ["collections", "sessions"])
def test_rows_are_counted_without_what_is_shown_of_them(api, person, listed):
    with CaptureQueriesContext(connection) as seen:
        assert api.get(f"/api/v1/{listed}").status_code == 200
    [counting] = [found["sql"] for found in seen.captured_queries if found["sql"].startswith("SELECT COUNT(*) FROM (")]
    assert "agents_attachment" not in counting
    assert "agents_toolcall" not in counting


# --- how often ---


def test_too_many_requests_get_retry_after(api, settings):
    settings.LQOPS_API_RATES = {"read": "2/min", "write": "1/min", "events": "1/min"}
    assert [api.get(PROJECTS).status_code for _ in range(3)] == [200, 200, 429]
    answer = api.get(PROJECTS)
    assert answer.json()["code"] == "throttled"
    assert 1 <= int(answer["Retry-After"]) <= 61
    assert [api.post(PROJECTS, {"name": "x"}, format="json").status_code for _ in range(2)] == [201, 429]


def test_events_have_their_own_rate(api, settings):
    settings.LQOPS_API_RATES = {"read": "9/min", "write": "9/min", "events": "1/min"}
    assert [api.post("/api/v1/triggers/events", {}, format="json").status_code for _ in range(2)] == [200, 429]
    assert api.post(PROJECTS, {"name": "x"}, format="json").status_code == 201


def test_rate_is_per_user_not_per_key(api, person, settings):
    settings.LQOPS_API_RATES = {"read": "1/min", "write": "1/min", "events": "1/min"}
    assert api.get(PROJECTS).status_code == 200
    assert client_of(person).get(PROJECTS).status_code == 429
    assert client_of(make_user()).get(PROJECTS).status_code == 200


@pytest.mark.parametrize("noun", ["approvals", "questions", "tool-calls"])
def test_list_with_other_users_rows_is_recorded_once(noun):
    world, approver = make_world(), make_user(is_superuser=True)
    ToolCall.objects.update(outcome=Outcome.UNKNOWN, settled_at=NOW, unknown_since=NOW)
    listed = AuditEvent.objects.filter(kind="row.listed")

    assert client_of(world.owner).get(f"/api/v1/{noun}").json()["count"]
    assert not listed.exists(), "one's own rows"
    assert client_of(approver).get(f"/api/v1/{noun}").json()["count"]
    assert listed.get().actor.startswith(f"user:{approver.pk}:key:")
