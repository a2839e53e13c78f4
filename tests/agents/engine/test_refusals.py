"""Calls that are refused before the guard: what is skipped, what is recorded, and what the model reads."""

import pytest
import time_machine

from agents.engine.loop import Answered
from agents.engine.skills import SkillExecutor
from agents.models import Agent, AgentSession, Approval, InferenceLog, SkillCount, SkillSetting, ToolCall
from agents.skills.parsing import parse_skill_calls
from agents.skills.registry import installed_skills
from audit.models import SYSTEM_CHAIN, SkillAudit
from audit.receipts import build_receipt
from audit.verify import verify_log
from tests.factories import NOW

from .conftest import Step, calls, script

pytestmark = pytest.mark.django_db
DONE = Step("All done.")


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False):
        yield


def notes():
    shown = ("skill_name", "capability_level", "risk_level", "input_summary", "output_summary", "session_id")
    return list(SkillAudit.objects.order_by("pk").values_list(*shown))


def refused(session):
    """What the receipt says of refused calls: the skill, and what refused it."""
    return [(call["name"], call["brake"]) for call in build_receipt(session.chain)["refused_calls"]]


@pytest.mark.parametrize("mode", ["auto", "semi"])
@pytest.mark.usefixtures("approver")
def test_call_over_its_hourly_limit_needs_no_prediction_or_approval(loop, messages, mode):
    Agent.objects.update(mode=mode)
    SkillCount.objects.create(skill="reign", hour=NOW.replace(minute=0, second=0, microsecond=0), used=20)

    with script(calls('reign(word="a")'), DONE):
        assert loop().run() == Answered("All done.")

    assert not InferenceLog.objects.filter(purpose="simulation").exists()
    assert not Approval.objects.exists()
    [told] = messages(role="tool")
    assert "reign ran 20 times in this hour" in told.content
    assert SkillCount.objects.get().refused == 1
    assert SkillAudit.objects.count() == 1


def test_call_with_wrong_arguments_is_recorded_by_its_level(loop, session):
    with script(calls("echo(words=1)", "look(wrong=5)", 'shell(command=5, also="rm -rf /")'), DONE):
        loop().run()

    assert [(*row[:4], row[5]) for row in notes()] == [
        ("look", "CONTROLLED", None, '{"wrong":5}', session.public_id),
        ("shell", "RESTRICTED", "high", '{"also":"rm -rf /","command":5}', session.public_id),
    ]
    assert all("cannot be called like this" in row[4] for row in notes())
    assert refused(session) == [("echo", "arguments"), ("look", "arguments"), ("shell", "arguments")]
    assert verify_log().verified


def test_call_of_a_disabled_skill_is_recorded_by_its_level(loop, session, messages):
    SkillSetting.objects.bulk_create(SkillSetting(name=name, enabled=False) for name in ("echo", "look", "act"))
    with script(calls('echo(text="x")', 'look(place="a")', 'act(what="it")', "nobody_knows_me()"), DONE):
        assert loop().run() == Answered("All done.")

    told = [entry.content for entry in messages(role="tool")]
    assert ["not found or disabled" in text for text in told] == [True] * 4
    assert [row[:4] for row in notes()] == [
        ("look", "CONTROLLED", None, '{"place":"a"}'),
        ("act", "RESTRICTED", "low", '{"what":"it"}'),
    ], "of SAFE ones nothing is noted, and a name that nobody knows has no level"
    assert refused(session) == [("echo", "skill"), ("look", "skill"), ("act", "skill")]
    assert not ToolCall.objects.exclude(model="test-model").exists()


def test_call_of_a_skill_that_is_not_offered_is_recorded(session):
    [call] = parse_skill_calls('<skill>look(place="a")</skill>')
    told = SkillExecutor({}, session=session).execute_one("a:1", call)
    assert (told.output, "not found or disabled" in told.error) == (None, True)
    assert [row[0] for row in notes()] == ["look"]
    assert refused(session) == [("look", "skill")]


def test_call_of_a_session_that_is_over_is_recorded_in_system(session):
    AgentSession.objects.update(status="completed", terminal_reason="completed", completed_at=NOW)
    [call] = parse_skill_calls('<skill>look(place="a")</skill>')
    SkillExecutor({}, session=session).execute_one("a:1", call)
    assert SkillAudit.objects.get().chain == SYSTEM_CHAIN
    assert verify_log().verified


def test_no_prediction_without_a_model_manager(session):
    Agent.objects.update(mode="auto")
    [call] = parse_skill_calls('<skill>act(what="it")</skill>')
    with script() as model:
        told = SkillExecutor(installed_skills(), session=session).execute_one("a:1", call)
    assert (told.output, "simulation" in told.metadata, model.requests) == ("did it", False, [])


def test_secret_in_wrong_arguments_is_masked(loop):
    key = "sk-ant-api03-" + "A1b2C3d4" * 11 + "abcdeAA"
    with script(calls(f'look(wrong="{key}")'), DONE):
        loop().run()
    assert key[:24] not in notes()[0][3]


def test_call_that_is_not_admitted_is_recorded(loop, session):
    with script(calls('act(what="it")'), DONE):
        loop(admit=lambda: lambda *_: "Nobody has asked for it.").run()
    [row] = notes()
    assert row[:5] == ("act", "RESTRICTED", "low", '{"what":"it"}', "Nobody has asked for it.")
    assert refused(session) == [("act", "rate_limit")]


def test_unavailable_skill_is_neither_offered_nor_predicted(loop, messages):
    mail = calls('send_email(to="a@example.org", subject="s", body="b")')
    with script(mail, DONE) as model:
        assert loop().run() == Answered("All done.")

    assert "send_email" not in {tool["function"]["name"] for tool in model.requests[0].tools}
    assert not InferenceLog.objects.filter(purpose="simulation").exists()
    assert not Approval.objects.exists()
    [told] = messages(role="tool")
    assert told.content == "error: send_email is not available: no mail server is configured (LQOPS_SMTP_HOST)"
    assert [row[0] for row in notes()] == ["send_email"]
