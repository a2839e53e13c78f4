"""Settings of callable skills, their list, and the command."""

import io
import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command

from agents.enums import Level
from agents.exceptions import Invalid, NotAllowed, NotFound
from agents.models import SkillCount, SkillSetting
from agents.skills import registry
from agents.skills.registry import (
    MAX_PER_HOUR,
    SkillPace,
    installed_skill,
    installed_skills,
    limit_of,
    skill_count_lock,
    skill_count_refuse,
    skill_count_take,
    skill_hours,
    skill_listed,
    skill_refusal,
    skill_set,
    skill_standing,
    skills_listed,
)
from audit.models import AuditEvent
from tests.factories import NOW, make_user
from tests.table import every_row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sample_skills")]


@pytest.fixture
def operator():
    user = make_user()
    user.groups.add(Group.objects.get(name="operator"))
    return user


@pytest.fixture
def superuser():
    return make_user(is_superuser=True)


def settle(by, name="look", now=NOW, **changes):
    return skill_set(name=name, declared=installed_skills()[name].level, by=by, now=now, **changes)


def take(pace, *, now):
    skill_count_lock(pace, now=now)
    return skill_count_take(pace, now=now)


def count(skill, hours_ago, used, refused=0):
    hour = NOW.replace(minute=0, second=0) - timedelta(hours=hours_ago)
    return SkillCount.objects.create(skill=skill, hour=hour, used=used, refused=refused)


def kinds():
    return list(AuditEvent.objects.values_list("kind", flat=True))


# --- Setting ---


def test_unnamed_settings_stay(operator):
    settle(operator, hourly_limit=5)
    row = settle(operator, enabled=False)

    assert (row.enabled, row.level, row.hourly_limit) == (False, "", 5)
    assert (row.updated_by, row.updated_at) == (operator, NOW)


def test_none_clears_a_limit_and_a_level(superuser):
    settle(superuser, level="PRIVILEGED", hourly_limit=5)
    row = settle(superuser, level=None, hourly_limit=None)

    assert (row.level, row.hourly_limit) == ("", None)
    assert skill_standing("look", Level.CONTROLLED).level == Level.CONTROLLED


def test_each_change_is_audited_with_its_actor(operator):
    settle(operator, level="RESTRICTED", hourly_limit=0)

    event = AuditEvent.objects.get()
    assert (event.kind, event.actor, event.subject) == ("skill.set", f"user:{operator.pk}", "skill:look")
    assert event.details == {"skill": "look", "enabled": True, "level": "RESTRICTED", "hourly_limit": 0}


def test_unchanged_settings_are_not_audited(operator):
    settle(operator, hourly_limit=5)
    settle(operator, now=NOW + timedelta(days=1), hourly_limit=5, enabled=True)
    settle(operator)

    assert kinds() == ["skill.set"]
    assert SkillSetting.objects.get().updated_at == NOW


@pytest.mark.parametrize("role", ["", "viewer", "approver"])
def test_other_roles_may_not_change_settings(role):
    user = make_user(is_staff=True)
    if role:
        user.groups.add(Group.objects.get(name=role))
    with pytest.raises(NotAllowed):
        settle(user, enabled=False)
    assert not SkillSetting.objects.exists()


def test_operators_may_raise_a_level_and_not_lower_it(operator, superuser):
    assert settle(operator, level="RESTRICTED").level == "RESTRICTED"
    for lower in ("MONITORED", "CONTROLLED", None):
        with pytest.raises(NotAllowed, match=r"loosens the level of a skill: that needs the permission agents.loosen"):
            settle(operator, level=lower)
    assert settle(superuser, level="SAFE").level == "SAFE"


def test_refused_change_saves_nothing(operator):
    with pytest.raises(NotAllowed):
        settle(operator, enabled=False, hourly_limit=1, level="SAFE")
    assert not SkillSetting.objects.exists()
    assert kinds() == []


@every_row(
    ("changes", "said"),
    [
        ({"level": "HARMLESS"}, "The level must be one of SAFE, .*, not 'HARMLESS'"),
        ({"hourly_limit": -1}, "from 0 to 1000000, not -1"),
        ({"hourly_limit": MAX_PER_HOUR + 1}, "not 1000001"),
        ({"level": "PRIVILEGED", "hourly_limit": 21}, "of a PRIVILEGED skill must be from 0 to 20, not 21"),
    ],
)
def test_invalid_values_are_refused(operator, changes, said):
    with pytest.raises(Invalid, match=said):
        settle(operator, **changes)


