"""An agent's definition through the API: in as YAML or JSON, out again, with every problem in `detail`."""

import pytest
from django.contrib.auth.models import Permission

from agents.models import Agent, Trigger
from audit.models import AuditEvent
from tests.agents.api.world import make_skill
from tests.factories import make_agent, make_session, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
AGENTS = "/api/v1/agents"
TEXT = (
    "name: Watch\nmode: manual\nautonomy: {enabled: true, idle_timeout: 60}\n"
    "triggers: [{name: Ring, kind: event, skill: reviewing}]\n"
)


@pytest.fixture(autouse=True)
def _skill():
    make_skill(name="reviewing")


def address(agent, what="definition"):
    return f"{AGENTS}/{agent.public_id}/{what}"


@pytest.mark.parametrize("media_type", ["application/yaml", "text/yaml"])
def test_import_accepts_a_yaml_body(api, person, media_type):
    answer = api.post(f"{AGENTS}/import", TEXT, content_type=media_type)

    assert answer.status_code == 200
    agent = Agent.objects.get(owner=person)
    result = answer.json()
    assert (result["id"], result["name"], result["mode"], result["definition"]) == (
        str(agent.public_id),
        "Watch",
        "manual",
        TEXT,
    )
    assert (result["definition_version"], result["definition_digest"]) == (1, agent.definition_digest)
    assert Trigger.objects.get().agent == agent


def test_json_import_of_a_known_name_makes_a_new_version(api):
    api.post(f"{AGENTS}/import", {"definition": TEXT}, format="json")
    result = api.post(f"{AGENTS}/import", {"definition": TEXT + "zone: Europe/Paris\n"}, format="json").json()
    assert result["definition_version"] == 2


def test_saved_definition_returns_effective_settings(api, person):
    agent = make_agent(owner=person, name="Clerk")

    result = api.put(address(agent), {"definition": TEXT.replace("Watch", "Clerk")}, format="json").json()

    assert result == api.get(address(agent)).json()
    assert (result["version"], result["drift"], result["broken_sensors"], result["notes"]) == (1, [], [], [])
    effective = {setting["key"]: (setting["value"], setting["said_by"]) for setting in result["effective"]}
    assert effective["autonomy.idle_timeout"] == (60, "its text")
    assert effective["autonomy.max_sleep"] == (86_400, "default")
    assert effective["mode"] == ("manual", "its text")
    assert effective["enabled"] == (True, "default")
    assert effective["model"] == ("offline", "the installation")
    assert effective["loop.max_steps"] == (50, "default")


def test_the_same_text_again_changes_nothing(api, person):
    agent = make_agent(owner=person, name="Watch")
    api.put(address(agent), TEXT, content_type="application/yaml")
    rows = AuditEvent.objects.count()

    assert api.put(address(agent), TEXT, content_type="application/yaml").json()["version"] == 1
    assert AuditEvent.objects.count() == rows


def test_detail_has_every_problem_with_line_and_key(api, person):
    agent = make_agent(owner=person)
    for answer in (
        api.put(address(agent), "mode: fast\n\nzone: Mars\n", content_type="application/yaml"),
        api.post(f"{AGENTS}/import", {"definition": "mode: fast\n\nzone: Mars\n"}, format="json"),
    ):
        result = answer.json()
        assert (answer.status_code, result["code"]) == (422, "invalid")
        assert [(one["line"], one["key"]) for one in result["detail"]["problems"]] == [(1, "mode"), (3, "zone")]
        assert result["detail"]["problems"][0]["message"] == (
            'agent.yaml:1: mode: expected one of auto, semi, manual; got "fast"'
        )
    agent.refresh_from_db()
    assert agent.definition_version == 0


def test_unknown_names_are_notes_and_broken_sensors_listed(api, person):
    text = "model: gpt-none\nskills: [no_such]\nsensors: [{name: s, type: poll, source: {tool: now}}]\n"
    result = api.put(address(make_agent(owner=person)), text, content_type="application/yaml").json()

    assert [(note["line"], note["key"]) for note in result["notes"]] == [(2, "skills[0]"), (1, "model")]
    assert [sensor["name"] for sensor in result["broken_sensors"]] == ["s"]


