"""Findings through the API: whose they are, filters, triage and comments."""

import pytest
from django.contrib.auth.models import Permission

from agents.models import Finding
from audit.models import AuditEvent
from tests.factories import NOW, make_agent, make_session, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db

LIST = "/api/v1/findings"


def make_finding(owner, **fields):
    session = fields.pop("session", None) or make_session(owner=owner)
    return Finding.objects.create(**{"session": session, "title": "Term", "created_at": NOW, **fields})


def make_triager():
    user = make_user()
    user.user_permissions.add(Permission.objects.get(codename="change_finding"))
    return user


def titles(client, query=""):
    return {row["title"] for row in client.get(f"{LIST}{query}").json()["results"]}


def test_own_and_assigned_findings_are_listed_and_views_of_others_recorded():
    owner, helper = make_user(), make_triager()
    make_finding(owner, title="own")
    row = make_finding(owner, title="assigned", assignee=helper)
    assert titles(client_of(owner)) == {"own", "assigned"}
    assert not AuditEvent.objects.filter(kind="row.listed").exists()
    assert titles(client_of(helper)) == {"assigned"}
    assert AuditEvent.objects.filter(kind="row.listed").count() == 1
    assert client_of(helper).get(f"{LIST}/{row.public_id}").status_code == 200
    assert AuditEvent.objects.filter(kind="session.viewed").count() == 1


def test_assignee_who_lost_the_permission_finds_nothing():
    owner, helper = make_user(), make_triager()
    row = make_finding(owner, assignee=helper)
    helper.user_permissions.clear()
    client = client_of(helper)
    assert titles(client) == set()
    assert client.post(f"{LIST}/{row.public_id}/resolve").status_code == 404


def test_those_who_may_settle_findings_reach_only_their_own_and_assigned_ones():
    row = make_finding(make_user())
    for user in (make_triager(), make_user(is_superuser=True)):
        client = client_of(user)
        assert titles(client) == set()
        for act in ("acknowledge", "resolve", "reopen", "dismiss", "assign", "comment"):
            assert client.post(f"{LIST}/{row.public_id}/{act}", {}, format="json").status_code == 404, act


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?state=open", {"a", "note"}),
        ("?state=open&state=resolved", {"a", "b", "note"}),
        ("?severity=critical", {"a"}),
        ("?unassigned=true", {"b", "note"}),
        ("?about_run=true", {"note"}),
        ("?about_run=false", {"a", "b"}),
        ("?created_before=2000-01-01T00:00:00Z", set()),
        ("?created_after=2000-01-01T00:00:00Z", {"a", "b", "note"}),
    ],
)
def test_list_is_filtered(query, expected):
    owner = make_user()
    make_finding(owner, title="a", severity="critical", assignee=owner)
    make_finding(owner, title="b", state="resolved")
    make_finding(owner, title="note", about_run=True)
    assert titles(client_of(owner), query) == expected


def test_list_is_filtered_by_assignee_session_and_agent():
    owner = make_user()
    agent = make_agent(owner=owner)
    row = make_finding(owner, title="a", assignee=owner, session=make_session(owner=owner, agent=agent))
    make_finding(owner, title="b")
    for query in (f"assignee={owner.username}", f"session={row.session.public_id}", f"agent={agent.public_id}"):
        assert titles(client_of(owner), f"?{query}") == {"a"}, query


def test_finding_is_settled_and_answered_as_it_is_then():
    owner = make_user()
    row, client = make_finding(owner), client_of(owner)
    address = f"{LIST}/{row.public_id}"
    answer = client.post(f"{address}/dismiss", {"reason": "Usual here"}, format="json").json()
    assert (answer["state"], answer["reason"], answer["triaged_by"]) == ("dismissed", "Usual here", owner.username)
    assert answer["precedent"]
    assert answer["link"].endswith(f"/admin/agents/finding/by-id/{row.public_id}/")
    refused = client.post(f"{address}/resolve")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_transition")
    assert client.post(f"{address}/reopen").json()["precedent"] is None


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "x" * 501}, {"reason": "x", "teach": "yes"}])
def test_invalid_dismissal_is_refused(body):
    owner = make_user()
    row = make_finding(owner)
    assert client_of(owner).post(f"{LIST}/{row.public_id}/dismiss", body, format="json").status_code == 422
    row.refresh_from_db()
    assert row.state == "open"


def test_unknown_and_unfit_assignees_get_the_same_error():
    owner, helper, stranger = make_user(), make_triager(), make_user(username="stranger")
    row, client = make_finding(owner), client_of(owner)
    address = f"{LIST}/{row.public_id}/assign"
    answers = [client.post(address, {"assignee": name}, format="json") for name in (stranger.username, "who-is-it")]
    assert {answer.status_code for answer in answers} == {422}
    texts = [answer.json()["detail"]["assignee"][0] for answer in answers]
    assert texts[0].replace("stranger", "who-is-it") == texts[1]
    assert client.post(address, {"assignee": helper.username}, format="json").json()["assignee"] == helper.username
    assert client.post(address, {"assignee": None}, format="json").json()["assignee"] is None


def test_comments_are_listed_in_order_with_their_authors():
    owner, helper = make_user(), make_triager()
    row = make_finding(owner, assignee=helper)
    address = f"{LIST}/{row.public_id}"
    for user in (owner, helper):
        sent = client_of(user).post(f"{address}/comment", {"text": f"by {user}"}, format="json")
        assert (sent.status_code, sent.json()["author"]) == (201, user.username)
    results = client_of(owner).get(f"{address}/comments").json()["results"]
    assert [(one["author"], one["text"]) for one in results] == [(str(user), f"by {user}") for user in (owner, helper)]


def test_key_that_only_reads_settles_nothing():
    owner = make_user()
    row = make_finding(owner)
    client = client_of(owner, "read")
    assert client.get(f"{LIST}/{row.public_id}").status_code == 200
    for act in ("acknowledge", "resolve", "reopen", "dismiss", "assign", "comment"):
        assert client.post(f"{LIST}/{row.public_id}/{act}", {}, format="json").status_code == 403, act
