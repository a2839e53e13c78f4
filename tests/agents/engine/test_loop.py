"""The step loop: what it asks, what it runs, and how it ends."""

from datetime import timedelta

import pytest
import time_machine

from agents.context_window import is_paired
from agents.ends import Asleep, Finished, SliceOver, Waiting
from agents.engine.loop import Answered
from agents.enums import Outcome, TerminalReason, WaitingOn
from agents.exceptions import CostCapReached, SessionHalted
from agents.guardrails import Reason
from agents.loop_config import GuardrailsConfig, LoopConfig
from agents.models import Approval, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.services.approvals import approval_approve, approval_reject
from agents.services.halts import session_halt
from audit.models import AuditEvent
from tests.factories import NOW

from .conftest import Step, calls, native, script

pytestmark = pytest.mark.django_db

DONE = Step("All done.")


@pytest.fixture(autouse=True)
def _time():
    with time_machine.travel(NOW, tick=False):
        yield


def test_answer_without_calls_is_the_end(loop, said):
    with script(Step("Forty-two.")) as model:
        assert loop().run() == Answered("Forty-two.")
    assert len(model.requests) == 1
    assert [entry.role for entry in said()] == ["system", "user", "assistant"]


@pytest.mark.parametrize("asking", [native("echo", text="hi"), calls('echo(text="hi")')], ids=["native", "tags"])
def test_result_of_a_call_goes_back_to_the_model(loop, said, asking):
    with script(asking, DONE) as model:
        assert loop().run() == Answered("All done.")

    assert said(role="tool")[0].content == "hi"
    second = model.requests[1].messages
    assert is_paired(second)
    assert any("hi" in message["content"] and "tool_output" in message["content"] for message in second)


def test_every_question_and_every_call_is_guarded(loop, session):
    with script(calls('look(place="a")', 'look(place="b")'), native("echo", text="x"), DONE):
        loop().run()
    started = AuditEvent.objects.filter(chain=session.chain, details__outcome="started")
    assert started.count() == 3 + 3


def test_model_is_offered_the_skills_and_told_what_is_left(loop):
    with script(DONE) as model:
        loop().run()
    [request] = model.requests
    assert {tool["function"]["name"] for tool in request.tools} >= {"echo", "look", "ask_person"}
    assert request.messages[-1]["content"] == "Left for this run: US dollars 5, steps 50."


def test_reply_with_one_call_that_cannot_be_read_runs_nothing_and_is_told_why(loop, session, said):
    with script(calls('look(place="a")', "look(place=open)"), DONE):
        assert loop().run() == Answered("All done.")
    assert not ToolCall.objects.filter(session=session, name="look").exists()
    [told] = said(reason="skill_syntax")
    assert told.content.startswith("Nothing of this reply was run.")


def test_unknown_skill_and_bad_arguments_are_answered_with_an_error(loop, said):
    with script(calls("nothing(a=1)", "echo(text=5)", "echo()"), DONE):
        loop().run()
    unknown, wrong, missing = said(role="tool")
    assert "not found or disabled" in unknown.content
    assert "text: Input should be a valid string" in wrong.content
    assert "text: Field required" in missing.content


def test_same_calls_run_three_times_and_the_fourth_time_the_run_fails(loop, session):
    with script(calls('look(place="a")')):
        end = loop().run()
    assert end == Finished(TerminalReason.STUCK_LOOP, error=end.error)
    assert "max_repeated_tool_steps" in end.error
    assert ToolCall.objects.filter(session=session, name="look").count() == 3


def test_steps_are_bounded_and_the_last_one_may_finish(loop):
    counting = [calls(f'look(place="{number}")') for number in range(5)]
    with script(*counting):
        assert loop(config=LoopConfig(max_steps=3)).run() == Finished(TerminalReason.MAX_STEPS)


def test_finishing_exactly_at_the_limit_is_completed(loop):
    with script(calls('look(place="1")'), calls('look(place="2")'), DONE):
        assert loop(config=LoopConfig(max_steps=3)).run() == Answered("All done.")


def test_truncated_text_is_continued_and_joined(loop, said):
    cut = Step("one ", stop_reason="max_tokens")
    with script(cut, Step("two ", stop_reason="max_tokens"), Step("three")) as model:
        assert loop().run() == Answered("one two three")
    assert len(model.requests) == 3
    assert len(said(reason=Reason.MAX_TOKENS_RECOVERY)) == 2


