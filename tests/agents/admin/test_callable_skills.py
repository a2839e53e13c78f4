"""Pages of callable skills and their calls: content, settings and permissions."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.conf import clock
from agents.models import PromptSkill, SkillCount, SkillSetting
from agents.policy.schedule import hour_of
from agents.skills.registry import installed_skills
from audit import recorder
from audit.models import AuditEvent, SkillAudit
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.api.conftest import client_of
from tests.audit.samples import record_skill_call
from tests.factories import NOW, make_user

pytestmark = pytest.mark.django_db
LIST = reverse("admin:agents_skillsetting_changelist")
CALLS = reverse("admin:audit_skillaudit_changelist")


def skill_page(name):
    return reverse("admin:agents_skillsetting_change", args=[name])


def act(client, name, act_name, **given):
    address = reverse("admin:agents_skillsetting_act", args=[name, act_name])
    return client.post(address, {"confirmed": "1", **given}, follow=True)


def buttons(answer):
    return [action.name for action, _ in answer.context["buttons"]]


def note(skill="send_email", level="RESTRICTED", risk="low", output="sent", now=NOW, **fields):
    return record_skill_call(
        skill_name=skill,
        arguments={"to": "<b>ann</b>"},
        output=output,
        capability_level=level,
        risk_level=risk,
        duration_ms=12,
        now=now,
        **fields,
    )


# --- The list ---


def test_list_shows_every_installed_skill_and_settings_without_one(client):
    sign_in(client, "viewer")
    SkillSetting.objects.create(name="bygone")
    SkillSetting.objects.create(name="set_state", level="RESTRICTED", enabled=False, hourly_limit=4)
    SkillCount.objects.create(skill="set_state", hour=hour_of(clock()), used=37, refused=53)
    answer = client.get(LIST)
    rows, text = answer.context["cl"].result_list, text_of(answer)

    assert [row.name for row in rows] == [*installed_skills(), "bygone"]
    assert all(f'href="{skill_page(name)}"' in text for name in [*installed_skills(), "bygone"])
    for words in ("declared CONTROLLED", "disabled", "not installed", ">37<", ">53<"):
        assert words in text, words


def test_list_queries_do_not_grow_with_settings(client):
    sign_in(client)
    counts = []
    for names in ([], list(installed_skills())):
        for name in names:
            SkillSetting.objects.create(name=name, updated_by=make_user())
            SkillCount.objects.create(skill=name, hour=hour_of(clock()), used=1)
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST)
        counts.append(len(captured))

    assert counts[0] == counts[1]


@pytest.mark.parametrize(("words", "found"), [("EMAIL", ["send_email"]), ("no such skill", [])])
def test_list_is_searched_by_name_and_description(client, words, found):
    sign_in(client)
    assert [row.name for row in client.get(LIST, {"q": words}).context["cl"].result_list] == found


def test_page_explains_the_two_kinds_of_skills(framed, client):
    sign_in(client, "viewer")
    text = text_of(client.get(LIST))

    assert f'href="{page(PromptSkill, "changelist")}"' in text
    assert "Functions that agents can call" in text
    assert text.count("Callable skills") >= 2


# --- The page of a skill ---


def test_page_of_a_skill_without_settings(client):
    sign_in(client, "viewer")
    answer = client.get(skill_page("send_email"))
    text = text_of(answer)

    assert "Last changed by</dt><dd>nobody" in text
    assert "no mail server is configured (LQOPS_SMTP_HOST)." in text
    assert "&quot;properties&quot;" in text
    assert "Not called in the last 24 hours." in text
    assert not SkillSetting.objects.exists()


def test_page_shows_editor_usage_and_calls(client):
    ada = make_user(username="ada")
    SkillSetting.objects.create(name="send_email", level="PRIVILEGED", updated_by=ada, updated_at=NOW)
    hour = hour_of(clock())
    SkillCount.objects.create(skill="send_email", hour=hour, used=3, refused=2)
    SkillCount.objects.create(skill="send_email", hour=hour - timedelta(hours=30), used=99)
    session = uuid4()
    note(session_id=session)
    note(skill="http_request", output="somewhere else")
    sign_in(client, "viewer")
    answer = client.get(skill_page("send_email"))
    text = text_of(answer)

    assert "ada, 14 Mar 2026, 09:26 UTC" in text
    assert "declared: RESTRICTED" in text
    assert "3 used, 2 refused" in text
    assert [row.used for row in answer.context["hours"]] == [3]
    assert [row.skill_name for row in answer.context["calls"]] == ["send_email"]
    assert "&lt;b&gt;ann" in text
    assert reverse("audit:receipt", args=[session]) in text
    assert "(maximum for PRIVILEGED)" in text


def test_calls_need_the_view_permission(client):
    user = make_user(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_skillsetting"))
    client.force_login(user)
    note(output="a word for few")
    text = text_of(client.get(skill_page("send_email")))

    assert "a word for few" not in text
    assert CALLS not in text


def test_uninstalled_skill_offers_no_actions(client):
    sign_in(client)
    row = SkillSetting.objects.create(name="bygone", enabled=False)
    answer = client.get(skill_page("bygone"))

    assert "This skill is not installed" in text_of(answer)
    assert buttons(answer) == []
    assert client.get(skill_page(row.pk)).context["title"] == "bygone"
    assert "is not installed." in text_of(act(client, "bygone", "enable"))
    assert not SkillSetting.objects.get().enabled


@pytest.mark.parametrize("name", ["nothing", "9" * 30, "send_email%00", "a/b"])
def test_unknown_skill_has_no_page(client, name):
    sign_in(client)
    assert client.get(skill_page("now").replace("now", name)).status_code == 404


def test_page_cannot_be_posted_to(client):
    sign_in(client)
    assert client.post(skill_page("now"), {"enabled": ""}).status_code == 403
    assert client.post(reverse("admin:agents_skillsetting_delete", args=["now"]), {"post": "yes"}).status_code == 403
    assert client.post(reverse("admin:agents_skillsetting_add"), {"name": "x"}).status_code == 403


# --- Actions ---


def test_operator_tightens_everything_and_an_admin_takes_it_back(client):
    operator = sign_in(client, "operator")

    assert "now: disabled" in text_of(act(client, "now", "disable"))
    assert "now: level PRIVILEGED" in text_of(act(client, "now", "set_level", level="PRIVILEGED"))
    assert "now: limit 3 per hour" in text_of(act(client, "now", "set_limit", hourly_limit="3"))
    row = SkillSetting.objects.get(name="now")
    assert (row.enabled, row.level, row.hourly_limit, row.updated_by) == (False, "PRIVILEGED", 3, operator)

    refused = act(client, "now", "set_level", level="")
    assert "This loosens the level of a skill: that needs the permission agents.loosen" in text_of(refused)
    assert "from 0 to 20, not 21" in text_of(act(client, "now", "set_limit", hourly_limit="21"))
    looser = {"clear_limit": {}, "set_limit": {"hourly_limit": "4"}, "enable": {}}
    for name, data in looser.items():
        assert "that needs the permission agents.loosen" in text_of(act(client, "now", name, **data))
    row.refresh_from_db()
    assert (row.enabled, row.level, row.hourly_limit) == (False, "PRIVILEGED", 3)

    sign_in(client, "admin")
    for name, data in looser.items():
        act(client, "now", name, **data)
    row.refresh_from_db()
    assert (row.enabled, row.level, row.hourly_limit) == (True, "PRIVILEGED", 4)


def test_superuser_lowers_a_level(client):
    sign_in(client)
    assert "send_email: level SAFE" in text_of(act(client, "send_email", "set_level", level="SAFE"))
    assert "level as declared" in text_of(act(client, "send_email", "set_level", level=""))


def test_actions_are_offered_by_setting(client):
    sign_in(client, "operator")
    assert buttons(client.get(skill_page("now"))) == ["disable", "set_level", "set_limit"]
    SkillSetting.objects.create(name="now", enabled=False, hourly_limit=1)
    assert buttons(client.get(skill_page("now"))) == ["enable", "set_level", "set_limit", "clear_limit"]


def test_action_asks_before_it_runs(client):
    sign_in(client, "operator")
    for name in ("enable", "disable", "set_level", "set_limit", "clear_limit"):
        asked = client.get(reverse("admin:agents_skillsetting_act", args=["now", name]))
        assert asked.status_code == 200
    assert not SkillSetting.objects.exists()


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_readers_set_nothing(client, role):
    sign_in(client, role)
    assert buttons(client.get(skill_page("now"))) == []
    for name in ("enable", "disable", "set_level", "set_limit", "clear_limit"):
        assert act(client, "now", name, hourly_limit="1").status_code == 403
    assert not SkillSetting.objects.exists()


def test_staff_without_a_role_sees_neither_list_nor_page(client):
    client.force_login(make_user(is_staff=True))
    for address in (LIST, skill_page("now"), CALLS):
        assert client.get(address).status_code == 403


def test_page_api_and_command_leave_the_same_events(client):
    by = sign_in(client, "operator")
    ways = {
        "calculate": lambda: act(client, "calculate", "set_limit", hourly_limit="5"),
        "now": lambda: client_of(by).patch("/api/v1/callable-skills/now", {"hourly_limit": 5}, format="json"),
        "read_document": lambda: call_command(
            "skills", "set", "read_document", "--hourly-limit", "5", "--user", by.username, "--json"
        ),
    }
    for way in ways.values():
        way()

    events = AuditEvent.objects.filter(kind="skill.set").order_by("pk")
    assert [event.subject for event in events] == [f"skill:{name}" for name in ways]
    assert [event.actor.partition(":key:")[0] for event in events] == 3 * [f"user:{by.pk}"]
    set_to = {"enabled": True, "level": "SAFE", "hourly_limit": 5}
    assert [event.details for event in events] == [{"skill": name, **set_to} for name in ways]


# --- Skill audit ---


def test_calls_are_listed_newest_first_with_their_run(client):
    sign_in(client, "viewer")
    session = uuid4()
    recorder.append(str(session), "autonomous_session.started", now=NOW, details={"mode": "loop", "owner_id": 1})
    note(skill="older", now=NOW - timedelta(minutes=1))
    note(skill="newer", session_id=session)
    answer = client.get(CALLS)
    receipt = reverse("audit:receipt", args=[session])

    assert [row.skill_name for row in answer.context["cl"].result_list] == ["newer", "older"]
    assert f'href="{receipt}"' in text_of(answer)
    assert client.get(receipt).status_code == 200
    assert client.get(page(SkillAudit, "change", SkillAudit.objects.first().pk)).status_code == 200


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"risk": "high"}, ["c"]),
        ({"risk": "none"}, ["a"]),
        ({"risk": "low", "level": "RESTRICTED"}, ["b"]),
        ({"level": "PRIVILEGED"}, ["c"]),
        ({"q": "b"}, ["b"]),
        ({"risk": "nonsense"}, []),
    ],
)
def test_calls_are_filtered_by_level_risk_and_skill(client, query, found):
    sign_in(client)
    note("a", "CONTROLLED", None)
    note("b", "RESTRICTED", "low")
    note("c", "PRIVILEGED", "high")

    assert [row.skill_name for row in client.get(CALLS, query).context["cl"].result_list] == found
