"""Every page opens for those who may view it, and runtime rows are read-only."""

import re
from datetime import timedelta

import pytest
from django.contrib import admin
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.admin.base import FormAdmin
from agents.admin.home import _SECTIONS
from agents.conf import clock
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    Budget,
    DeclaredModel,
    Finding,
    InferenceLog,
    Notification,
    Precedent,
    ToolCall,
    Trigger,
)
from audit.models import AuditEvent
from tests.agents.admin.links import unrendered
from tests.agents.admin.rows import make_approval, make_call, make_everything, page, sign_in, text_of
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

PAGES = list(admin.site._registry)
OURS = [model for model in PAGES if model._meta.app_label in {"agents", "audit"}]
LONG_TIME = re.compile(r">\s*\d+ \w{3} \d{4},? \d\d:\d\d:\d\d")
RUNTIME = [AgentSession, ToolCall, Approval, InferenceLog, Budget, Finding, Notification, AuditEvent]


def test_the_queue_has_no_pages_of_its_own():
    assert {model._meta.app_label for model in PAGES} == {"agents", "audit", "auth"}


def test_lists_are_titled_as_in_the_sidebar(client):
    sign_in(client)
    known = [one for entries in _SECTIONS.values() for entry in entries for one in entry.pages]
    titles = {one.name: one.title for one in known if one.name.endswith("changelist")}
    for model in PAGES:
        title = titles.pop(f"{model._meta.app_label}_{model._meta.model_name}_changelist", None)
        answer = unrendered(client, page(model, "changelist"))
        assert title in {answer.context_data["title"], None}, model
        assert title is None or model._meta.verbose_name_plural.lower() == title.lower()
    assert titles == {}


def test_lists_show_times_in_one_short_form(client, some):
    make_everything(sign_in(client))
    for model in some([model for model in PAGES if model._meta.app_label != "audit"], 3):
        rows = text_of(client.get(page(model, "changelist"))).partition('id="result_list"')[2]
        assert not LONG_TIME.search(rows), model


def test_lists_can_still_be_sorted_by_a_time(client):
    sign_in(client)
    for number in (1, 2):
        DeclaredModel.objects.create(model=f"m{number}", changed_at=clock() + timedelta(hours=number))
    found = text_of(client.get(page(DeclaredModel, "changelist"), {"o": "-2"}))
    assert "sortable column-changed_at" in found
    assert found.index(">m2<") < found.index(">m1<")


def test_unknown_rows_have_no_page(client):
    sign_in(client)
    for model in OURS:
        assert client.get(page(model, "change", 999_999)).status_code in {302, 404}, model


def test_runtime_rows_are_read_only(client):
    user = sign_in(client)
    make_everything(user)
    for model in RUNTIME:
        row = model._meta.default_manager.order_by("pk").first()
        before = model._meta.default_manager.filter(pk=row.pk).values().get()

        changed = client.post(page(model, "change", row.pk), {"status": "completed", "title": "x"})
        assert changed.status_code == 403, model
        assert client.post(page(model, "delete", row.pk), {"post": "yes"}).status_code in {403, 404}, model

        assert model._meta.default_manager.filter(pk=row.pk).values().get() == before, model


def test_runtime_rows_cannot_be_added(client):
    sign_in(client)
    for model in OURS:
        opens = isinstance(admin.site._registry[model], FormAdmin) and model._meta.model_name != "installation"
        wanted = 200 if opens or model._meta.model_name == "document" else 403

        assert unrendered(client, page(model, "add")).status_code == wanted, model


def test_pages_are_for_staff_only(client):
    address = page(AgentSession, "changelist")
    assert client.get(address).status_code == 302

    client.force_login(make_user())
    assert client.get(address).status_code == 302


def test_history_needs_the_view_permission(client):
    made = make_everything()
    client.force_login(make_user(is_staff=True))

    for name in ("change", "history", "delete"):
        assert client.get(page(AgentSession, name, made.session.pk)).status_code in {302, 403, 404}


def test_search_by_an_invalid_id_finds_nothing(client):
    sign_in(client)
    make_everything()
    for model in (AgentSession, ToolCall, Approval, Finding, InferenceLog):
        answer = client.get(page(model, "changelist"), {"q": "no-id' OR 1=1 --"})
        assert answer.status_code == 200, model


def test_every_filter_choice_opens(client, some):
    sign_in(client)
    make_everything()
    for model in (AgentSession, Approval, Finding, Trigger, Precedent, Notification):
        address = page(model, "changelist")
        listed = unrendered(client, address)
        own = [spec for spec in listed.context_data["cl"].filter_specs if type(spec).__module__.startswith("agents.")]
        assert own
        for spec in own:
            for choice in some(spec.choices(listed.context_data["cl"]), 12, start=1):
                answer = unrendered(client, f"{address}{choice.get('query_string', '')}")
                assert answer.status_code == 200, (model, choice)


def test_pages_have_no_inline_or_foreign_scripts(client):
    sign_in(client)
    answer = client.get(reverse("admin:index"))
    policy = answer.headers["Content-Security-Policy"]

    assert "script-src 'self' 'unsafe-eval'" in policy
    assert "img-src 'self' data:" in policy
    scripts = text_of(answer).split("<script")[1:]
    assert scripts
    assert all(
        script.lstrip().startswith(("src=", "id=")) and " src=" in f" {script.split('>')[0]}" for script in scripts
    )


def test_list_queries_do_not_grow_with_rows(client):
    viewer = sign_in(client)
    counts = []
    make_run(viewer)
    unrendered(client, page(Finding, "changelist"))  # the first view opens a chain of the audit log
    for _ in range(2):
        for _ in range(2):
            make_run(viewer)
        with CaptureQueriesContext(connection) as captured:
            for model in (AgentSession, Approval, ToolCall, Finding, Trigger, Agent, Notification):
                assert client.get(page(model, "changelist")).status_code == 200
        counts.append(len(captured))

    assert counts[0] == counts[1]


def make_run(viewer):
    owner = make_user()
    session = make_session(owner=owner, agent=make_agent(owner=owner), trigger=make_trigger(owner=owner))
    make_call(session)
    make_approval(session)
    Finding.objects.create(session=session, title="finding")
    Notification.objects.create(owner=viewer, session=session, title="notice", kind="approval_waiting")
