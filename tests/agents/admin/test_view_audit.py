"""Each view of another user's rows leaves one audit event."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import CASCADE
from django.urls import reverse

import agents.admin  # noqa: F401 which registers the pages
from agents.models import (
    Agent,
    AgentSession,
    Approval,
    ContextProposal,
    Document,
    Finding,
    Memory,
    Notification,
    Playbook,
    Precedent,
    Question,
)
from audit.models import AuditEvent
from tests.agents.admin.rows import act_page, kinds_since, last_event, page, sign_in, text_of
from tests.factories import NOW, make_user

pytestmark = pytest.mark.usefixtures("shared_rows")

LOOKS = {"session.viewed", "row.viewed"}


def is_owned(model):
    """Whether deleting a user deletes its rows, by the schema."""
    owners = [field.related_model for field in model._meta.concrete_fields if _cascades(field)]
    return any(owner is User or (owner is not model and is_owned(owner)) for owner in owners)


def _cascades(field):
    return field.is_relation and field.remote_field.on_delete is CASCADE


OWNED = [model for model in admin.site._registry if model._meta.app_label == "agents" and is_owned(model)]


SHOWN = {"Finding": 2}  # its run, and the document around its quote


def looks_since(pk):
    return [kind for kind in kinds_since(pk) if kind in LOOKS]


def test_owned_models_follow_from_the_schema():
    names = {model.__name__ for model in OWNED}

    assert {"AgentSession", "Memory", "Precedent", "Notification", "ContextProposal", "Approval", "ToolCall"} <= names
    assert {"Document", "Project", "Collection", "Playbook", "Trigger", "Agent", "ApiKey", "InferenceLog"} <= names
    assert not names & {"ModelPrice", "Installation", "PromptSkill", "SkillSetting", "Budget", "SuspendedModel"}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("model", OWNED, ids=lambda model: model.__name__)
def test_view_of_another_users_row_is_recorded_once(client, model):
    by = sign_in(client, "viewer")
    row = model._meta.default_manager.order_by("pk").first()
    before = last_event()

    assert client.get(page(model, "change", row.pk)).status_code == 200

    seen = AuditEvent.objects.filter(pk__gt=before)
    assert [(one.kind in LOOKS, one.actor) for one in seen] == [(True, f"user:{by.pk}")] * SHOWN.get(model.__name__, 1)


@pytest.mark.sampled(11)
@pytest.mark.parametrize("model", OWNED, ids=lambda model: model.__name__)
def test_view_of_an_own_row_is_not_recorded(client, shared_rows, model):
    owner = shared_rows.owner
    User.objects.filter(pk=owner.pk).update(is_staff=True, is_superuser=True)
    client.force_login(owner)
    row = model._meta.default_manager.order_by("pk").first()
    before = last_event()

    assert client.get(page(model, "change", row.pk)).status_code == 200

    assert looks_since(before) == []


def test_view_of_a_part_of_a_run_is_a_view_of_the_run(client, shared_rows):
    sign_in(client, "viewer")

    client.get(page(Memory, "change", shared_rows.memory.pk))
    client.get(page(Approval, "change", Approval.objects.get().pk))

    of_memory, of_run = AuditEvent.objects.filter(kind__in=LOOKS).order_by("pk")
    assert (of_memory.subject, of_run.subject) == (
        f"memory:{shared_rows.memory.public_id}",
        f"session:{shared_rows.session.chain}",
    )
    assert of_memory.details == {"resource": "memory", "resource_id": str(shared_rows.memory.public_id)}


@pytest.mark.parametrize(
    ("address", "made_as"),
    [("agents_playbook_export", "playbook"), ("agents_agent_export", "agent"), ("agents_agent_definition", "agent")],
)
def test_export_is_recorded_as_a_view(client, shared_rows, address, made_as):
    sign_in(client)
    before = last_event()

    assert client.get(reverse(f"admin:{address}", args=[getattr(shared_rows, made_as).pk])).status_code == 200

    assert looks_since(before) == ["row.viewed"]


def test_download_is_recorded_as_a_view(client, shared_rows, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    sign_in(client, "viewer")
    before = last_event()

    client.get(reverse("admin:agents_document_bytes", args=[shared_rows.document.pk]))

    assert looks_since(before) == ["row.viewed"]


@pytest.mark.parametrize("name", ["keep", "dismiss", "delete"])
def test_confirm_page_with_content_is_a_view(client, shared_rows, name):
    sign_in(client)
    before = last_event()

    assert "note" in text_of(client.get(act_page(shared_rows.memory, name)))

    assert looks_since(before) == ["row.viewed"]


def test_bulk_confirm_page_is_a_view_of_each_row(client, shared_rows):
    other = Memory.objects.create(owner=make_user(), content="another note")
    sign_in(client)
    before = last_event()

    chosen = {"action": "dismiss", "_selected_action": [shared_rows.memory.pk, other.pk]}
    assert "another note" in text_of(client.post(page(Memory, "changelist"), chosen))

    assert looks_since(before) == ["row.viewed"] * 2


def test_confirm_page_without_content_is_no_view(client, shared_rows):
    sign_in(client)
    before = last_event()

    client.post(page(AgentSession, "changelist"), {"action": "halt", "_selected_action": [shared_rows.session.pk]})

    assert looks_since(before) == []


def test_form_with_errors_is_a_view(client, shared_rows):
    sign_in(client)
    before = last_event()

    answer = client.post(page(Playbook, "change", shared_rows.playbook.pk), {"name": ""})

    assert answer.status_code == 200
    assert looks_since(before) == ["row.viewed"]


def test_token_covers_one_row_and_one_user(client, shared_rows):
    sign_in(client)
    token = client.get(page(AgentSession, "change", shared_rows.session.pk)).context["token"]
    before = last_event()

    client.get(page(AgentSession, "change", shared_rows.session.pk), {"look": token})
    assert looks_since(before) == []
    client.get(page(Agent, "change", shared_rows.agent.pk), {"look": token})
    sign_in(client)
    client.get(page(AgentSession, "change", shared_rows.session.pk), {"look": token})

    assert looks_since(before) == ["row.viewed", "session.viewed"]


# --- Searching and listing ---


def test_search_in_documents_of_others_is_recorded(client, shared_rows):
    by = sign_in(client, "viewer")
    address = reverse("admin:agents_document_search")
    before = last_event()

    client.get(address, {"q": "five", "owner": by.pk})
    client.get(address, {"q": "", "owner": shared_rows.owner.pk})
    assert kinds_since(before) == []
    client.get(address, {"q": "nothing of the kind", "owner": shared_rows.owner.pk})
    assert "five" in text_of(client.get(address, {"q": "five", "owner": shared_rows.owner.pk}))

    for listed in AuditEvent.objects.filter(pk__gt=before):
        assert (listed.kind, listed.details) == (
            "row.listed",
            {"resource": "document", "owner_id": shared_rows.owner.pk},
        )
    assert len(kinds_since(before)) == 2, "that there is nothing of the kind is an answer, too"


@pytest.mark.parametrize(
    "model", [Memory, Precedent, ContextProposal, Question, Finding], ids=lambda model: model.__name__
)
def test_list_with_content_of_others_is_recorded_once(client, shared_rows, model):
    owner = shared_rows.owner
    sign_in(client, "viewer")
    before = last_event()

    assert client.get(page(model, "changelist")).status_code == 200
    [listed] = AuditEvent.objects.filter(pk__gt=before)
    assert (listed.kind, listed.details["resource"]) == ("row.listed", model._meta.model_name)

    User.objects.filter(pk=owner.pk).update(is_staff=True, is_superuser=True)
    client.force_login(owner)
    assert client.get(page(model, "changelist")).status_code == 200
    assert kinds_since(before) == ["row.listed"], "one's own rows"


def test_history_page_is_a_view(client):
    sign_in(client, "viewer")
    before = last_event()

    assert client.get(page(Question, "history", Question.objects.get().pk)).status_code == 200
    assert kinds_since(before) == ["session.viewed"]


# --- Notifications ---


def make_notice(owner, title):
    return Notification.objects.create(owner=owner, title=title, created_at=NOW)


def test_own_notifications_are_listed_by_default(client):
    by = sign_in(client, "viewer")
    make_notice(by, "for me")
    make_notice(make_user(username="somebody"), "for somebody")
    before = last_event()

    mine = text_of(client.get(page(Notification, "changelist")))
    assert ("for me" in mine, "for somebody" in mine) == (True, False)
    assert kinds_since(before) == []
    everybody = text_of(client.get(page(Notification, "changelist"), {"whose": "everybody"}))

    assert "for me" in everybody
    assert "for somebody" in everybody
    assert kinds_since(before) == ["row.listed"]


def test_notifications_of_others_need_the_permission(client):
    notice = make_notice(make_user(), "for somebody")
    client.force_login(make_user(is_staff=True))

    assert client.get(page(Notification, "changelist"), {"whose": "everybody"}).status_code == 403
    assert client.get(page(Notification, "change", notice.pk)).status_code == 403


def test_view_by_others_does_not_mark_as_read(client):
    notice = make_notice(make_user(), "for somebody")
    sign_in(client)
    before = last_event()

    answer = client.get(page(Notification, "change", notice.pk))

    assert "for somebody" in text_of(answer)
    assert answer.context["buttons"] == []
    notice.refresh_from_db()
    assert notice.read_at is None
    assert kinds_since(before) == ["row.viewed"]


def test_notification_of_another_user_cannot_be_marked(client):
    notice = make_notice(make_user(), "for somebody")
    sign_in(client)
    listed = f"{page(Notification, 'changelist')}?whose=everybody"

    assert client.get(act_page(notice, "read")).status_code == 403
    chosen = {"action": "read", "_selected_action": [notice.pk], "confirmed": "1"}
    assert client.post(listed, chosen).status_code == 403

    notice.refresh_from_db()
    assert notice.read_at is None


def test_document_page_is_a_view_and_its_list_is_not(client, shared_rows):
    sign_in(client, "viewer")
    before = last_event()

    client.get(page(Document, "changelist"))
    assert kinds_since(before) == []
    client.get(page(Document, "change", shared_rows.document.pk))

    assert kinds_since(before) == ["row.viewed"]
