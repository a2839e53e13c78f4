"""The step loop: what it asks, what it runs, and how it ends."""

from dataclasses import replace
from datetime import timedelta

import pytest
import time_machine

from agents.engine.loop import Answered
from agents.engine.skills import OUTPUT_CHARS
from agents.enums import Outcome, TerminalReason, WaitingOn
from agents.exceptions import BudgetExceeded, CostCapReached, SessionHalted
from agents.models import Approval, ToolCall
from agents.policy.context_window import is_paired
from agents.policy.guardrails import GuardrailsConfig, LoopConfig, Reason
from agents.providers.base import Fault, ProviderError
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import session_halt
from agents.types import Asleep, Finished, RequestedCall, SliceOver, Usage, Waiting
from audit.models import AuditEvent
from tests.factories import NOW

from .conftest import Step, calls, native, script

pytestmark = pytest.mark.django_db

DONE = Step("All done.")


@pytest.fixture(autouse=True)
def time():
    with time_machine.travel(NOW, tick=False) as travelling:
        yield travelling


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


def test_session_waits_for_a_tool_while_one_runs_and_runs_while_a_model_is_asked(loop, session, monkeypatch):
    seen = []

    def see(*_):
        seen.append(str(session.state))
        return "seen"

    monkeypatch.setattr("agents.guard.intents.perform", see)
    with script(replace(calls("look()"), before_reply=see), replace(DONE, before_reply=see)):
        loop().run()
    assert seen == ["running", "waiting_for_tool", "running"]


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


GOOD = RequestedCall("x", "look", '{"place": "a"}')


@pytest.mark.parametrize("beside", [(), (GOOD,)], ids=["alone", "beside a good one"])
@pytest.mark.parametrize("arguments", ["{bad", '{"place": "a"} x', "[1]"])
def test_native_call_that_cannot_be_read_is_told_to_the_model_and_nothing_of_its_reply_runs(
    loop, session, said, arguments, beside
):
    bad = RequestedCall("y", "look", arguments)
    with script(Step(stop_reason="tool_use", calls=(*beside, bad)), DONE) as model:
        assert loop().run() == Answered("All done.")
    assert not ToolCall.objects.filter(session=session, name="look").exists()
    told = said(role="tool")
    assert len(told) == 1 + len(beside)
    assert all(entry.failed and "The arguments of look cannot be read" in entry.content for entry in told)
    assert is_paired(model.requests[1].messages)


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_native_call_without_arguments_runs(loop, said, arguments):
    with script(Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", arguments),)), DONE):
        assert loop().run() == Answered("All done.")
    assert said(role="tool")[0].content == '{"seen":""}'


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


@pytest.mark.parametrize(
    "cut",
    [
        Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", '{"place": "a'),)),
        Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", ""),)),
        Step('<skill>look(place="a', stop_reason="end_turn"),
    ],
    ids=["native", "without arguments", "in text"],
)
def test_call_that_breaks_off_at_the_last_token_is_cut_whatever_the_server_says(loop, session, said, cut):
    full = replace(cut, usage=Usage(10, 1_024))
    with script(full, full, full):
        end = loop().run()
    assert (end.reason, "cut off" in end.error) == (TerminalReason.REFUSED, True)
    assert len(said(reason=Reason.MAX_TOKENS_RECOVERY)) == 2
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_call_that_breaks_off_before_the_last_token_is_an_error_for_the_model(loop, said):
    broken = replace(native("look"), calls=(RequestedCall("x", "look", '{"place": "a'),), usage=Usage(10, 1_023))
    with script(broken, DONE):
        assert loop().run() == Answered("All done.")
    assert not said(reason=Reason.MAX_TOKENS_RECOVERY)
    assert "Nothing of this reply was run" in said(role="tool")[0].content


@pytest.mark.parametrize("before", [(), (Step("One. ", stop_reason="max_tokens"),)], ids=["first", "continued"])
def test_text_of_a_call_that_was_cut_off_is_no_part_of_the_answer(loop, before):
    cut = Step('I will look. <skill>look(place="1+', stop_reason="max_tokens")
    with script(*before, cut, Step("The answer is 42.")):
        assert loop().run() == Answered("The answer is 42.")


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


def test_answer_is_joined_across_the_warning_of_the_budget(loop, session):
    def spend():
        type(session).objects.filter(pk=session.pk).update(cost_total_usd="4.6")

    with script(Step("one ", stop_reason="max_tokens", before_reply=spend), Step("two")):
        assert loop().run() == Answered("one two")


@pytest.mark.parametrize(("spent", "dimension"), [("total_tokens", "tokens"), ("cost_actual_usd", "cost")])
def test_reply_that_uses_up_the_budget_runs_nothing(loop, session, spent, dimension):
    session.token_budget = 100
    session.save()

    def spend():
        type(session).objects.filter(pk=session.pk).update(**{spent: 80 if dimension == "tokens" else 5})

    asking = Step('<skill>look(place="a")</skill>', usage=Usage(10, 10), before_reply=spend)
    with script(asking, DONE) as model, pytest.raises(BudgetExceeded) as stopped:
        loop().run()
    assert stopped.value.dimension == dimension
    assert len(model.requests) == 1
    assert not ToolCall.objects.filter(session=session, name="look").exists()
    refused = AuditEvent.objects.filter(chain=session.chain, details__outcome="denied").get()
    assert refused.details["detail"] == f"dimension:{dimension}"


def test_answer_that_uses_up_the_budget_counts(loop, session):
    session.token_budget = 20
    session.save()
    with script(Step("Forty-two.", usage=Usage(10, 10))):
        assert loop().run() == Answered("Forty-two.")


def test_output_that_is_too_long_is_cut_for_the_model(loop, said):
    with script(native("echo", text="x" * 1_000, times=300), DONE) as model:
        assert loop().run() == Answered("All done.")
    [told] = said(role="tool")
    assert told.content == f"{'x' * OUTPUT_CHARS}\n[cut here: the first {OUTPUT_CHARS} of 300000 characters]"
    assert len(model.requests) == 2


def test_transcript_that_is_too_long_to_be_sent_ends_the_run_clearly(loop, monkeypatch):
    monkeypatch.setattr("agents.guard.calls.MAX_ARGUMENT_CHARS", 50_000)
    with script(native("echo", text="x" * 1_000, times=60), DONE):
        end = loop().run()
    assert end.reason == TerminalReason.REFUSED
    assert "context_window" in end.error
    assert "at most 50000" in end.error


# --- Time ---


def test_time_at_work_is_counted_over_slices(loop, time, settings):
    settings.LQOPS_SLICE_SECONDS = 30
    config = LoopConfig(timeout=60)
    steps = [Step(f'<skill>look(place="{n}")</skill>', before_reply=lambda: time.shift(40)) for n in range(5)]
    with script(*steps) as model:
        assert loop(config=config).run() == SliceOver()
        time.shift(600)  # in the queue
        assert loop(config=config).run() == Finished(TerminalReason.TIMED_OUT)
    assert len(model.requests) == 2


def test_time_spent_waiting_for_a_person_does_not_count(loop, time, approver):
    config = LoopConfig(timeout=100)

    def work():
        time.shift(40)

    with script(replace(calls('act(what="it")'), before_reply=work), Step("hm"), Step("x", before_reply=work)) as model:
        assert loop(config=config).run() == Waiting(WaitingOn.APPROVAL)
        ticket = Approval.objects.get()
        time.shift(600)
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=NOW)
        assert loop(config=config).run() == Answered("x")
    assert len(model.requests) == 3


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
