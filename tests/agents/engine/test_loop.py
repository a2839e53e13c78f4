"""The step loop: requests, calls and ends."""

from dataclasses import replace
from datetime import timedelta

import pytest
import time_machine

from agents.engine.loop import Answered
from agents.engine.skills import OUTPUT_CHARS
from agents.enums import Outcome, TerminalReason, WaitingOn
from agents.exceptions import BudgetExceeded, CostCapReached, SessionHalted
from agents.models import Approval, ToolCall
from agents.policy.guardrails import GuardrailsConfig, LoopConfig, Reason
from agents.providers.base import Fault, ProviderError
from agents.sessions.approvals import approval_approve, approval_reject
from agents.sessions.halts import session_halt
from agents.types import Asleep, Finished, RequestedCall, SliceOver, Usage, Waiting
from audit.models import AuditEvent
from tests.agents.pairing import is_paired
from tests.factories import NOW

from .conftest import Step, calls, native, script

pytestmark = pytest.mark.django_db

DONE = Step("All done.")


@pytest.fixture(autouse=True)
def time():
    with time_machine.travel(NOW, tick=False) as travelling:
        yield travelling


def test_answer_without_calls_ends_the_run(loop, messages):
    with script(Step("Forty-two.")) as model:
        assert loop().run() == Answered("Forty-two.")
    assert len(model.requests) == 1
    assert [entry.role for entry in messages()] == ["system", "user", "assistant"]


@pytest.mark.parametrize("asking", [native("echo", text="hi"), calls('echo(text="hi")')], ids=["native", "tags"])
def test_result_of_a_call_goes_back_to_the_model(loop, messages, asking):
    with script(asking, DONE) as model:
        assert loop().run() == Answered("All done.")

    assert messages(role="tool")[0].content == "hi"
    second = model.requests[1].messages
    assert is_paired(second)
    assert any("hi" in message["content"] and "tool_output" in message["content"] for message in second)


def test_every_model_request_and_call_is_guarded(loop, session):
    with script(calls('look(place="a")', 'look(place="b")'), native("echo", text="x"), DONE):
        loop().run()
    started = AuditEvent.objects.filter(chain=session.chain, details__outcome="started")
    assert started.count() == 3 + 3


def test_session_state_is_waiting_for_tool_only_while_one_runs(loop, session, monkeypatch):
    seen = []

    def see(*_):
        seen.append(str(session.state))
        return "seen"

    monkeypatch.setattr("agents.guard.intents.perform", see)
    with script(replace(calls("look()"), before_reply=see), replace(DONE, before_reply=see)):
        loop().run()
    assert seen == ["running", "waiting_for_tool", "running"]


def test_request_offers_the_skills_and_states_the_remaining_budget(loop):
    with script(DONE) as model:
        loop().run()
    [request] = model.requests
    assert {tool["function"]["name"] for tool in request.tools} >= {"echo", "look", "ask_person"}
    assert request.messages[-1]["content"] == "Do it.\n\nLeft for this run: US dollars 5, steps 50."


def test_reply_with_one_unreadable_call_runs_nothing(loop, session, messages):
    with script(calls('look(place="a")', "look(place=open)"), DONE):
        assert loop().run() == Answered("All done.")
    assert not ToolCall.objects.filter(session=session, name="look").exists()
    [told] = messages(reason="skill_syntax")
    assert told.content.startswith("No call of this reply was run.")


GOOD = RequestedCall("x", "look", '{"place": "a"}')