def test_third_truncation_is_a_normal_end(loop):
    with script(Step("more ", stop_reason="max_tokens")) as model:
        assert loop().run() == Answered("more more more ")
    assert len(model.requests) == 3


def test_truncated_call_is_never_run(loop, session):
    cut = Step('<skill>look(place="a', stop_reason="max_tokens")
    with script(cut, cut, cut):
        end = loop().run()
    assert end.reason == TerminalReason.REFUSED
    assert "cut off" in end.error
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_refusal_ends_the_run_at_once_and_runs_nothing(loop, session):
    with script(Step("No.", stop_reason="refusal", calls=native("look").calls)) as model:
        end = loop().run()
    assert end.reason == TerminalReason.REFUSED
    assert len(model.requests) == 1
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_empty_end_after_a_failure_is_objected_to_twice(loop, said):
    with script(calls('fail(words="no")'), Step("")):
        assert loop().run() == Answered("")
    assert len(said(reason=Reason.PREMATURE_END)) == 2


def test_reading_on_and_on_is_remarked_on_once(loop, said):
    with script(*[calls(f'look(place="{number}")') for number in range(12)], DONE):
        loop().run()
    assert len(said(reason=Reason.READ_ONLY_NUDGE)) == 1


def test_near_end_of_the_budget_is_told_once(loop, session, said):
    session.cost_total_usd = "4.6"
    session.save()
    with script(calls('look(place="1")'), DONE):
        loop().run()
    assert len(said(reason=Reason.NEAR_BUDGET)) == 1


def test_provider_that_fails_for_good_fails_the_run(loop):
    with script(Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))):
        end = loop().run()
    assert end.reason == TerminalReason.PROVIDER_ERROR


def test_halt_is_noticed_between_two_acts(loop, session, approver):
    def halt():
        session_halt(session.pk, by=None, reason="enough", now=NOW)

    with script(Step('<skill>look(place="a")</skill>', before_reply=halt)), pytest.raises(SessionHalted):
        loop().run()
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_slice_that_is_over_ends_after_a_step_and_the_next_goes_on(loop, said, settings):
    with script(calls('look(place="1")'), calls('look(place="2")'), DONE) as model:
        work = loop()
        work._slice_started = NOW - timedelta(seconds=settings.LQOPS_SLICE_SECONDS + 1)
        assert work.run() == SliceOver()
        assert len(model.requests) == 1
        assert loop().run() == Answered("All done.")
    assert len(model.requests) == 3
    assert [entry.content for entry in said(role="tool")] == ['{"seen":"1"}', '{"seen":"2"}']


def test_restricted_call_waits_for_a_person_and_runs_once_when_approved(loop, session, said, approver):
    with script(calls('act(what="it")'), Step("risky, perhaps"), DONE) as model:
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        [ticket] = Approval.objects.all()
        assert ticket.simulation == "[ANTICIPATORY SIMULATION]: risky, perhaps"
        assert ticket.arguments == {"skill": "act", "arguments": {"what": "it"}}
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=NOW)
        assert loop().run() == Answered("All done.")
    assert len(model.requests) == 3
    assert said(role="tool")[0].content.startswith("did it")
    assert ToolCall.objects.filter(session=session, name="act", outcome=Outcome.SUCCESS).count() == 1


def test_denied_call_is_told_with_the_note_and_its_siblings_go_on(loop, session, said, approver):
    with script(calls('act(what="it")', 'look(place="a")'), Step("hm"), DONE):
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        [ticket] = Approval.objects.all()
        approval_reject(ticket.pk, digest=ticket.digest, by=approver, note="not today", now=NOW)
        assert loop().run() == Answered("All done.")
    denied, sibling = said(role="tool")
    assert "not today" in denied.content
    assert sibling.content == '{"seen":"a"}'


def test_cap_that_is_reached_ends_the_run(loop, session):
    session.max_cost_usd = "0.006"
    session.save()
    with script(calls('look(place="a")'), DONE), pytest.raises(CostCapReached):
        loop().run()


def test_budget_that_others_hold_is_waited_for(loop, session):
    session.cost_held_usd = "4.999"
    session.save()
    with script(DONE):
        assert loop().run() == Asleep(NOW + timedelta(seconds=30))


def test_recoveries_can_be_switched_off(loop):
    with script(Step("cut", stop_reason="max_tokens")) as model:
        assert loop(guardrails=GuardrailsConfig(max_tokens_recoveries=0)).run() == Answered("cut")
    assert len(model.requests) == 1
