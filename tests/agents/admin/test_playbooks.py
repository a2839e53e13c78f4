"""Playbooks with positions and YAML; skills that run only as accepted."""

import pytest
from django.urls import reverse

from agents.knowledge.playbooks import playbook_export, positions_of, skills_load
from agents.models import AgentSession, Playbook, PlaybookPosition, PromptSkill
from tests.agents.admin.rows import act_page, kinds_since, last_event, make_playbook, make_skill, page, sign_in, text_of
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db


def positions(*rows, initial=0):
    given = {"positions-TOTAL_FORMS": len(rows), "positions-INITIAL_FORMS": initial}
    for number, row in enumerate(rows):
        for name, value in {"severity": "warn", **row}.items():
            given[f"positions-{number}-{name}"] = value
    return given


# --- Playbooks ---


def test_playbook_keeps_the_order_of_positions(client):
    user = sign_in(client, "operator")
    before = last_event()
    rows = positions(
        {"issue": "Second", "ORDER": "2", "must_contain": "two years\n\n  three years "},
        {"issue": "First", "ORDER": "1", "severity": "critical", "standard": "Say it.", "fallbacks": "or that"},
        {"issue": "Dropped", "ORDER": "3", "DELETE": "on"},
    )

    client.post(page(Playbook, "add"), {"owner": user.pk, "name": "NDA", **rows})

    first, second = positions_of(Playbook.objects.get())
    assert (first.issue, first.severity, first.fallbacks) == ("First", "critical", ("or that",))
    assert (second.issue, second.must_contain) == ("Second", ("two years", "three years"))
    assert kinds_since(before) == ["playbook.created"]


def test_changed_playbook_gets_a_new_version(client):
    row = make_playbook(sign_in(client), "NDA")

    shown = client.get(page(Playbook, "change", row.pk))
    assert "two years" in text_of(shown)
    rows = positions({"issue": "Term", "ORDER": "1", "must_contain": "three years"}, initial=1)
    client.post(page(Playbook, "change", row.pk), {"name": "NDA", **rows})

    row.refresh_from_db()
    assert row.version == 2
    assert positions_of(row)[0].must_contain == ("three years",)


def test_saving_without_changes_makes_no_version(client):
    row, before = make_playbook(sign_in(client), "NDA"), last_event()
    rows = positions({"issue": "Term", "ORDER": "1", "must_contain": "two years"}, initial=1)

    client.post(page(Playbook, "change", row.pk), {"name": "NDA", **rows})

    row.refresh_from_db()
    assert row.version == 1
    assert kinds_since(before) == []


def test_position_without_an_issue_is_explained(client):
    user = sign_in(client)
    rows = positions({"issue": "", "standard": "words", "ORDER": "1"})

    answer = client.post(page(Playbook, "add"), {"owner": user.pk, "name": "NDA", **rows})

    assert "Correct the positions below." in text_of(answer)
    assert answer.context["form"].positions.errors[0]["issue"]
    assert not Playbook.objects.exists()


def test_a_playbook_without_positions_is_refused(client):
    user = sign_in(client)

    answer = client.post(page(Playbook, "add"), {"owner": user.pk, "name": "NDA", **positions()})

    assert "a list of at least 1 positions" in text_of(answer)


def test_viewer_cannot_save_a_playbook(client):
    sign_in(client, "viewer")
    row = make_playbook(make_user(), "NDA")

    found = text_of(client.get(page(Playbook, "change", row.pk)))

    assert "Text for runs" in found
    assert "Add position" not in found
    assert client.post(page(Playbook, "change", row.pk), {"name": "x"}).status_code == 403


def test_playbook_is_exported_and_imported(client):
    user = sign_in(client, "operator")
    row = make_playbook(user, "NDA “essentials”")

    exported = client.get(reverse("admin:agents_playbook_export", args=[row.pk]))
    assert (
        exported.headers["Content-Disposition"]
        == "attachment; filename*=utf-8''NDA%20%E2%80%9Cessentials%E2%80%9D.yaml"
    )
    assert exported.content.decode() == playbook_export(row)
    text = exported.content.decode().replace("two years", "five years")
    answer = client.post(reverse("admin:agents_playbook_import_yaml"), {"owner": user.pk, "text": text}, follow=True)

    row.refresh_from_db()
    assert "imported" in text_of(answer)
    assert row.version == 2
    assert PlaybookPosition.objects.get().must_contain == ["five years"]