def test_set_limit_applies_below_the_hard_limit(operator):
    assert limit_of(Level.PRIVILEGED, settle(operator, name="reign", hourly_limit=3).hourly_limit) == 3
    settle(operator, hourly_limit=30)
    settle(operator, level="PRIVILEGED")
    assert skill_listed("look", now=NOW).limit == 20

    limits = [take(SkillPace("echo", 2, timedelta(0)), now=NOW) for _ in range(3)]
    assert [bool(refusal) for refusal in limits] == [False, False, True]
    assert skill_listed("echo", now=NOW).use.refused_this_hour == 1


@pytest.mark.parametrize(
    ("level", "chosen", "limit"),
    [
        (Level.CONTROLLED, None, 100),
        (Level.CONTROLLED, 7, 7),
        (Level.CONTROLLED, 200, 200),
        (Level.SAFE, None, None),
        (Level.PRIVILEGED, None, 20),
    ],
)
def test_limit_of_a_level_applies_to_skills_without_their_own(settings, level, chosen, limit):
    settings.LQOPS_SKILL_LIMITS = {"CONTROLLED": 100, "PRIVILEGED": 30}
    assert limit_of(level, chosen) == limit


def test_limit_of_a_level_may_be_below_the_hard_limit(settings):
    settings.LQOPS_SKILL_LIMITS = {"PRIVILEGED": 3}
    assert limit_of(Level.PRIVILEGED, None) == 3


def test_checking_counts_nothing_and_refusing_counts_a_refusal():
    pace = SkillPace("echo", 1, timedelta(0))
    assert (skill_refusal(pace, now=NOW), skill_count_refuse(pace, now=NOW)) == ("", "")
    assert not SkillCount.objects.exists()
    take(pace, now=NOW)
    assert "ran 1 times in this hour" in skill_refusal(pace, now=NOW)
    assert skill_count_refuse(pace, now=NOW) == skill_refusal(pace, now=NOW)
    assert (SkillCount.objects.get().used, SkillCount.objects.get().refused) == (1, 1)


def test_limit_of_zero_refuses_every_call():
    refusal = take(SkillPace("echo", 0, timedelta(0)), now=NOW)
    assert refusal == "echo has a limit of 0 calls per hour"


@pytest.mark.parametrize("seconds", [3600, 10_000])
def test_cooldown_continues_in_the_next_hour(seconds):
    pace, end_of_hour = SkillPace("echo", None, timedelta(seconds=seconds)), NOW.replace(minute=59, second=59)
    assert take(pace, now=end_of_hour) == ""
    for later in (0, 1, seconds - 1):
        refusal = take(pace, now=end_of_hour + timedelta(seconds=later))
        assert refusal == f"echo ran less than {seconds} seconds ago; wait before you call it again"
    assert take(pace, now=end_of_hour + timedelta(seconds=seconds)) == ""


def test_concurrent_call_is_refused():
    """Another call is made between the check and the count."""
    pace = SkillPace("echo", 1, timedelta(seconds=60))
    take(pace, now=NOW)
    with patch.object(registry, "_is_cooling_down", return_value=False):
        assert "ran 1 times" in take(pace, now=NOW)


# --- Listing ---


def test_every_installed_skill_is_listed(operator):
    settle(operator, level="RESTRICTED")
    listed = {row.name: row for row in skills_listed(now=NOW)}

    assert list(listed) == list(installed_skills())
    assert (listed["look"].level, listed["look"].declared) == (Level.RESTRICTED, Level.CONTROLLED)
    assert listed["now"].setting is None
    assert (listed["reign"].limit, listed["reign"].chosen_limit, listed["echo"].limit) == (20, None, None)


def test_setting_without_a_skill_is_listed_last():
    SkillSetting.objects.create(name="bygone", enabled=False)
    count("bygone", 0, used=2)
    last = skills_listed(now=NOW)[-1]

    assert (last.name, last.skill, last.level, last.enabled, last.use.used_today) == ("bygone", None, None, False, 2)
    assert last.facts["installed"] is False
    with pytest.raises(NotFound, match="no installed skill bygone"):
        installed_skill("bygone")


def test_facts_include_the_declaration():
    facts = skill_listed("dawdle", now=NOW).facts

    assert facts["arguments"]["properties"] == {"seconds": {"type": "number"}}
    assert (facts["timeout_seconds"], facts["isolation"], facts["side_effects"]) == (0.2, "thread", False)
    assert (facts["cooldown_seconds"], facts["idempotent"], facts["version"]) == (0, False, "1")
    assert facts["description"] == "Takes its time."


