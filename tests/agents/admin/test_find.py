"""Finding things: the sidebar and its tabs, the way to a page, and the search."""

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.admin.home import ACTIONS, SEARCHED, TERM_CHARS
from agents.conf import clock
from agents.models import Agent, AgentSession, Approval, Collection, Document, Finding, Question, Trigger
from agents.sessions.pauses import work_pause
from tests.agents.admin.hostile import PAYLOADS, read
from tests.agents.admin.rows import ROLES, act_page, make_document, make_everything, page, sign_in, text_of
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

# Lists that pages of other rows lead to.
ELSEWHERE = {"installation", "declaredmodel", "contextrevision"}


def found(client, term, kind=""):
    results = client.get(reverse("admin:search_results"), {"s": term}).json()["found"]
    return [one["title"] for one in results if not kind or one["kind"] == kind]


def items(client):
    navigation = client.get(reverse("admin:index")).context["sidebar_navigation"]
    return navigation, [item for section in navigation for item in section["items"]]


def marked_in(answer):
    return [item["title"] for part in answer.context["sidebar_navigation"] for item in part["items"] if item["active"]]


# --- The sidebar and its tabs ---


def test_sidebar_has_five_groups_and_at_most_fourteen_entries(client):
    sign_in(client)
    groups, entries = items(client)
    assert len(groups) == 5
    assert len(entries) <= 14


@pytest.mark.sampled(1)
@pytest.mark.parametrize("role", ROLES)
def test_every_list_is_in_the_sidebar_or_a_tab(client, role):
    user = sign_in(client, role)
    opened = {item["link"]: client.get(item["link"]) for item in items(client)[1]}
    tabs = {tab["link"] for answer in opened.values() for tab in answer.context.get("page_tabs") or ()}
    opened |= {link: client.get(link) for link in sorted(tabs - opened.keys())}
    lists = {
        page(model, "changelist")
        for model in admin.site._registry
        if user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")
        and model._meta.model_name not in ELSEWHERE
    }
    plain = {reverse(f"admin:{name}") for name in ("index", "paused", "chats", "charts", "health")}
    assert (lists | plain) - opened.keys() == set()
    assert {answer.status_code for answer in opened.values()} == {200}


@pytest.mark.usefixtures("framed")
def test_entry_of_a_page_is_marked_and_named_in_the_way_to_it(client):
    sign_in(client)
    make_everything()
    answer = client.get(page(Question, "change", Question.objects.get().pk))
    assert marked_in(answer) == ["Approvals"]
    way = text_of(answer).partition("<h1")[2].partition("</h1>")[0]
    links = [page(Approval, "changelist"), page(Question, "changelist")]
    assert [way.index(f'href="{link}"') for link in links] == sorted(way.index(f'href="{link}"') for link in links)
    assert f'href="{reverse("admin:app_list", args=["agents"])}"' not in way
    way = text_of(client.get(page(Approval, "changelist"))).partition("<h1")[2].partition("</h1>")[0]
    assert way.count("Approvals") == 1


def way_to(client, address, **given):
    """The parts of the way to a page, each with its link."""
    heading = text_of(client.get(address, given)).partition("<h1")[2].partition("</h1>")[0]
    parts = re.findall(r'<(?:a href="([^"]*)"|span) class="align-middle inline-block leading-5 [^>]*>([^<]*)<', heading)
    return [(" ".join(title.split()), link) for link, title in parts]


@pytest.mark.usefixtures("framed")
def test_way_to_a_page_ends_with_its_title(client):
    sign_in(client)
    run, runs = make_session(), ("Runs", page(AgentSession, "changelist"))
    assert way_to(client, act_page(run, "halt")) == [runs, ("Halt run", "")]
    assert way_to(client, page(AgentSession, "add")) == [runs, ("Run now", "")]
    assert way_to(client, runs[1]) == [("Runs", "")]
    triggers = ("Triggers", page(Trigger, "changelist"))
    assert way_to(client, page(Trigger, "add")) == [triggers, ("Add trigger", "")]
    assert way_to(client, page(Trigger, "add"), kind="watch") == [triggers, ("Add trigger", "")]
    people = ("People", page(User, "changelist"))
    assert way_to(client, page(User, "invite")) == [people, ("Invite a person", "")]
    assert way_to(client, page(User, "add")) == [people, ("Add user", "")]
    compare = way_to(client, page(AgentSession, "compare", run.pk))
    own = page(AgentSession, "change", run.pk)
    assert [link for _, link in compare] == [runs[1], own, ""]
    assert compare[2][0].startswith("Compare ")
    assert [title for title, _ in way_to(client, own)] == [title for title, _ in compare[:2]]


def test_home_is_marked_on_home_alone(client):
    sign_in(client)
    assert marked_in(client.get(reverse("admin:index"))) == ["Home"]
    assert marked_in(client.get(page(Collection, "changelist"))) == ["Documents"]


# --- The search ---


def test_rows_pages_actions_and_docs_are_found(client):
    user = sign_in(client)
    session = make_session(owner=user, params={"query": "zebra"})
    make_agent(name="Zebra agent")
    make_trigger(name="Zebra trigger")
    make_user(username="zebra", email="z@example.org")
    make_document(user, name="zebra.md")
    Finding.objects.create(session=session, title="Zebra crossing")

    results = client.get(reverse("admin:search_results"), {"s": "zebra"}).json()["found"]
    assert {one["kind"] for one in results} == {"agent", "trigger", "document", "finding", "person", "list", "run"}
    for one in results:
        assert client.get(one["link"]).status_code == 200, one
    assert found(client, "halt ev") == [
        "Halt everything",
        *found(client, "halt ev", "docs"),
        *found(client, "halt ev", "list"),
    ]
    assert "Approval rules" in found(client, "approval", "page")
    assert found(client, "webhook", "docs")
    assert found(client, str(session.public_id)[:8], "run") == [f"Run {str(session.public_id)[:8]}"]


