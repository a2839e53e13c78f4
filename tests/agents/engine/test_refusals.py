"""Calls that are refused on their way to the guard: what is spared, what is noted, and what is told to the model."""

import pytest
import time_machine

from agents.engine.loop import Answered
from agents.models import Agent, Approval, InferenceLog, SkillCount
from audit.models import SkillAudit
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


@pytest.mark.parametrize("mode", ["auto", "semi"])
@pytest.mark.usefixtures("approver")
def test_call_that_its_limit_refuses_is_neither_predicted_nor_asked_about(loop, said, mode):
    Agent.objects.update(mode=mode)
    SkillCount.objects.create(skill="reign", hour=NOW.replace(minute=0, second=0, microsecond=0), used=20)

    with script(calls('reign(word="a")'), DONE):
        assert loop().run() == Answered("All done.")

    assert not InferenceLog.objects.filter(purpose="simulation").exists()
    assert not Approval.objects.exists()
    [told] = said(role="tool")
    assert "reign ran 20 times in this hour" in told.content
    assert SkillCount.objects.get().refused == 1
    assert SkillAudit.objects.count() == 1


def test_call_whose_arguments_do_not_fit_is_noted_where_its_level_asks_for_it(loop, session):
    with script(calls("echo(words=1)", "look(wrong=5)", 'shell(command=5, also="rm -rf /")'), DONE):
        loop().run()

    assert [(*row[:4], row[5]) for row in notes()] == [
        ("look", "CONTROLLED", None, '{"wrong":5}', session.public_id),
        ("shell", "RESTRICTED", "high", '{"also":"rm -rf /","command":5}', session.public_id),
    ]
    assert all("cannot be called like this" in row[4] for row in notes())


def test_secret_in_arguments_that_do_not_fit_is_masked(loop):
    key = "sk-ant-api03-" + "A1b2C3d4" * 11 + "abcdeAA"
    with script(calls(f'look(wrong="{key}")'), DONE):
        loop().run()
    assert key[:24] not in notes()[0][3]


def test_call_that_is_not_admitted_is_noted(loop):
    with script(calls('act(what="it")'), DONE):
        loop(admit=lambda: lambda *_: "Nobody has asked for it.").run()
    [row] = notes()
    assert row[:5] == ("act", "RESTRICTED", "low", '{"what":"it"}', "Nobody has asked for it.")


def test_skill_that_cannot_work_here_is_neither_offered_nor_predicted_nor_asked_about(loop, said):
    mail = calls('send_email(to="a@example.org", subject="s", body="b")')
    with script(mail, DONE) as model:
        assert loop().run() == Answered("All done.")

    assert "send_email" not in {tool["function"]["name"] for tool in model.requests[0].tools}
    assert not InferenceLog.objects.filter(purpose="simulation").exists()
    assert not Approval.objects.exists()
    [told] = said(role="tool")
    assert told.content == "error: send_email cannot work: no mail server is configured (LQOPS_SMTP_HOST)"
    assert [row[0] for row in notes()] == ["send_email"]
