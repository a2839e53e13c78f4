"""The addresses of all pages of an installation, told by a process of it: tests open each of them in the browser."""

import json
from collections.abc import Iterator

from django.contrib import admin
from django.contrib.auth.models import User
from django.test import RequestFactory
from django.urls import reverse

from agents.admin.base import DetailAdmin
from agents.models import AgentSession
from audit.models import SYSTEM_CHAIN, AuditEvent
from tests.agents.admin.links import PLAIN
from tests.agents.admin.rows import act_page, page
from tests.browser.product import Product
from tests.lqops.processes import run_python

MORE = ("halt_everything", "pause_everything", "password_change", "auth_user_invite", "agents_agent_import_yaml",
        "agents_playbook_import_yaml", "agents_document_search", "agents_finding_views")  # fmt: skip
ACCOUNT = ("mfa_index", "mfa_activate_totp", "usersessions_list", "account_logout")


def told_by(product: Product, code: str) -> str:
    """What a process of the installation prints."""
    env = {**product.env, "DJANGO_SETTINGS_MODULE": "lqops.settings"}
    done = run_python(f"import django; django.setup()\n{code}", env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def addresses_of(product: Product) -> list[str]:
    return json.loads(told_by(product, "from tests.browser.every_page import print_all; print_all()"))


def print_all() -> None:
    print(json.dumps([*_pages_without_rows(), *_pages_of_rows(), *_pages_of_a_run()]))


def _pages_without_rows() -> Iterator[str]:
    yield from (reverse(f"admin:{name}") for name in (*PLAIN, *MORE))
    yield from map(reverse, ACCOUNT)
    yield reverse("admin:manual", args=["operating"])
    yield f"{reverse('admin:search')}?q=a"


def _pages_of_rows() -> Iterator[str]:
    """Every list and form, and the page of the newest row of each kind with the first of its acts."""
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="admin")
    for model, registered in admin.site._registry.items():
        yield page(model, "changelist")
        if registered.has_add_permission(request):
            yield page(model, "add")
        row = model._meta.default_manager.order_by("-pk").first()
        if row is not None:
            yield page(model, "change", row.pk)
            acts = registered.row_actions if isinstance(registered, DetailAdmin) else ()
            yield from (act_page(row, act.name) for act in acts[:1])


def _pages_of_a_run() -> Iterator[str]:
    """Of the run with the newest event."""
    event = AuditEvent.objects.exclude(chain=SYSTEM_CHAIN).order_by("-pk").first()
    assert event
    yield reverse("audit:receipt", args=[event.chain])
    session = AgentSession.objects.get(public_id=event.chain)
    yield reverse("admin:agents_agentsession_compare", args=[session.pk])
    yield page(AgentSession, "history", session.pk)
