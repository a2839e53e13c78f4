"""Skills through the guard: what is granted, counted, given up, graded and noted."""

from datetime import timedelta

import pytest

from agents.enums import Level, Outcome, Phase, Status, ToolIntent
from agents.exceptions import ToolNotGranted
from agents.guard import guarded_group, guarded_tool_call
from agents.models import SkillCount, SkillSetting, ToolCall
from agents.skills.registry import installed_skills
from agents.tools.calls import Asked
from agents.tools.params import BadParams
from audit.models import AuditEvent, SkillAudit
from tests.factories import NOW, make_agent, make_session

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sample_skills(settings):
    settings.LQOPS_SKILL_MODULES = ["tests.agents.skills.samples"]
    installed_skills.cache_clear()
    yield
    installed_skills.cache_clear()


@pytest.fixture
def session():
    return make_session(Status.RUNNING, current_phase=Phase.ANALYSIS, agent=make_agent(mode="auto"))


def ask(session, skill, key="", now=NOW, **arguments):
    params = {"skill": skill, "arguments": arguments}
    return guarded_tool_call(session, ToolIntent.RUN_SKILL, params, key=key, now=now)


def test_skill_is_carried_out_and_stands_in_the_journal_under_its_own_name(session):
    result = ask(session, "look", place="here")

    assert (result.outcome, result.data) == (Outcome.SUCCESS, {"seen": "here"})
    [made] = ToolCall.objects.all()
    assert (made.intent, made.name, made.version, made.repeatable) == ("run_skill", "look", "1", True)
    assert AuditEvent.objects.filter(chain=session.chain, details__name="look").count() == 2


def test_phase_that_grants_no_skills_runs_none(session):
    session.current_phase = Phase.DELIVERY
    session.save()
    with pytest.raises(ToolNotGranted):
        ask(session, "look")
    assert not ToolCall.objects.exists()


@pytest.mark.parametrize("name", ["nothing", "", 7, None])
def test_unknown_skill_is_refused_before_anything_is_written(session, name):
    with pytest.raises(BadParams, match="not found or disabled"):
        ask(session, name)


def test_disabled_skill_is_refused_like_an_unknown_one(session):
    SkillSetting.objects.create(name="look", enabled=False)
    with pytest.raises(BadParams, match="not found or disabled"):
        ask(session, "look")


def test_twenty_first_call_of_an_hour_is_refused_and_noted_and_the_next_hour_is_free(session):
    for _ in range(20):
        assert ask(session, "reign").ok
    refused = ask(session, "reign")

    assert refused.outcome == Outcome.RATE_LIMITED
    assert "20 times in this hour" in refused.error
    assert ToolCall.objects.count() == 20
    assert SkillAudit.objects.filter(skill_name="reign").count() == 21
    assert SkillCount.objects.get().refused == 1
    assert ask(session, "reign", now=NOW + timedelta(hours=1)).ok


def test_skill_that_takes_too_long_is_given_up(session):
    late = ask(session, "dawdle", seconds=5)

    assert late.outcome == Outcome.TIMEOUT
    assert late.error == "TimeoutError: dawdle exceeded its timeout of 0.2 s"


def test_skill_that_may_have_acted_before_it_was_given_up_is_unknown(session):
    assert ask(session, "dawdle_and_act", seconds=5).outcome == Outcome.UNKNOWN


def test_failure_is_told_with_its_kind(session):
    failed = ask(session, "fail", words="no such thing")

    assert (failed.outcome, failed.data) == (Outcome.ERROR, None)
    assert failed.error == "ValueError: no such thing"


def test_place_that_nobody_allowed_makes_a_read_restricted(session, settings):
    settings.LQOPS_SKILL_HOSTS = ["docs.example.org"]
    session.agent.mode = "semi"
    session.agent.save()

    assert ask(session, "visit", url="https://docs.example.org/a").ok
    assert ask(session, "visit", url="https://elsewhere.example/?q=secret").outcome != Outcome.SUCCESS
    assert ask(session, "visit", url="https://docs.example.org@elsewhere.example/").outcome != Outcome.SUCCESS


def test_skill_in_a_process_of_its_own_answers_from_there(session, monkeypatch):
    monkeypatch.setenv("LQOPS_SKILL_MODULES", "tests.agents.skills.samples")

    result = ask(session, "alone", key="step:1:0", text="hello")

    assert result.data == {"text": "hello", "key": f"{session.public_id}:step:1:0"}


def test_five_levels_leave_three_notes(session):
    for name, level in zip(["a", "b", "c", "d", "e"], Level, strict=True):
        SkillSetting.objects.update_or_create(name="echo", defaults={"level": level})
        ask(session, "echo", text=name)

    notes = SkillAudit.objects.order_by("pk").values_list("capability_level", "risk_level")
    assert list(notes) == [("CONTROLLED", None), ("RESTRICTED", "low"), ("PRIVILEGED", "low")]


@pytest.mark.django_db(transaction=True)
def test_group_runs_side_by_side_and_answers_in_order(session):
    asked = [
        Asked(ToolIntent.RUN_SKILL, {"skill": "look", "arguments": {"place": place}}, key=f"step:1:{place}")
        for place in "abc"
    ]

    results = guarded_group(session, asked, now=NOW)

    assert [result.data["seen"] for result in results] == ["a", "b", "c"]
    rows = AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("details__outcome", flat=True)
    assert list(rows) == ["started"] * 3 + ["success"] * 3
