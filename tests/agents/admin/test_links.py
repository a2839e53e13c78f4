"""No page breaks for any role, and no page offers a link that its reader may not follow."""

import pytest
from django.db import transaction
from django.test import Client
from django.urls import reverse

from agents.models import Agent, AgentSession, Budget, Notification, Trigger
from agents.sessions.halts import halt_all_work
from tests.agents.admin.links import PLAIN, closed_links, kind_of, pages_for
from tests.agents.admin.rows import ROLES, page, sign_in
from tests.factories import NOW

pytestmark = pytest.mark.usefixtures("charted")


@pytest.fixture(scope="module")
def readers(everything):
    """A signed-in client for a user of each role, who has a notification."""
    found = {}
    for role in ROLES:
        client = Client()
        user = sign_in(client, role)
        Notification.objects.create(owner=user, session=everything.session, title="notice")
        found[role] = user, client
    return found


@pytest.fixture(scope="module")
def rendered():
    """The addresses that were rendered for somebody."""
    return set()


@pytest.mark.django_db
def test_empty_installation_shows_every_list_and_no_closed_link(client, rendered, some):
    assert closed_links(client, some(pages_for(sign_in(client, "admin")), 9), rendered) == {}


@pytest.mark.sampled(1)
@pytest.mark.django_db
@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_empty_installation_shows_no_closed_link_to_others(client, role, rendered):
    """Lists share their empty state; that of Budget has a link of its own."""
    sign_in(client, role)
    lists = [page(model, "changelist") for model in (Trigger, Budget, Agent)]

    assert closed_links(client, [*(reverse(f"admin:{name}") for name in PLAIN), *lists], rendered) == {}


@pytest.mark.parametrize("role", ROLES)
def test_every_page_opens_and_every_link_on_it(readers, rendered, role, some):
    user, client = readers[role]

    assert closed_links(client, some(pages_for(user), 16, start=ROLES.index(role)), rendered) == {}


def test_links_open_while_everything_is_halted(readers, rendered, everything):
    """The banner is the same on every page."""
    user, client = readers["operator"]
    saved = transaction.savepoint()
    halt_all_work(by=user, reason="incident", now=NOW)
    run = page(AgentSession, "change", everything.session.pk)

    assert closed_links(client, [reverse("admin:index"), reverse("admin:health"), run], rendered) == {}
    assert kind_of(reverse("admin:release")) in rendered
    transaction.savepoint_rollback(saved)