def test_titles_of_others_are_not_found_by_words(client):
    sign_in(client, "admin")
    other = make_user()
    session = make_session(owner=other)
    finding = Finding.objects.create(session=session, title="Secret merger")
    document = make_document(other, name="secret-merger.md")
    make_session(owner=other, params={"document": str(document.public_id)})

    kinds = {one["kind"] for one in client.get(reverse("admin:search_results"), {"s": "secret"}).json()["found"]}
    assert kinds == {"docs", "list", "page"}, "the page Secrets; no title"
    results = client.get(reverse("admin:search_results"), {"s": str(finding.public_id)[:8]}).json()["found"]
    [one] = [one for one in results if one["kind"] == "finding"]
    assert (one["title"], one["detail"]) == (f"Finding {str(finding.public_id)[:8]}", f"of {other}")


def test_own_runs_are_found_by_the_words_of_their_title(client):
    user = sign_in(client, "viewer")
    document = make_document(user, name="zebra-lease.md")
    run = make_session(owner=user, params={"document": str(document.public_id)})
    make_session(owner=user, params={"query": "horse"})

    results = client.get(reverse("admin:search_results"), {"s": "zebra-l"}).json()["found"]

    [one] = [one for one in results if one["kind"] == "run"]
    assert "zebra-lease.md" in one["title"]
    assert (one["link"], one["detail"].split(",")[0]) == (page(AgentSession, "change", run.pk), "running")


def test_runs_are_looked_for_among_the_newest(client, monkeypatch):
    user = sign_in(client)
    for number in range(3):
        make_session(owner=user, params={"query": f"zebra {number}"})
    monkeypatch.setattr("agents.sessions.reads.MOST_SEARCHED", 2)

    assert [title.rstrip("”")[-7:] for title in found(client, "zebra", "run")] == ["zebra 2", "zebra 1"]


def test_pause_resume_and_invite_are_actions(client):
    user = sign_in(client, "admin")
    assert found(client, "everything", "action") == ["Pause everything", "Halt everything"]
    assert found(client, "invite", "action") == ["Invite a person"]
    work_pause(by=user, reason="r", now=clock())
    assert found(client, "everything", "action") == ["Pause everything", "Resume everything", "Halt everything"]
    sign_in(client, "viewer")
    assert found(client, "everything", "action") == found(client, "invite", "action") == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("role", ["", *ROLES])
def test_nothing_is_found_that_the_user_may_not_open(client, role, some):
    user = sign_in(client, role)
    everything = make_everything(user)
    make_document(user, name="mine.md")
    Agent.objects.update(name="mine")
    terms = ["", "mine", "a", "re", str(everything.session.public_id)[:8], user.username]
    for term in terms:
        for one in some(client.get(reverse("admin:search_results"), {"s": term}).json()["found"], 20):
            assert client.get(one["link"]).status_code == 200, (term, one)
    assert bool(found(client, user.username, "person")) == user.has_perm("auth.view_user")


def test_user_without_permissions_finds_only_their_own_page(client):
    user = make_user(is_staff=True)
    client.force_login(user)
    make_everything()
    assert found(client, "") == ["Change password", "Home"]
    assert found(client, "finding") == []


def test_deleted_and_archived_rows_are_left_out(client):
    user = sign_in(client)
    document = make_document(user, name="zebra.md")
    assert found(client, "zebra", "document") == ["zebra.md"]
    Document.objects.filter(pk=document.pk).update(deleted_at=document.created_at)
    assert found(client, "zebra", "document") == []


@pytest.mark.parametrize("term", ["\x00", "%", "_", "x" * 5_000, "' OR 1=1 --", "\u202e", "a\nb", "😀", "  "])
def test_odd_terms_find_nothing_and_break_nothing(client, term):
    user = sign_in(client)
    make_document(user, name="plain.md")
    assert found(client, term, "document") == []
    answer = client.get(reverse("admin:search"), {"s": term})
    assert answer.status_code == 200
    assert len(answer.context["term"]) <= TERM_CHARS


def test_search_page_escapes_what_it_shows(client, some):
    user = sign_in(client)
    for number, payload in enumerate(PAYLOADS):
        make_document(user, name=f"zebra {payload}"[:255], digest=f"{number:064x}")
    for term in some(("zebra", *PAYLOADS), 12):
        reader = read(text_of(client.get(reverse("admin:search"), {"s": term})))
        encoded = [("a", "href", value) for _, _, value in reader.live if value.startswith("/admin/agents/")]
        assert reader.live == encoded
        assert not any("<" in value or '"' in value for _, _, value in encoded)


def test_number_of_statements_does_not_depend_on_the_rows(client):
    user = sign_in(client)

    def statements():
        with CaptureQueriesContext(connection) as asked:
            client.get(reverse("admin:search_results"), {"s": "zebra"})
        return len(asked)

    statements()
    before = statements()
    for number in range(20):
        make_document(user, name=f"zebra {number}.md")
        make_agent(name=f"zebra {number}")
        make_session(owner=user, params={"query": "zebra"})
    assert statements() <= before + 5  # the titles of runs
    assert before <= 2 * len(SEARCHED) + 24
    assert len(found(client, "zebra", "document")) == 5


def test_strangers_do_not_search(client):
    for name in ("search", "search_results"):
        assert client.get(reverse(f"admin:{name}")).status_code == 302


def test_every_action_is_a_page():
    assert all(action.link for action in ACTIONS)
