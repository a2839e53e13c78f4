"""A page that shows old values does not undo what somebody else has saved since."""

import html
import json
import re

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.admin.people import grantable
from agents.conf import clock
from agents.models import Agent, DeclaredModel, Playbook, Project, Trigger
from tests.agents.admin.rows import make_playbook, page, sign_in, text_of
from tests.factories import make_agent, make_project, make_trigger, make_user

pytestmark = pytest.mark.django_db

OVERTAKEN = "Changed since you opened this page"


def as_shown(client, url):
    """Return what a browser would send of a form that nobody touched."""
    answer = client.get(url)
    form = answer.context["form"]
    assert f'name="_seen" value="{html.escape(answer.context["seen"])}"' in text_of(answer)
    rows = form.row_forms
    forms = [form, *rows, rows.management_form] if rows else [form]
    shown = {one.add_prefix(name): one[name] for one in forms for name in one.fields}
    values = {name: field.field.prepare_value(field.value()) for name, field in shown.items()}
    sent = {name: "on" if value is True else value for name, value in values.items() if value not in {None, False}}
    return {**sent, "_seen": answer.context["seen"]}


@pytest.fixture
def overtaken(client):
    """An agent whose mode was changed since its page was opened, the page, and its form as it was shown."""
    sign_in(client)
    agent = make_agent(name="Night watch", mode="auto")
    url = page(Agent, "change", agent.pk)
    opened = as_shown(client, url)
    Agent.objects.filter(pk=agent.pk).update(mode="manual")
    return agent, url, opened


def noted_on(answer):
    return html.unescape(re.search(r'name="_seen" value="([^"]*)"', text_of(answer))[1])


def test_value_that_somebody_else_set_is_not_set_back(client, overtaken):
    agent, url, opened = overtaken

    answer = client.post(url, {**opened, "name": "Day watch"})

    assert f"{OVERTAKEN}: Mode (now Manual). Nothing was saved." in text_of(answer)
    agent.refresh_from_db()
    assert (agent.name, agent.mode) == ("Night watch", "manual")


def test_saved_again_it_replaces_the_other_value(client, overtaken):
    agent, url, opened = overtaken
    told = client.post(url, {**opened, "mode": "semi"})
    noted = noted_on(told)

    answer = client.post(url, {**opened, "mode": "semi", "_seen": noted})

    assert answer.status_code == 302
    agent.refresh_from_db()
    assert agent.mode == "semi"


def test_page_that_is_shown_again_for_an_error_still_knows_what_it_showed_first(client, overtaken):
    _, url, opened = overtaken
    again = client.post(url, {**opened, "max_cost_per_day_usd": "much"})
    noted = noted_on(again)

    answer = client.post(url, {**opened, "max_cost_per_day_usd": "2", "_seen": noted})

    assert noted == opened["_seen"]
    assert OVERTAKEN in text_of(answer)


def test_change_of_something_else_or_to_the_same_value_is_no_conflict(client, overtaken):
    agent, url, opened = overtaken

    answer = client.post(url, {**opened, "name": "Day watch", "mode": "manual"})

    assert answer.status_code == 302
    agent.refresh_from_db()
    assert (agent.name, agent.mode) == ("Day watch", "manual")


def test_cap_that_somebody_else_set_stays(client):
    sign_in(client)
    trigger = make_trigger(name="Inbox")
    url = page(Trigger, "change", trigger.pk)
    opened = as_shown(client, url)
    Trigger.objects.filter(pk=trigger.pk).update(max_cost_per_day_usd=2)

    answer = client.post(url, {**opened, "name": "Outbox"})

    assert f"{OVERTAKEN}: Cap per day (USD) (now 2" in text_of(answer)
    trigger.refresh_from_db()
    assert (trigger.name, trigger.max_cost_per_day_usd) == ("Inbox", 2)


def test_values_are_told_as_the_page_shows_them(client):
    user = sign_in(client)
    first, second = make_agent(owner=user, name="First"), make_agent(owner=user, name="Sec\u202eond")
    trigger = make_trigger(owner=user, agent=first, enabled=True)
    url = page(Trigger, "change", trigger.pk)
    opened = as_shown(client, url)
    Trigger.objects.filter(pk=trigger.pk).update(agent=second, enabled=False)

    told = text_of(client.post(url, {**opened, "name": "Other"}))

    assert "Enabled (now off)" in told
    assert "Agent (now Sec⟨U+202E⟩ond" in told


def test_positions_of_a_playbook_and_a_long_text_are_named_without_their_value(client):
    user = sign_in(client)
    playbook = make_playbook(user, "NDA")
    url = page(Playbook, "change", playbook.pk)
    opened = as_shown(client, url)
    playbook.positions.update(guidance="Ask legal.")
    project = make_project(owner=user, context_md="old " * 40)
    of_project = page(Project, "change", project.pk)
    shown = as_shown(client, of_project)
    Project.objects.filter(pk=project.pk).update(context_md="new " * 40)

    assert f"{OVERTAKEN}: Positions. " in text_of(client.post(url, {**opened, "name": "Other"}))
    assert f"{OVERTAKEN}: Context. " in text_of(client.post(of_project, {**shown, "name": "Other"}))


