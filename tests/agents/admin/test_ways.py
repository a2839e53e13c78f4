"""No page breaks for any role, and no page leads where its reader may not go: a button that answers 403 is wrong."""

import re
from html import unescape

import pytest
from django.contrib import admin
from django.urls import reverse

import agents.admin  # noqa: F401 which registers the pages
from agents.enums import ApprovalStatus
from agents.models import AgentSession, Approval, Message
from agents.sessions.halts import organisation_halt
from tests.agents.admin.rows import ROLES, make_approval, make_everything, page, sign_in, text_of
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db

LINK = re.compile(r'href="(/[^"#]*)')
FILES = ("/static/", "/admin/logout/", "/favicon")
PLAIN = ("index", "chats", "health", "ask")


def links_of(answer):
    found = {unescape(link) for link in LINK.findall(text_of(answer))}
    return {link for link in found if not link.startswith(FILES) and not link.endswith("/bytes/")}  # rows without files


def pages_for(request_user):
    """Home and its like, every list, and the page of one row of each kind that the person may view."""
    yield from (reverse(f"admin:{name}") for name in PLAIN)
    for model in admin.site._registry:
        label = f"{model._meta.app_label}.view_{model._meta.model_name}"
        if not request_user.has_perm(label):
            continue
        yield page(model, "changelist")
        row = model._meta.default_manager.order_by("pk").first()
        if row is not None:
            yield page(model, "change", row.pk)


@pytest.mark.parametrize(("role", "halted"), [*((role, False) for role in ROLES), ("operator", True)])
def test_every_way_that_a_page_shows_is_open_to_its_reader(client, role, halted):
    user = sign_in(client, role)
    make_everything(user)
    if halted:
        organisation_halt(by=user, reason="incident", now=NOW)
    seen = {}
    for address in pages_for(user):
        answer = client.get(address)
        assert answer.status_code == 200, address
        for link in links_of(answer):
            seen.setdefault(link, address)

    closed = {link: start for link, start in seen.items() if client.get(link).status_code not in {200, 302}}

    assert closed == {}


@pytest.mark.parametrize("role", ROLES)
def test_an_empty_installation_shows_no_closed_way_either(client, role):
    user = sign_in(client, role)
    seen = {link for address in pages_for(user) for link in links_of(client.get(address))}

    assert {link for link in seen if client.get(link).status_code not in {200, 302}} == set()


def test_a_goal_shows_what_it_found_and_what_happened_before_what_was_said(client):
    session = make_session(owner=sign_in(client), params={"goal": "Find every lease"})
    Message.objects.create(session=session, seq=1, role="assistant", content="A long thought.", created_at=NOW)

    found = text_of(client.get(page(AgentSession, "change", session.pk)))

    places = [found.index(words) for words in ("charged", "<h2>Findings", "<h2>Timeline", "A long thought.")]
    assert places == sorted(places)
    assert "<details" in found[places[2] : places[3]]


@pytest.mark.parametrize(("role", "offered"), [("approver", 1), ("viewer", 0)])
def test_who_may_decide_finds_the_way_to_it_in_each_row_that_waits(client, role, offered):
    sign_in(client, role)
    make_approval(action="waits")
    make_approval(action="decided", status=ApprovalStatus.REJECTED)
    assert text_of(client.get(page(Approval, "changelist"), {"queue": "all"})).count(">Decide</span>") == offered
