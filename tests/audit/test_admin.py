"""The audit log in the admin: read-only, filtered, and fast at any length."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit import admin as audit_admin
from audit.kinds import KINDS
from audit.models import SYSTEM_CHAIN, AuditEvent, SkillAudit
from audit.recorder import append
from tests.audit.samples import NOW, RUN, record_session, record_skill_call, row, start

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_urls")]
EVENTS = "/admin/audit/auditevent/"
SKILLS = "/admin/audit/skillaudit/"


@pytest.fixture
def viewer(client):
    """Staff that may look at events, and at nothing else."""
    user = User.objects.create_user("anna", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_auditevent"))
    client.force_login(user)
    return client


def skill_call(level="CONTROLLED", name="send"):
    return record_skill_call(
        skill_name=name,
        arguments={"to": "<b>"},
        output="done",
        capability_level=level,
        risk_level=None,
        duration_ms=1,
        now=NOW,
    )


def shown(client, address):
    response = client.get(address)
    assert response.status_code == 200
    return response.context["cl"].result_list, response.content.decode()


def test_events_are_listed_newest_first_as_sentences(admin_client):
    record_session()
    rows, text = shown(admin_client, EVENTS)
    assert [found.pk for found in rows] == sorted((found.pk for found in rows), reverse=True)
    assert "Run ended: completed." in text
    assert f'href="/receipts/{RUN}/"' in text
    assert f'href="/receipts/{SYSTEM_CHAIN}/"' not in text


def test_events_are_filtered_by_declared_kinds(admin_client):
    record_session()
    rows, _ = shown(admin_client, f"{EVENTS}?kind=audit.chain_opened")
    assert [found.kind for found in rows] == ["audit.chain_opened"]
    model_admin = admin.site.get_model_admin(AuditEvent)
    assert [value for value, _ in audit_admin.KindFilter(None, {}, AuditEvent, model_admin).lookup_choices] == list(
        KINDS
    )


def test_events_are_searched_by_exact_chain_in_its_order(admin_client):
    record_session()
    start("other")
    rows, _ = shown(admin_client, f"{EVENTS}?q={RUN}")
    assert [found.seq for found in rows] == [7, 6, 5, 4, 3, 2, 1]
    assert not shown(admin_client, f"{EVENTS}?q={RUN[:-1]}")[0]


def test_search_is_served_by_the_index_of_the_chain(admin_client):
    record_session()
    with CaptureQueriesContext(connection) as queries:
        shown(admin_client, f"{EVENTS}?q={RUN}")
    [listing] = [query["sql"] for query in queries if '"audit_auditevent"."details"' in query["sql"]]
    assert f"\"chain\" = '{RUN}'" in listing.replace('"audit_auditevent".', "")
    assert "UPPER" not in listing


def test_count_stops_at_its_limit(admin_client, monkeypatch):
    record_session()
    monkeypatch.setattr(audit_admin, "COUNTED_ROWS", 5)
    with CaptureQueriesContext(connection) as queries:
        response = admin_client.get(EVENTS)
    assert response.context["cl"].result_count == 5
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"] and "audit_auditevent" in query["sql"]]
    assert len(counts) == 1
    assert "LIMIT 5" in counts[0]


@pytest.mark.parametrize("address", [EVENTS, f"{EVENTS}?kind=audit.chain_opened", f"{EVENTS}?q={RUN}"])
def test_list_queries_do_not_grow_with_rows(admin_client, django_assert_num_queries, address):
    record_session(calls=60)
    # sign-in 2, count, rows, people; on every page: is all work halted or paused, what waits for me
    with django_assert_num_queries(7 if "q=" not in address else 6):
        admin_client.get(address)


def test_columns_cannot_be_sorted_by(admin_client):
    record_session()
    rows, _ = shown(admin_client, f"{EVENTS}?o=1")
    assert rows[0].pk == AuditEvent.objects.latest("id").pk


def test_event_page_is_read_only(viewer):
    record_session()
    address = f"{EVENTS}{row(RUN, 1).pk}/change/"
    text = viewer.get(address).content.decode()
    assert "Run started: five-phase run" in text
    assert row(RUN, 1).hash in text
    assert 'name="_save"' not in text
    assert viewer.post(address, {"actor": "user:666"}).status_code == 403


@pytest.mark.parametrize("model", [AuditEvent, SkillAudit])
def test_adding_changing_and_deleting_are_refused(admin_client, rf, admin_user, model):
    request = rf.get("/")
    request.user = admin_user
    model_admin = admin.site.get_model_admin(model)
    assert model_admin.get_model_perms(request) == {"add": False, "change": False, "delete": False, "view": True}
    assert model_admin.get_actions(request) == {}
    base = f"/admin/audit/{model._meta.model_name}/"
    record_session()
    skill_call()
    pk = model.objects.first().pk
    assert admin_client.post(f"{base}add/", {}).status_code == 403
    assert admin_client.post(f"{base}{pk}/delete/", {"post": "yes"}).status_code == 403
    assert model.objects.filter(pk=pk).exists()


@pytest.mark.parametrize("model", [AuditEvent, SkillAudit])
def test_no_permission_to_change_exists(model):
    found = Permission.objects.filter(content_type__app_label="audit", content_type__model=model._meta.model_name)
    assert [permission.codename for permission in found] == [f"view_{model._meta.model_name}"]


def test_events_and_skill_calls_have_separate_permissions(viewer):
    assert viewer.get(EVENTS).status_code == 200
    assert viewer.get(SKILLS).status_code == 403


def test_staff_without_permission_sees_nothing(client):
    client.force_login(User.objects.create_user("sam", password="x", is_staff=True))
    assert client.get(EVENTS).status_code == 403


def test_skill_calls_are_listed_newest_first_and_escaped(admin_client):
    skill_call(name="first")
    skill_call(name="second")
    rows, text = shown(admin_client, SKILLS)
    assert [found.skill_name for found in rows] == ["second", "first"]
    assert "<b>" not in text.partition("{&quot;to&quot;")[2][:80]


def test_skill_calls_are_filtered_by_level(admin_client):
    skill_call("CONTROLLED", "a")
    skill_call("PRIVILEGED", "b")
    rows, text = shown(admin_client, f"{SKILLS}?level=PRIVILEGED")
    assert [found.skill_name for found in rows] == ["b"]
    assert "level=RESTRICTED" in text


# --- Export ---

EXPORT = f"{EVENTS}export/"


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_audit_log_is_exported_from_its_page(viewer, checkpoint_file, form):
    record_session()
    assert f'href="{EXPORT}"' in viewer.get(EVENTS).content.decode()
    assert "Export the audit log" in viewer.get(EXPORT).content.decode()
    response = viewer.post(EXPORT, {"format": form, "chain": RUN})
    text = response.getvalue().decode()
    assert (response.status_code, "no-store" in response["Cache-Control"]) == (200, True)
    assert response["Content-Disposition"].endswith(f'.{form}"')
    assert (text.count(RUN) > 7, "lqops-audit-export/1" in text.splitlines()[-1]) == (True, True)
    event = AuditEvent.objects.get(kind="audit.exported")
    assert (event.actor, event.details) == (f"user:{User.objects.get().pk}", {"format": form, "chain": RUN})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"format": "xml"}, "xml is not one of the available choices"),
        ({"format": "csv", "chain": "nobody"}, "There is no chain"),
        ({"format": "csv", "since": "yesterday"}, "Enter a valid date/time"),
    ],
)
def test_wrong_choice_is_shown_in_the_form(viewer, checkpoint_file, given, says):
    response = viewer.post(EXPORT, given)
    assert (response.status_code, says in response.content.decode()) == (200, True)
    assert not AuditEvent.objects.exists()


def test_export_without_a_checkpoint_is_refused_in_the_form(viewer, checkpoint_file):
    checkpoint_file.mkdir(parents=True)
    assert "No checkpoint can be written: Is a directory" in viewer.post(EXPORT, {"format": "csv"}).content.decode()


def test_export_needs_the_permission(client, checkpoint_file):
    client.force_login(User.objects.create_user("bob", is_staff=True))
    assert client.get(EXPORT).status_code == client.post(EXPORT, {"format": "csv"}).status_code == 403


def test_list_names_people_and_links_the_runs_of_its_sentences(admin_client):
    anna = User.objects.create_user("anna")
    record_session()
    append(SYSTEM_CHAIN, "people.opted_in", now=NOW, actor=f"user:{anna.pk}", details={"user_id": anna.pk})
    gone = "11111111-2222-3333-4444-555555555555"
    append(SYSTEM_CHAIN, "run.handed_back", now=NOW, details={"child_id": gone, "rest_usd": "1"})
    _, text = shown(admin_client, EVENTS)
    assert "User anna opted in" in text
    assert f'<span title="user:{anna.pk}">anna</span>' in text
    assert f"user:{anna.pk}<" not in text
    assert f'Chain <a class="lq-link lq-code nowrap" href="/receipts/{RUN}/"' in text
    assert f'Run <span title="{gone}">11111111</span> is over' in text