def test_request_fields_of_a_model_that_somebody_else_set_stay(client, settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "big": {**settings.LQOPS_MODELS["offline"]}}
    sign_in(client)
    row = DeclaredModel.objects.create(model="big", settings={"extra": {"top_k": 3}}, changed_at=clock())
    url = page(DeclaredModel, "change", row.pk)
    opened = as_shown(client, url)
    DeclaredModel.objects.update(settings={"extra": {"top_k": 4}})

    answer = client.post(url, {**opened, "context_window": "9000"})

    assert f"{OVERTAKEN}: Further request fields. Nothing was saved." in text_of(answer)
    row.refresh_from_db()
    assert row.settings == {"extra": {"top_k": 4}}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("noted", ["", "no JSON", "[]", json.dumps({"mode": 7}), json.dumps({"else": "1"})])
def test_note_that_was_tampered_with_breaks_nothing(client, noted):
    sign_in(client)
    agent = make_agent(mode="auto")
    url = page(Agent, "change", agent.pk)
    opened = as_shown(client, url)

    answer = client.post(url, {**opened, "name": "Day watch", "_seen": noted})

    assert answer.status_code == 302


# --- People and roles, whose forms Django saves ---


def person_opened(client, **fields):
    """Return a person with two roles, their page, and its form as it was shown."""
    person = make_user(username="carla", **fields)
    person.groups.set(Group.objects.filter(name__in=["viewer", "approver"]))
    url = page(User, "change", person.pk)
    groups = [group.pk for group in person.groups.all()]
    return person, url, {"username": "carla", "is_active": "on", "groups": groups, "_seen": noted_on(client.get(url))}


def roles_of(person):
    return sorted(person.groups.values_list("name", flat=True))


def test_role_that_somebody_else_took_away_does_not_come_back(client):
    sign_in(client)
    person, url, opened = person_opened(client)
    person.groups.remove(Group.objects.get(name="approver"))

    told = client.post(url, {**opened, "first_name": "Carla"})

    assert f"{OVERTAKEN}: Roles (now viewer). Nothing was saved." in text_of(told)
    person.refresh_from_db()
    assert (roles_of(person), person.first_name) == (["viewer"], "")
    answer = client.post(url, {**opened, "first_name": "Carla", "_seen": noted_on(told)})
    assert answer.status_code == 302
    assert roles_of(person) == ["approver", "viewer"]


def test_note_says_nothing_of_a_password(client):
    sign_in(client)
    _, _, opened = person_opened(client)
    noted = json.loads(html.unescape(opened["_seen"]))
    assert {"groups", "is_active"} <= noted.keys()
    assert "password" not in noted


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite's transaction is the lock")
def test_person_is_locked_between_the_check_and_the_save(client):
    sign_in(client)
    _, url, opened = person_opened(client)
    with CaptureQueriesContext(connection) as seen:
        client.post(url, {**opened, "first_name": "Carla"})
    locks = [at for at, one in enumerate(seen) if "FOR NO KEY UPDATE" in one["sql"] and '"auth_user"' in one["sql"]]
    saves = [at for at, one in enumerate(seen) if one["sql"].startswith('UPDATE "auth_user"')]
    assert locks
    assert locks[0] < saves[0]


def test_account_that_somebody_else_switched_off_stays_off(client):
    sign_in(client)
    person, url, opened = person_opened(client)
    User.objects.filter(pk=person.pk).update(is_active=False)

    assert f"{OVERTAKEN}: Active (now off)." in text_of(client.post(url, opened))
    person.refresh_from_db()
    assert not person.is_active


def test_person_who_signs_in_meanwhile_is_no_conflict(client):
    sign_in(client)
    person, url, opened = person_opened(client)
    User.objects.filter(pk=person.pk).update(last_login=clock(), email="new@example.org")

    answer = client.post(url, {**opened, "email": "new@example.org", "first_name": "Carla"})

    assert answer.status_code == 302
    person.refresh_from_db()
    assert (person.first_name, person.last_login is not None) == ("Carla", True)
    assert roles_of(person) == ["approver", "viewer"]


def test_permission_that_somebody_else_took_from_a_role_does_not_come_back(client):
    sign_in(client)
    role = Group.objects.create(name="night shift")
    kept, taken = grantable()[:2]
    role.permissions.set([kept, taken])
    url = page(Group, "change", role.pk)
    opened = {"name": "night shift", "permissions": [kept.pk, taken.pk], "_seen": noted_on(client.get(url))}
    role.permissions.remove(taken)

    told = text_of(client.post(url, {**opened, "name": "day shift"}))

    assert f"{OVERTAKEN}: Permissions" in told
    assert list(role.permissions.all()) == [kept]
    assert client.post(url, {**opened, "permissions": [kept.pk], "name": "day shift"}).status_code == 302
    role.refresh_from_db()
    assert role.name == "day shift"