@pytest.mark.sampled(2)
@pytest.mark.parametrize("beside", [(), (GOOD,)], ids=["alone", "beside a good one"])
@pytest.mark.parametrize("arguments", ["{bad", '{"place": "a"} x', "[1]"])
def test_reply_with_an_unreadable_native_call_runs_nothing(loop, session, messages, arguments, beside):
    bad = RequestedCall("y", "look", arguments)
    with script(Step(stop_reason="tool_use", calls=(*beside, bad)), DONE) as model:
        assert loop().run() == Answered("All done.")
    assert not ToolCall.objects.filter(session=session, name="look").exists()
    told = messages(role="tool")
    assert len(told) == 1 + len(beside)
    assert all(entry.failed and "The arguments of look cannot be read" in entry.content for entry in told)
    assert is_paired(model.requests[1].messages)


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_native_call_without_arguments_runs(loop, messages, arguments):
    with script(Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", arguments),)), DONE):
        assert loop().run() == Answered("All done.")
    assert messages(role="tool")[0].content == '{"seen":""}'


def test_unknown_skill_and_bad_arguments_return_an_error(loop, messages):
    with script(calls("nothing(a=1)", "echo(text=5)", "echo()"), DONE):
        loop().run()
    unknown, wrong, missing = messages(role="tool")
    assert "not found or disabled" in unknown.content
    assert "text: Input should be a valid string" in wrong.content
    assert "text: Field required" in missing.content


def test_run_fails_when_the_same_calls_come_a_fourth_time(loop, session):
    with script(calls('look(place="a")')):
        end = loop().run()
    assert end == Finished(TerminalReason.STUCK_LOOP, error=end.error)
    assert "max_repeated_tool_steps" in end.error
    assert ToolCall.objects.filter(session=session, name="look").count() == 3


def test_run_ends_at_its_step_limit(loop):
    counting = [calls(f'look(place="{number}")') for number in range(5)]
    with script(*counting):
        assert loop(config=LoopConfig(max_steps=3)).run() == Finished(TerminalReason.MAX_STEPS)


def test_answer_in_the_last_step_completes_the_run(loop):
    with script(calls('look(place="1")'), calls('look(place="2")'), DONE):
        assert loop(config=LoopConfig(max_steps=3)).run() == Answered("All done.")


def test_truncated_text_is_continued_and_joined(loop, messages):
    cut = Step("one ", stop_reason="max_tokens")
    with script(cut, Step("two ", stop_reason="max_tokens"), Step("three")) as model:
        assert loop().run() == Answered("one two three")
    assert len(model.requests) == 3
    assert len(messages(reason=Reason.MAX_TOKENS_RECOVERY)) == 2


def test_a_slow_model_goes_on_in_as_many_parts_as_it_takes(loop):
    part = Step("word ", stop_reason="out_of_time")
    with script(*[part] * 6, Step("end")):
        assert loop().run() == Answered("word " * 6 + "end")


def test_third_truncation_ends_the_run_normally(loop):
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "cut",
    [
        Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", '{"place": "a'),)),
        Step(stop_reason="tool_use", calls=(RequestedCall("x", "look", ""),)),
        Step('<skill>look(place="a', stop_reason="end_turn"),
    ],
    ids=["native", "without arguments", "in text"],
)
def test_incomplete_call_at_the_token_limit_counts_as_cut_off(loop, session, messages, cut):
    full = replace(cut, usage=Usage(10, 1_024))
    with script(full, full, full):
        end = loop().run()
    assert (end.reason, "cut off" in end.error) == (TerminalReason.REFUSED, True)
    assert len(messages(reason=Reason.MAX_TOKENS_RECOVERY)) == 2
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_incomplete_call_below_the_token_limit_is_an_error(loop, messages):
    broken = replace(native("look"), calls=(RequestedCall("x", "look", '{"place": "a'),), usage=Usage(10, 1_023))
    with script(broken, DONE):
        assert loop().run() == Answered("All done.")
    assert not messages(reason=Reason.MAX_TOKENS_RECOVERY)
    assert "No call of this reply was run" in messages(role="tool")[0].content


@pytest.mark.parametrize("before", [(), (Step("One. ", stop_reason="max_tokens"),)], ids=["first", "continued"])
def test_text_of_a_cut_off_call_is_not_in_the_answer(loop, before):
    cut = Step('I will look. <skill>look(place="1+', stop_reason="max_tokens")
    with script(*before, cut, Step("The answer is 42.")):
        assert loop().run() == Answered("The answer is 42.")


def test_refusal_ends_the_run_at_once_and_runs_nothing(loop, session):
    with script(Step("No.", stop_reason="refusal", calls=native("look").calls)) as model:
        end = loop().run()
    assert end.reason == TerminalReason.REFUSED
    assert len(model.requests) == 1
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_empty_answer_after_a_failure_is_challenged_twice(loop, messages):
    with script(calls('fail(words="no")'), Step("")):
        assert loop().run() == Answered("")
    assert len(messages(reason=Reason.PREMATURE_END)) == 2


def test_repeated_reading_is_nudged_once(loop, messages):
    with script(*[calls(f'look(place="{number}")') for number in range(10)], DONE):
        loop().run()
    assert len(messages(reason=Reason.READ_ONLY_NUDGE)) == 1


