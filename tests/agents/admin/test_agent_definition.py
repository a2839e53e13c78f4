"""The definition on an agent's page: edit, import, export, and errors by line and key."""

import html
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from agents.models import Agent, Sensor, Trigger
from agents.roster.agents import agent_edit
from agents.roster.files import definition_write
from agents.text.strict_yaml import MAX_BYTES
from tests.agents.admin.rows import kinds_since, last_event, make_skill, page, sign_in, text_of
from tests.factories import NOW, make_agent, make_session, make_user

pytestmark = pytest.mark.django_db
IMPORT = "admin:agents_agent_import_yaml"
TEXT = "name: Watch\nmode: manual\nautonomy:\n  enabled: true\n  idle_timeout: 60\n"


def file(text, name="watch.yaml"):
    return SimpleUploadedFile(name, text if isinstance(text, bytes) else text.encode())


def seen(response):
    """The words of a page, without its tags."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text_of(response))).split())


def test_page_shows_text_version_and_settings(client):
    user = sign_in(client)
    agent = definition_write(agent=make_agent(owner=user, name="Watch"), text=TEXT, by=user, now=NOW).agent

    shown = client.get(page(Agent, "change", agent.pk))

    assert 'name="text"' in text_of(shown)
    words = seen(shown)
    assert "version 1" in words
    assert agent.definition_digest[:16] in words
    assert "autonomy.idle_timeout 60 its text" in words
    assert "autonomy.max_consecutive_turns 50 default" in words
    assert "model offline the installation" in words


def test_a_definition_is_saved_from_the_page(client):
    agent = make_agent(owner=sign_in(client), name="Watch")
    make_skill()
    before = last_event()
    text = TEXT.replace("\n", "\r\n") + "triggers: [{name: Ring, kind: event, skill: summarise}]"

    answer = client.post(page(Agent, "definition", agent.pk), {"text": text}, follow=True)

    assert answer.redirect_chain == [(page(Agent, "change", agent.pk), 302)]
    words = seen(answer)
    assert "Definition of Watch saved as version 1." in words
    assert "Trigger 'Ring' created." in words
    agent.refresh_from_db()
    assert (agent.mode, agent.definition_version) == ("manual", 1)
    assert agent.definition.startswith(TEXT)
    assert kinds_since(before) == ["agent.edited", "autonomous_trigger.created", "agent.defined"]


def test_saving_without_changes_makes_no_version(client):
    user = sign_in(client)
    agent = definition_write(agent=make_agent(owner=user, name="Watch"), text=TEXT, by=user, now=NOW).agent

    answer = client.post(page(Agent, "definition", agent.pk), {"text": TEXT}, follow=True)

    assert "not changed" in seen(answer)
    agent.refresh_from_db()
    assert agent.definition_version == 1


def test_second_of_two_editors_is_refused_and_keeps_the_text(client):
    user = sign_in(client)
    agent = definition_write(agent=make_agent(owner=user, name="Watch"), text=TEXT, by=user, now=NOW).agent
    for address in (page(Agent, "change", agent.pk), page(Agent, "definition", agent.pk)):
        assert 'name="version" value="1"' in text_of(client.get(address))
    definition_write(agent=agent, text=f"{TEXT}zone: Europe/Paris\n", by=user, now=NOW)

    answer = client.post(page(Agent, "definition", agent.pk), {"text": f"{TEXT}zone: Asia/Tokyo\n", "version": "1"})
    assert "it is at version 2, and this text was made from version 1" in seen(answer)
    assert "zone: Asia/Tokyo" in text_of(answer).partition("<textarea")[2]
    agent.refresh_from_db()
    assert "Europe/Paris" in agent.definition

    assert 'name="version" value="2"' in text_of(answer)
    client.post(page(Agent, "definition", agent.pk), {"text": f"{TEXT}zone: Asia/Tokyo\n", "version": "2"})
    agent.refresh_from_db()
    assert "Asia/Tokyo" in agent.definition


def test_errors_name_line_and_key(client):
    agent = make_agent(owner=sign_in(client))
    text = "mode: fast\nautonomy:\n  idle_timeout: soon\n  <b>: 1\n"

    answer = client.post(page(Agent, "definition", agent.pk), {"text": text})

    words = seen(answer)
    assert "3 errors. Nothing was saved." in words
    assert 'Line 1 mode: expected one of auto, semi, manual; got "fast" mode: fast' in words
    assert "Line 3 autonomy.idle_timeout: expected a whole number of seconds, 0 or more" in words
    assert "<b>" not in text_of(answer)
    assert "idle_timeout: soon" in text_of(answer).partition("<textarea")[2]
    agent.refresh_from_db()
    assert agent.definition_version == 0


def test_file_replaces_the_text(client):
    agent = make_agent(owner=sign_in(client), name="Watch")
    sent = {"text": "name: Watch\n", "file": file("mode: fast\n")}

    answer = client.post(page(Agent, "definition", agent.pk), sent)
    assert "Line 1 mode: expected" in seen(answer)
    assert "mode: fast" in text_of(answer).partition("<textarea")[2]
    client.post(page(Agent, "definition", agent.pk), {"text": "", "file": file("\ufeff" + TEXT)})
    agent.refresh_from_db()
    assert agent.definition == TEXT


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"text": "  "}, "Enter a definition, or choose a file."),
        ({"text": "name: a\x00"}, "Null characters are not allowed."),
        ({"file": b"#" * (MAX_BYTES + 1)}, f"The file is larger than {MAX_BYTES} bytes."),
        ({"file": b"name: \xe9"}, "This is not UTF-8 text: byte 6 is invalid."),
        ({"text": "#" * (MAX_BYTES + 1)}, f"at most {MAX_BYTES} are read"),
    ],
)
def test_unreadable_upload_is_explained(client, sent, said):
    agent = make_agent(owner=sign_in(client))
    given = {**sent, "file": file(sent["file"])} if "file" in sent else sent
    assert said in seen(client.post(page(Agent, "definition", agent.pk), given))


def test_refusal_is_shown_above_the_text(client):
    user = sign_in(client)
    agent = make_agent(owner=user, mode="manual")
    make_session(owner=user, agent=agent)
    assert "not loosened to auto" in seen(client.post(page(Agent, "definition", agent.pk), {"text": "mode: auto\n"}))


def test_broken_sensor_is_shown(client):
    agent = make_agent(owner=sign_in(client), name="Watch")
    text = "skills: [no_such]\nsensors: [{name: feed, type: poll, source: {tool: now}}]\n"

    words = seen(client.post(page(Agent, "definition", agent.pk), {"text": text}, follow=True))

    assert "Sensor feed is skipped: agent.yaml:2: sensors[0].interval: expected" in words
    assert "Sensor feed is skipped. agent.yaml:2" in words
    assert "Line 1: skills[0]: expected the name of an installed and enabled skill" in words
    assert Sensor.objects.get().agent == agent


def test_changes_on_the_page_are_shown(client):
    user = sign_in(client)
    agent = definition_write(agent=make_agent(owner=user, name="Watch"), text=TEXT, by=user, now=NOW).agent
    agent_edit(agent=agent, by=user, now=NOW, mode="semi")

    words = seen(client.get(page(Agent, "change", agent.pk)))
    assert "Changed on this page since: mode is semi here, and manual in its text." in words
    assert "mode semi set here" in words


def test_an_agent_is_imported_from_the_list(framed, client):
    user = sign_in(client)
    assert "Import YAML" in text_of(client.get(page(Agent, "changelist")))
    answer = client.post(
        reverse(IMPORT), {"owner": user.pk, "text": "", "file": file("zone: UTC\n", "night.yaml")}, follow=True
    )

    agent = Agent.objects.get()
    assert (agent.name, agent.owner) == ("night", user)
    assert "Definition of night saved as version 1." in seen(answer)
    wrong = client.post(
        reverse(IMPORT), {"owner": user.pk, "text": "name: Other\ntriggers: [{name: a, kind: watch}]\n"}
    )
    assert "Line 2 triggers[0].collection: expected a collection: a watch needs it" in seen(wrong)
    assert not Trigger.objects.exists()


def test_export_is_the_text_as_a_file(client):
    user = sign_in(client, "viewer")
    agent = make_agent(owner=user, name="Wach/e\r\nX: y", definition=TEXT, definition_version=1)

    answer = client.get(page(Agent, "export", agent.pk))

    assert answer.content.decode() == TEXT
    assert "\n" not in answer["Content-Disposition"]


def test_readers_of_definitions_cannot_write(client):
    sign_in(client, "operator")
    agent = make_agent(definition=TEXT, definition_version=1)

    shown = text_of(client.get(page(Agent, "change", agent.pk)))

    assert "idle_timeout: 60" in shown
    assert 'name="text"' not in shown
    assert client.post(page(Agent, "definition", agent.pk), {"text": "zone: UTC\n"}).status_code == 403
    assert client.get(page(Agent, "definition", agent.pk)).status_code == 403
    assert client.post(reverse(IMPORT), {"owner": make_user().pk, "text": TEXT}).status_code == 403
    assert client.get(page(Agent, "definition", 999_999)).status_code == 404


def test_invalid_stored_text_can_be_corrected(client):
    agent = make_agent(owner=sign_in(client), definition="mode: fast\n", definition_version=3)

    shown = client.get(page(Agent, "change", agent.pk))
    assert "Line 1 mode: expected one of auto, semi, manual" in seen(shown)
    client.post(page(Agent, "definition", agent.pk), {"text": "mode: auto\n"})
    agent.refresh_from_db()
    assert (agent.definition_version, agent.mode) == (4, "auto")


# --- Checking while somebody writes ---


def problems(answer):
    return [(one["line"], one["is_warning"]) for one in answer.json()["problems"]]


def test_text_is_checked_without_saving_it(client):
    agent = make_agent(owner=sign_in(client), name="Watch")
    make_agent(owner=agent.owner, name="Other")
    address, before = page(Agent, "check", agent.pk), last_event()

    assert problems(client.post(address, {"text": TEXT})) == []
    wrong = client.post(address, {"text": TEXT.replace("manual", "some\u202etimes").replace("60", "soon")})
    assert problems(wrong) == [(2, False), (5, False)]
    assert "\u202e" not in wrong.json()["problems"][0]["text"]
    assert problems(client.post(address, {"text": "name: [\n"}))[0][1] is False
    assert problems(client.post(address, {"text": "name: Other\ninstructions: x\n"})) == [(1, False)]
    assert problems(client.post(address, {"text": "name: Watch\nproject: Nowhere\n"})) == [(2, False)]
    agent.refresh_from_db()
    assert (agent.definition, agent.definition_version) == ("", 0)
    assert "agent.defined" not in kinds_since(before)


def test_sensor_that_would_be_skipped_is_a_warning(client):
    agent = make_agent(owner=sign_in(client), name="Watch")
    text = TEXT + "sensors:\n- name: feed\n  source: {kind: nothing}\n"

    found = problems(client.post(page(Agent, "check", agent.pk), {"text": text}))

    assert found
    assert all(is_warning for _, is_warning in found)


def test_text_to_import_is_checked_for_its_owner(client):
    user = sign_in(client)
    make_agent(owner=user, name="Watch")
    address = reverse("admin:agents_agent_check_import")

    assert problems(client.post(address, {"text": TEXT, "owner": user.pk})) == []
    assert problems(client.post(address, {"text": "name: Watch\nmode: some\n", "owner": "nobody"})) == [(2, False)]
    assert not Agent.objects.exclude(definition="").exists()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_those_who_may_save_a_text_may_check_it(client, role):
    sign_in(client, role)
    for address in (page(Agent, "check", make_agent().pk), reverse("admin:agents_agent_check_import")):
        assert client.post(address, {"text": TEXT}).status_code == 403
        assert client.get(address).status_code == 403