def test_invalid_yaml_is_explained(client):
    user = sign_in(client)

    answer = client.post(reverse("admin:agents_playbook_import_yaml"), {"owner": user.pk, "text": "name: [oops"})

    assert answer.context["form"].errors
    assert not Playbook.objects.exists()


def test_import_needs_the_add_permission(client):
    sign_in(client, "viewer")

    assert client.get(reverse("admin:agents_playbook_import_yaml")).status_code == 403


def test_playbook_page_offers_run_now(client):
    row = make_playbook(sign_in(client), "NDA")

    link = f"{page(AgentSession, 'add')}?playbook={row.pk}"
    assert link in text_of(client.get(page(Playbook, "change", row.pk)))
    assert f'value="{row.pk}" selected' in text_of(client.get(link))


# --- Skills ---


@pytest.fixture
def folder(tmp_path, settings):
    root = tmp_path / "skills"
    (root / "reader").mkdir(parents=True)
    settings.LQOPS_SKILL_FOLDERS = [root]
    return root / "reader"


def write(folder, body):
    (folder / "SKILL.md").write_text(f"---\nname: reader\ndescription: Reads.\n---\n{body}\n", encoding="utf-8")


def test_changed_skill_is_accepted_by_digest(client, folder):
    sign_in(client, "operator")
    write(folder, "Read it.")
    load = reverse("admin:agents_promptskill_load")
    assert "New skills are added" in text_of(client.get(load))
    assert not PromptSkill.objects.exists()
    assert "1 loaded" in text_of(client.post(load, follow=True))
    write(folder, "Read it twice.")
    assert "1 changed" in text_of(client.post(load, follow=True))
    skill = PromptSkill.objects.get()
    assert "changed, not accepted" in text_of(client.get(page(PromptSkill, "changelist")))

    shown = text_of(client.get(act_page(skill, "accept")))
    assert skill.digest in shown
    assert skill.found_digest in shown
    before = last_event()
    client.post(act_page(skill, "accept"), {"confirmed": "1", "digest": skill.found_digest})

    skill.refresh_from_db()
    assert (skill.has_changed, skill.version) == (False, 2)
    assert kinds_since(before) == ["skill.accepted"]


def test_files_changed_again_are_not_accepted(client, folder):
    sign_in(client)
    write(folder, "One.")
    skills_load(by=None, now=NOW)
    write(folder, "Two.")
    skills_load(by=None, now=NOW)
    seen = PromptSkill.objects.get().found_digest
    write(folder, "Three.")
    skills_load(by=None, now=NOW)
    skill = PromptSkill.objects.get()

    answer = client.post(act_page(skill, "accept"), {"confirmed": "1", "digest": seen})

    assert "changed again after this page was opened" in text_of(answer)
    skill.refresh_from_db()
    assert skill.has_changed


def test_unreadable_folder_is_reported(client, folder):
    sign_in(client)
    (folder / "SKILL.md").write_text("no front matter", encoding="utf-8")

    answer = client.post(reverse("admin:agents_promptskill_load"), follow=True)

    assert "none found" in text_of(answer)
    assert "reader" in text_of(answer)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "accepted"),
        ({"enabled": False}, "disabled"),
        ({"found_digest": ""}, "files missing"),
        ({"found_digest": "9" * 64}, "changed, not accepted"),
    ],
)
def test_skill_shows_its_state(client, fields, state):
    sign_in(client)
    make_skill(**fields)

    assert state in text_of(client.get(page(PromptSkill, "changelist")))


def test_viewer_cannot_load_skills(client):
    sign_in(client, "viewer")

    assert client.get(reverse("admin:agents_promptskill_load")).status_code == 403
    assert client.post(reverse("admin:agents_promptskill_load")).status_code == 403


def test_text_to_import_is_checked_without_saving_it(client):
    sign_in(client, "operator")
    address = reverse("admin:agents_playbook_check")

    wrong = client.post(address, {"text": "name: Terms\npositions:\n- issue: Term\n  severity: [high]\n"})
    assert [one["line"] for one in wrong.json()["problems"]] == [4]
    assert client.post(address, {"text": "name: ["}).json()["problems"][0]["line"] > 0
    assert client.post(address, {"text": "name: Terms\npositions:\n- issue: Term\n"}).json() == {"problems": []}
    assert not Playbook.objects.exists()

    assert client.get(address).status_code == 403
    sign_in(client, "viewer")
    assert client.post(address, {"text": "name: Terms"}).status_code == 403