def test_hour_and_day_are_counted_separately():
    count("look", 0, used=2, refused=1)
    count("look", 9, used=5)  # midnight, UTC
    count("look", 10, used=7)
    count("look", 23, used=1)
    count("look", 24, used=9)

    use = skill_listed("look", now=NOW).use
    assert (use.used_this_hour, use.refused_this_hour, use.used_today, use.refused_today) == (2, 1, 7, 1)
    assert [row.used for row in skill_hours("look", now=NOW)] == [2, 5, 7, 1]


def test_list_takes_two_queries(django_assert_num_queries, operator):
    for name in ("look", "echo", "reign"):
        settle(operator, name=name, hourly_limit=1)
        count(name, 0, used=1)
    with django_assert_num_queries(2):
        assert [row.setting.updated_by.username for row in skills_listed(now=NOW) if row.setting]


# --- The command ---


def said(*arguments):
    out = io.StringIO()
    call_command("skills", *arguments, stdout=out)
    return out.getvalue()


def test_command_lists_every_skill():
    SkillSetting.objects.create(name="bygone")
    SkillSetting.objects.create(name="look", level="SAFE", enabled=False, hourly_limit=4)
    lines = said().splitlines()

    assert "look  SAFE (declared CONTROLLED)  off  limit 4  used 0, refused 0" in lines
    assert "reign  PRIVILEGED  on  limit 20  used 0, refused 0" in lines
    assert lines[-1] == "bygone  unknown  on, not installed  no limit  used 0, refused 0"
    assert [row["name"] for row in json.loads(said("--json"))] == [*installed_skills(), "bygone"]


def test_command_sets_and_clears_settings(operator, superuser):
    as_operator = ["look", "--user", operator.username]
    line = said("set", *as_operator, "--level", "PRIVILEGED", "--disabled", "--hourly-limit", "7")
    assert line == "look  PRIVILEGED (declared CONTROLLED)  off  limit 7  used 0, refused 0\n"

    loosening = ["--enabled", "--hourly-limit", "none", "--json"]
    with pytest.raises(CommandError, match="a skill that is switched off, the hourly limit of a skill: that needs"):
        said("set", *as_operator, *loosening)
    assert json.loads(said("--json", "set", *as_operator, "--level", "PRIVILEGED"))["level"] == "PRIVILEGED"
    assert set(AuditEvent.objects.values_list("kind", "actor")) == {("skill.set", f"user:{operator.pk}")}
    found = json.loads(said("set", "look", "--user", superuser.username, *loosening))
    assert (found["enabled"], found["hourly_limit"], found["hourly_limit_in_force"]) == (True, None, 20)


def test_command_and_facts_show_what_a_skill_lacks():
    [line] = [line for line in said().splitlines() if line.startswith("send_email")]
    assert "  on, not offered: no mail server is configured (LQOPS_SMTP_HOST)  " in line

    lacking = {facts["name"]: facts["lacking"] for facts in json.loads(said("--json"))}
    assert (lacking["send_email"][:14], lacking["now"]) == ("no mail server", "")


def test_command_lets_a_superuser_restore_the_declared_level(superuser):
    settle(superuser, level="PRIVILEGED")
    assert said("set", "look", "--user", superuser.username, "--level", "declared").startswith("look  CONTROLLED  on")


@every_row(
    ("arguments", "refusal"),
    [
        (["look"], "Give at least one change"),
        (["look", "--level", "SAFE"], "This loosens the level of a skill"),
        (["nothing", "--disabled"], "There is no installed skill nothing"),
        (["look", "--hourly-limit", "1000001"], "from 0 to 1000000"),
        (["look", "--hourly-limit", "-1"], "neither a number"),
        (["look", "--hourly-limit", "many"], "neither a number, 0 or more, nor none"),
        (["look", "--level", "HARMLESS"], "invalid choice"),
        (["look", "--enabled", "--disabled"], "not allowed with"),
    ],
)
def test_command_reports_errors(operator, arguments, refusal):
    with pytest.raises(CommandError, match=refusal):
        said("set", *arguments, "--user", operator.username)
    assert kinds() == []


def test_command_requires_a_user():
    with pytest.raises(CommandError, match="--user"):
        said("set", "look", "--disabled")
    with pytest.raises(CommandError, match="There is no active user 'ghost'"):
        said("set", "look", "--disabled", "--user", "ghost")
    with pytest.raises(CommandError, match="may not change skill settings"):
        said("set", "look", "--disabled", "--user", make_user().username)
