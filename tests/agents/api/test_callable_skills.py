"""Callable skills and their calls through the API: who sees and who changes what."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group

from agents.conf import clock
from agents.models import ApiKey, SkillCount, SkillSetting
from agents.policy.schedule import hour_of
from agents.skills.registry import installed_skills
from audit.models import AuditEvent
from tests.audit.samples import record_skill_call
from tests.factories import NOW, make_user

from .conftest import client_of

pytestmark = pytest.mark.django_db
SKILLS = "/api/v1/callable-skills"
AUDITS = "/api/v1/skill-audits"


@pytest.fixture
def operator():
    user = make_user()
    user.groups.add(Group.objects.get(name="operator"))
    return user


def patch(client, name, **body):
    return client.patch(f"{SKILLS}/{name}", body, format="json")


def note(user, skill="send_email", level="RESTRICTED", now=NOW, **fields):
    return record_skill_call(
        skill_name=skill, arguments={"to": "ann"}, output="sent", capability_level=level, risk_level=None,
        duration_ms=12, now=now, user_id=user.pk, **fields,
    )  # fmt: skip


def skills_of(answer):
    assert answer.status_code == 200, answer.content
    return [row["skill"] for row in answer.json()["results"]]


# --- Reading ---


def test_all_users_see_all_installed_skills(api):
    answer = api.get(SKILLS).json()

    assert [row["name"] for row in answer["results"]] == list(installed_skills())
    assert answer["count"] == len(installed_skills())
    [one] = api.get(SKILLS, {"page_size": 1, "page": 2}).json()["results"]
    assert one["name"] == list(installed_skills())[1]


def test_skill_has_declared_and_effective_settings_and_counts(api):
    SkillSetting.objects.create(name="send_email", level="PRIVILEGED", hourly_limit=3, updated_at=NOW)
    SkillCount.objects.create(skill="send_email", hour=hour_of(clock()), used=2, refused=1)
    found = api.get(f"{SKILLS}/send_email").json()

    assert (found["declared_level"], found["level"]) == ("RESTRICTED", "PRIVILEGED")
    assert (found["hourly_limit"], found["hourly_limit_in_force"]) == (3, 3)
    assert (found["used_this_hour"], found["refused_this_hour"]) == (2, 1)
    assert found["arguments"]["type"] == "object"
    assert found["updated_at"] == "2026-03-14T09:26:53Z"
    assert found["installed"]
    assert found["lacking"] == "no mail server is configured (LQOPS_SMTP_HOST)"


def test_setting_of_a_removed_skill_is_marked(api):
    SkillSetting.objects.create(name="bygone", enabled=False)
    found = api.get(f"{SKILLS}/bygone").json()

    assert (found["installed"], found["enabled"], found["level"], found["arguments"]) == (False, False, None, None)


@pytest.mark.parametrize("name", ["nothing", "7", "%00", "send_email%20", "x" * 500])
def test_unknown_skill_is_not_found(api, name):
    answer = api.get(f"{SKILLS}/{name}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_unknown_parameter_is_refused(api):
    assert api.get(SKILLS, {"enabled": "true"}).status_code == 422


def test_statement_count_does_not_depend_on_settings(api, django_assert_max_num_queries):
    for name in installed_skills():
        SkillSetting.objects.create(name=name, updated_by=make_user())
    with django_assert_max_num_queries(5):  # key, its last use; settings, counts
        assert api.get(SKILLS).status_code == 200


# --- Setting ---


def test_operator_changes_sent_fields_and_null_clears(operator):
    client = client_of(operator)
    found = patch(client, "now", enabled=False, level="PRIVILEGED", hourly_limit=4).json()
    assert (found["enabled"], found["level"], found["hourly_limit"]) == (False, "PRIVILEGED", 4)

    by_key = f"user:{operator.pk}:key:{ApiKey.objects.get().prefix}"
    assert set(AuditEvent.objects.filter(kind="skill.set").values_list("actor", flat=True)) == {by_key}
    found = patch(client_of(make_user(is_superuser=True)), "now", hourly_limit=None).json()
    assert (found["enabled"], found["hourly_limit"], found["hourly_limit_in_force"]) == (False, None, 20)


@pytest.mark.parametrize("body", [{"enabled": True}, {"hourly_limit": 1_000_000}, {"hourly_limit": None}])
def test_what_an_admin_switched_off_or_limited_is_not_undone_by_an_operator_or_with_the_scope_decide(operator, body):
    tight = {"enabled": False, "hourly_limit": 0}
    SkillSetting.objects.create(name="now", **tight)
    root = make_user(is_superuser=True)
    for client in (client_of(operator), client_of(root, "read", "write", "decide")):
        refused = patch(client, "now", **body)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        assert SkillSetting.objects.filter(**tight).count() == 1
    assert patch(client_of(root), "now", **body).status_code == 200


def test_lowering_a_level_needs_the_permission_to_loosen(operator):
    refused = patch(client_of(operator), "send_email", level="SAFE")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert refused.json()["message"].startswith(
        "This loosens the level of a skill: that needs the permission agents.loosen"
    )

    client = client_of(make_user(is_superuser=True))
    assert patch(client, "send_email", level="SAFE").json()["level"] == "SAFE"
    assert patch(client, "send_email", level=None).json()["level"] == "RESTRICTED"


def test_change_needs_the_permission(api):
    refused = patch(api, "now", enabled=False)

    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert refused.json().keys() == {"code", "message", "detail", "request_id"}
    assert not SkillSetting.objects.exists()


def test_change_needs_the_decide_scope():
    refused = patch(client_of(make_user(is_superuser=True), "read", "write"), "send_email", level="SAFE")

    assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")
    assert not SkillSetting.objects.exists()


def test_change_needs_no_opt_in():
    client = client_of(make_user(is_superuser=True, opted_in=False))
    assert patch(client, "now", enabled=False).json()["enabled"] is False


@pytest.mark.parametrize(
    "body",
    [{"level": "HARMLESS"}, {"level": ""}, {"hourly_limit": -1}, {"hourly_limit": True}, {"hourly_limit": "many"},
     {"hourly_limit": 10**12}, {"enabled": None}, {"enabled": 0},
     {"enabled": "false"}, {"limit": 3}, {"level": "PRIVILEGED", "hourly_limit": 21}],
)  # fmt: skip
def test_invalid_values_are_refused(operator, body):
    answer = patch(client_of(operator), "now", **body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert not SkillSetting.objects.exists()


def test_removed_skill_cannot_be_changed(operator):
    SkillSetting.objects.create(name="bygone")
    for name in ("bygone", "nothing"):
        assert patch(client_of(operator), name, enabled=False).status_code == 404


# --- Calls on record ---


def test_calls_of_own_sessions_are_listed_newest_first(api, person):
    session = uuid4()
    note(person, "older", now=NOW - timedelta(minutes=1))
    note(person, "newer", session_id=session)
    note(make_user(), "somebody_elses")
    answer = api.get(AUDITS)

    assert skills_of(answer) == ["newer", "older"]
    assert answer.json()["results"][0] == {
        "skill": "newer", "level": "RESTRICTED", "risk": None, "input_summary": '{"to":"ann"}',
        "output_summary": "sent", "duration_ms": 12, "session": str(session), "created_at": "2026-03-14T09:26:53Z",
    }  # fmt: skip


def test_calls_of_other_users_are_never_listed(person):
    note(person)
    assert skills_of(client_of(make_user(is_staff=True, is_superuser=True)).get(AUDITS)) == []


def test_calls_are_filtered(api, person):
    session = uuid4()
    note(person, "a", session_id=session)
    note(person, "b", level="CONTROLLED")

    assert skills_of(api.get(AUDITS, {"session": str(session)})) == ["a"]
    assert skills_of(api.get(AUDITS, {"level": "CONTROLLED"})) == ["b"]
    assert skills_of(api.get(AUDITS, {"skill": "a"})) == ["a"]
    assert skills_of(api.get(AUDITS, {"skill": "c"})) == []
    assert len(skills_of(api.get(AUDITS, {"page_size": 1}))) == 1


@pytest.mark.parametrize("query", ["level=SAFE", "session=1", "skill=%00", "user=1", f"skill={'x' * 129}"])
def test_invalid_filters_are_refused(api, query):
    assert api.get(f"{AUDITS}?{query}").status_code == 422


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_recorded_calls_cannot_be_written(api, method):
    assert getattr(api, method)(AUDITS, {}, format="json").status_code == 405
    assert getattr(api, method)(SKILLS, {}, format="json").status_code == 405