@pytest.mark.parametrize("body", [{}, {"definition": ""}, {"definition": 5}, {"definition": TEXT, "by": "me"}])
def test_body_without_a_definition_is_refused(api, person, body):
    assert api.put(address(make_agent(owner=person)), body, format="json").status_code == 422


def test_loosening_the_mode_during_a_run_is_a_conflict(api, person):
    agent = make_agent(owner=person, mode="manual")
    make_session(owner=person, agent=agent)
    person.user_permissions.add(Permission.objects.get(codename="loosen"))
    answer = api.put(address(agent), "mode: auto\n", content_type="text/yaml")
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_transition")


def test_agent_of_another_user_is_not_found(api):
    agent = make_agent()
    assert api.get(address(agent)).status_code == 404
    assert api.put(address(agent), TEXT, content_type="text/yaml").status_code == 404
    assert api.get(address(agent, "export")).status_code == 404


def test_reading_needs_only_the_read_scope(person):
    agent, reader = make_agent(owner=person, name="Watch"), client_of(person, "read")
    assert reader.get(address(agent)).json()["definition"] == "name: Watch\nmode: semi\nenabled: true\n"
    assert reader.put(address(agent), TEXT, content_type="text/yaml").status_code == 403
    assert reader.post(f"{AGENTS}/import", TEXT, content_type="text/yaml").status_code == 403


def test_export_returns_the_text_as_a_file(api, person):
    api.post(f"{AGENTS}/import", TEXT.replace("Watch", "Wächter"), content_type="text/yaml")
    answer = api.get(address(Agent.objects.get(), "export"))

    assert answer.content.decode() == TEXT.replace("Watch", "Wächter")
    assert answer.headers["Content-Type"] == "application/yaml; charset=utf-8"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=utf-8''W%C3%A4chter.yaml"


def test_list_has_no_definitions(api, person):
    make_agent(owner=person, definition=TEXT)
    assert "definition" not in api.get(AGENTS).json()["results"][0]


def test_unreadable_stored_definition_reports_why(api, person):
    agent = make_agent(owner=person, definition="mode: fast\n", definition_version=3)
    answer = api.get(address(agent))
    assert (answer.status_code, answer.json()["detail"]["problems"][0]["key"]) == (422, "mode")
    assert api.put(address(agent), "mode: manual\n", content_type="text/yaml").json()["version"] == 4


def test_import_cannot_create_an_agent_for_another_user(api, person):
    make_agent(owner=make_user(), name="Watch")
    api.post(f"{AGENTS}/import", TEXT, content_type="text/yaml")
    assert Agent.objects.get(definition_version=1).owner == person


def test_text_based_on_an_older_version_is_a_conflict(api, person):
    agent = make_agent(owner=person, name="Watch")
    api.put(address(agent), TEXT, content_type="text/yaml")
    newer = f"{TEXT}zone: Europe/Paris\n"
    for _ in range(2):  # the same text again is nobody's loss
        assert api.put(address(agent), {"definition": newer, "version": 1}, format="json").json()["version"] == 2

    for answer in (
        api.put(address(agent), {"definition": TEXT, "version": 1}, format="json"),
        api.put(address(agent), TEXT, content_type="text/yaml", headers={"If-Match": '"1"'}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "superseded")
        assert "version 2, and this text was made from version 1" in answer.json()["message"]
    assert api.put(address(agent), TEXT, content_type="text/yaml", headers={"If-Match": "2"}).json()["version"] == 3
    assert api.put(address(agent), newer, content_type="text/yaml", headers={"If-Match": "*"}).json()["version"] == 4
    assert api.put(address(agent), TEXT, content_type="text/yaml", headers={"If-Match": "x"}).status_code == 422


def test_unset_settings_have_the_source_default(api, person):
    agent = make_agent(owner=person, name="Watch")

    def said_by():
        return {one["key"]: one["said_by"] for one in api.get(address(agent)).json()["effective"]}

    api.put(address(agent), "name: Watch\n", content_type="text/yaml")
    assert [said_by()[key] for key in ("mode", "enabled", "max_cost_per_day_usd")] == ["default"] * 3
    Agent.objects.filter(pk=agent.pk).update(mode="manual", enabled=False)
    assert [said_by()[key] for key in ("mode", "enabled")] == ["set here"] * 2