def test_model_is_warned_once_near_the_budget(loop, session, messages):
    session.cost_total_usd = "4.6"
    session.save()
    with script(calls('look(place="1")'), DONE):
        loop().run()
    assert len(messages(reason=Reason.NEAR_BUDGET)) == 1


def test_answer_is_joined_across_the_budget_warning(loop, session):
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


def test_long_output_is_truncated_for_the_model(loop, messages):
    with script(native("echo", text="x" * 1_000, times=300), DONE) as model:
        assert loop().run() == Answered("All done.")
    [told] = messages(role="tool")
    assert told.content == f"{'x' * OUTPUT_CHARS}\n[truncated: the first {OUTPUT_CHARS} of 300000 characters]"
    assert len(model.requests) == 2


def test_transcript_too_long_to_send_ends_the_run(loop, monkeypatch):
    monkeypatch.setattr("agents.guard.calls.MAX_ARGUMENT_CHARS", 50_000)
    with script(native("echo", text="x" * 1_000, times=60), DONE):
        end = loop().run()
    assert end.reason == TerminalReason.REFUSED
    assert "context_window" in end.error
    assert "at most 50000" in end.error


# --- Time ---


def test_working_time_is_counted_over_slices(loop, time, settings):
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


def test_permanent_provider_error_fails_the_run(loop):
    with script(Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))):
        end = loop().run()
    assert end.reason == TerminalReason.PROVIDER_ERROR


def test_halt_stops_the_run_before_its_calls(loop, session, approver):
    def halt():
        session_halt(session.pk, by=None, reason="enough", now=NOW)

    with script(Step('<skill>look(place="a")</skill>', before_reply=halt)), pytest.raises(SessionHalted):
        loop().run()
    assert not ToolCall.objects.filter(session=session, name="look").exists()


def test_next_slice_continues_where_the_last_one_ended(loop, messages, settings):
    with script(calls('look(place="1")'), calls('look(place="2")'), DONE) as model:
        work = loop()
        work._slice_started = NOW - timedelta(seconds=settings.LQOPS_SLICE_SECONDS + 1)
        assert work.run() == SliceOver()
        assert len(model.requests) == 1
        assert loop().run() == Answered("All done.")
    assert len(model.requests) == 3
    assert [entry.content for entry in messages(role="tool")] == ['{"seen":"1"}', '{"seen":"2"}']


def test_restricted_call_runs_once_after_approval(loop, session, messages, approver):
    with script(calls('act(what="it")'), Step("risky, perhaps"), DONE) as model:
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        [ticket] = Approval.objects.all()
        assert ticket.simulation == "[ANTICIPATORY SIMULATION]: risky, perhaps"
        assert ticket.arguments == {"skill": "act", "arguments": {"what": "it"}}
        approval_approve(ticket.pk, digest=ticket.digest, by=approver, now=NOW)
        assert loop().run() == Answered("All done.")
    assert len(model.requests) == 3
    assert messages(role="tool")[0].content.startswith("did it")
    assert ToolCall.objects.filter(session=session, name="act", outcome=Outcome.SUCCESS).count() == 1


def test_denied_call_returns_the_note_and_siblings_run(loop, session, messages, approver):
    with script(calls('act(what="it")', 'look(place="a")'), Step("hm"), DONE):
        assert loop().run() == Waiting(WaitingOn.APPROVAL)
        [ticket] = Approval.objects.all()
        approval_reject(ticket.pk, digest=ticket.digest, by=approver, note="not today", now=NOW)
        assert loop().run() == Answered("All done.")
    denied, sibling = messages(role="tool")
    assert "not today" in denied.content
    assert sibling.content == '{"seen":"a"}'


def test_reaching_the_cap_ends_the_run(loop, session):
    session.max_cost_usd = "0.006"
    session.save()
    with script(calls('look(place="a")'), DONE), pytest.raises(CostCapReached):
        loop().run()


def test_run_sleeps_while_its_budget_is_reserved(loop, session):
    session.cost_held_usd = "4.999"
    session.save()
    with script(DONE):
        assert loop().run() == Asleep(NOW + timedelta(seconds=30))


def test_truncation_recovery_can_be_disabled(loop):
    with script(Step("cut", stop_reason="max_tokens")) as model:
        assert loop(guardrails=GuardrailsConfig(max_tokens_recoveries=0)).run() == Answered("cut")
    assert len(model.requests) == 1
