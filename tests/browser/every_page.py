"""The addresses of all pages of an installation, told by a process of it: tests open each of them in the browser."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import reverse

from agents.admin.base import DetailAdmin
from agents.enums import Mode
from agents.models import Agent, AgentSession, Document
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.agents.admin.links import PLAIN
from tests.agents.admin.rows import act_page, page
from tests.browser.product import Product, printed_by

MORE = ("halt_everything", "pause_everything", "password_change", "auth_user_invite", "agents_agent_import_yaml",
        "agents_playbook_import_yaml", "agents_finding_views")  # fmt: skip
ACCOUNT = ("mfa_index", "mfa_activate_totp", "usersessions_list", "account_logout")
LEAST = 100  # of addresses: an empty table would pass every test of pages
PARTS = 8  # tests that open all pages have so many parts, of which one is in the sample


def templates_of(product: Product, query: str = "a") -> dict[str, str]:
    """The address of every kind of page, each with its template; pages with a search look for these words."""
    found: dict[str, str] = json.loads(
        printed_by(product, f"from tests.browser.every_page import print_all; print_all({query!r})")
    )
    assert len(found) > LEAST
    return found


def print_all(query: str) -> None:
    search = urlencode({"q": query})
    single = [*_pages_without_rows(search), *_pages_of_single_rows(search)]
    print(json.dumps({address: address for address in single} | dict(_pages_of_rows())))


def _pages_without_rows(search: str) -> Iterator[str]:
    yield from (reverse(f"admin:{name}") for name in (*PLAIN, *MORE))
    yield from map(reverse, ACCOUNT)
    yield reverse("admin:manual", args=["operating"])
    yield from (f"{reverse(f'admin:{name}')}?{search}" for name in ("search", "agents_document_search"))


def _pages_of_rows() -> Iterator[tuple[str, str]]:
    """Every list and form, and the page of the newest row of each kind with the first of its acts; with templates."""
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="admin")
    for model, registered in admin.site._registry.items():
        yield page(model, "changelist"), f"list {registered.list_before_template}"
        if registered.has_add_permission(request):
            yield page(model, "add"), str(registered.add_form_template)
        row = model._meta.default_manager.order_by("-pk").first()
        if row is not None:
            yield page(model, "change", row.pk), str(registered.change_form_template)
            acts = registered.row_actions if isinstance(registered, DetailAdmin) else ()
            yield from ((act_page(row, act.name), "act") for act in acts[:1])


def _pages_of_single_rows(search: str) -> Iterator[str]:
    """Of the newest run of each mode, of the run with the newest event, and further pages of the newest rows."""
    for mode in AgentSession.objects.order_by().values_list("mode", flat=True).distinct():
        yield page(AgentSession, "change", _newest(AgentSession.objects.filter(mode=mode)).pk)
    event = _newest(AuditEvent.objects.exclude(chain=SYSTEM_CHAIN))
    session = AgentSession.objects.get(public_id=event.chain)
    yield reverse("audit:receipt", args=[session.public_id])
    yield page(AgentSession, "compare", session.pk)
    yield page(AgentSession, "history", session.pk)
    chat = _newest(AgentSession.objects.filter(mode=Mode.CHAT))
    yield reverse("admin:chat", args=[chat.params["chat"]])
    yield page(Agent, "definition", _newest(Agent.objects).pk)
    yield f"{page(Document, 'change', _newest(Document.objects).pk)}?{search}"


def _newest(rows: Any) -> Any:
    return rows.order_by("-pk")[0]
