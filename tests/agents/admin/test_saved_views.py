"""Saved views in the lists of runs, findings and approvals."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import AgentSession, Approval, Finding, SavedView
from tests.agents.admin.rows import kinds_since, last_event, make_approval, page, sign_in, text_of
from tests.factories import make_session, make_user

pytestmark = pytest.mark.django_db

LISTS = [AgentSession, Finding, Approval]


def save(client, model, query="", **more):
    return client.post(f"{page(model, 'views')}?{query}", {"name": "Mine", **more})


@pytest.mark.parametrize("model", LISTS)
def test_view_is_saved_from_the_list_and_counted(client, model):
    user, before = sign_in(client, "viewer"), last_event()
    session = make_session(owner=user)
    Finding.objects.create(session=session, title="critical one", severity="critical")
    make_approval(session)
    query = f"q={session.public_id}"

    found = text_of(client.get(page(model, "changelist"), {"q": str(session.public_id), "p": "0"}))
    assert f'href="{page(model, "views")}?{query}">Save as view' in found
    answer = save(client, model, f"{query}&p=3&e=1")

    assert answer.url == f"{page(model, 'changelist')}?{query}"
    view = SavedView.objects.get()
    assert (view.owner, view.query, view.is_shared, view.list_name) == (user, query, False, model._meta.model_name)
    assert "view.saved" in kinds_since(before)
    listed = text_of(client.get(answer.url))
    assert f'href="?{query}" aria-current="true"' in listed
    assert client.get(page(model, "view_counts")).json() == {str(view.pk): "1"}


def test_shared_view_counts_what_each_person_may_see(client):
    owner = make_user()
    SavedView.objects.create(owner=owner, list_name="finding", name="Theirs", query="state=all")
    shared = SavedView.objects.create(
        owner=owner, list_name="finding", name="Ours <b>", query="state=all", is_shared=True
    )
    sign_in(client, "viewer")
    found = text_of(client.get(page(Finding, "changelist")))
    assert "Ours &lt;b&gt;" in found
    assert f"Shared by {owner}" in found
    assert "Theirs" not in found
    assert client.get(page(Finding, "view_counts")).json() == {str(shared.pk): "0"}


def test_counting_stops_at_a_limit_and_skips_unknown_filters(client):
    user = sign_in(client)
    session = make_session()
    Finding.objects.bulk_create(Finding(session=session, title="f") for _ in range(120))
    made = [
        SavedView.objects.create(owner=user, list_name="finding", name=name, query=query).pk
        for name, query in (("all", ""), ("gone", "no_such__field=1"), ("odd", "from=never"))
    ]
    counts = client.get(page(Finding, "view_counts")).json()
    assert [counts[str(pk)] for pk in made] == ["99+", "", ""]


def test_list_with_views_asks_a_fixed_number_of_statements(client):
    user = sign_in(client)
    SavedView.objects.create(owner=user, list_name="finding", name="one", query="state=all")
    client.get(page(Finding, "changelist"))
    with CaptureQueriesContext(connection) as few:
        client.get(page(Finding, "changelist"))
    for number in range(15):
        SavedView.objects.create(owner=user, list_name="finding", name=f"v{number}", query="state=all")
    with CaptureQueriesContext(connection) as many:
        client.get(page(Finding, "changelist"))
    assert len(many) == len(few)


def test_view_is_deleted_by_its_owner_alone(client):
    user = sign_in(client, "operator")
    other = make_user()
    theirs = SavedView.objects.create(owner=other, list_name="finding", name="theirs", is_shared=True)
    hidden = SavedView.objects.create(owner=other, list_name="finding", name="hidden")
    own = SavedView.objects.create(owner=user, list_name="finding", name="own")
    address = page(Finding, "views")
    assert text_of(client.get(address)).count('name="delete"') == 1
    assert [client.post(address, {"delete": pk}).status_code for pk in (hidden.pk, "x", "9" * 30)] == [404] * 3
    assert client.post(address, {"delete": theirs.pk}).status_code == 404
    assert client.post(address, {"delete": own.pk}).status_code == 302
    assert set(SavedView.objects.values_list("name", flat=True)) == {"theirs", "hidden"}


def test_unnamed_view_is_explained(client):
    sign_in(client)
    answer = save(client, Finding, name="\u200b")
    assert "Give the view a name." in text_of(answer)
    assert not SavedView.objects.exists()


def test_views_need_the_permission_to_view_the_list(client):
    client.force_login(make_user(is_staff=True))
    for name in ("views", "view_counts"):
        assert client.get(page(Finding, name)).status_code == 403
    assert save(client, Finding).status_code == 403
