"""What the guard does with a call that is allowed: record, dispatch, settle, replay."""

import math
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.db import connection, transaction

from agents.enums import HaltState, Level, Outcome, Phase, ToolIntent
from agents.exceptions import JournalMismatch, OpenTransaction
from agents.guard import calls, guard, guarded_tool_call
from agents.guard.intents import override, request_of
from agents.guard.tools import BadParams, Tool
from agents.ledger import at_once
from agents.models import AgentSession, Finding, InferenceLog, Memory, Notification, Precedent, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.text.clean import json_safe
from agents.types import Capability, Usage
from audit.models import AuditEvent
from audit.redaction import forget_known_secrets, redact_data, register_known_secrets
from audit.rows import canonical
from tests.agents.conftest import MODEL, Probe, ask, script, tool
from tests.factories import NOW, make_price, make_session
from tests.table import every_row

pytestmark = pytest.mark.django_db


def calls_on_record(session):
    rows = AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.tool_call").order_by("seq")
    return [row.details["outcome"] for row in rows]


def test_an_inference_is_reserved_before_and_charged_after_it_happens():
    make_price(MODEL, input_usd="3", output_usd="15", overhead_tokens=1_000)
    session = make_session(current_phase=Phase.ANALYSIS)
    seen = {}

    def look():
        row = AgentSession.objects.get(pk=session.pk)
        seen["reserved"], seen["charged"], seen["held"] = row.cost_reserved_usd, row.cost_total_usd, row.cost_held_usd
        seen["outcomes"] = calls_on_record(session)

    with script(Step("fine", usage=Usage(1000, 500), before_reply=look)):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(max_tokens=500), now=NOW)
    session.refresh_from_db()
    assert seen["reserved"] == Decimal("0.005")
    assert seen["charged"] == 0
    assert seen["held"] > 0
    assert seen["outcomes"] == ["started"]
    assert result.data == {"text": "fine", "stop_reason": "end_turn", "full": True}
    assert (session.cost_total_usd, session.cost_reserved_usd) == (Decimal("0.005"), 0)
    assert (session.cost_actual_usd, session.cost_held_usd) == (Decimal("0.0105"), 0)
    assert session.total_tokens == 1500
    assert session.last_activity_at >= NOW
    assert calls_on_record(session) == ["started", "success"]


def test_the_decimal_that_was_approved_is_the_one_that_is_charged(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    answers = iter([Decimal("0.004000"), Decimal(9)])
    with patch.object(guard, "estimate_tool_cost", side_effect=lambda *a, **k: next(answers)) as estimator:
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    session.refresh_from_db()
    assert estimator.call_count == 1
    assert result.cost_usd == session.cost_total_usd == Decimal("0.004")


def test_tiny_estimates_are_rounded_up_once_and_add_up(provider):
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(current_phase=Phase.ANALYSIS)
    with patch.object(guard, "estimate_tool_cost", return_value=Decimal("0.0000004")):
        for _ in range(20):
            assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask()).cost_usd == Decimal("0.000001")
    session.refresh_from_db()
    assert session.cost_total_usd == Decimal("0.000020")


def test_every_call_of_a_model_is_logged_also_a_failing_one():
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    with script(Step("ok"), Step(error=ProviderError("503 from the model server", fault=Fault.INVALID_REQUEST))):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), now=NOW)
        failed = guarded_tool_call(session, ToolIntent.RUN_PLAYBOOK, ask(purpose="judge"), now=NOW)
    logged = InferenceLog.objects.order_by("pk").values_list("purpose", "outcome", "provider")
    assert list(logged) == [
        ("autonomous_executor", "success", "scripted"),
        ("judge", "gateway_error", "scripted"),
    ]
    assert failed.outcome == Outcome.GATEWAY_ERROR
    assert "503" in failed.error
    assert calls_on_record(session)[-1] == "gateway_error"


def test_a_model_that_refuses_is_logged_as_refusing():
    make_price(MODEL)
    with script(Step("I cannot help with that.", stop_reason="refusal")):
        guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask())
    assert InferenceLog.objects.get().refused


def test_a_handler_asks_its_model_once_under_one_authorisation(provider):
    make_price(MODEL)

    def greedy(context, params):
        context.infer()
        context.infer()

    twice = Tool(greedy, Capability("greedy", level=Level.SAFE), remote=True, request=request_of)
    with override({ToolIntent.RUN_SKILL: twice}):
        result = guarded_tool_call(make_session(), ToolIntent.RUN_SKILL, ask())
    assert result.outcome == Outcome.ERROR
    assert "asks its model once" in result.error
    assert len(provider.requests) == 1


def test_a_failed_call_is_charged_and_booked_at_its_worst_case_when_nothing_was_reported():
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    with script(Step(error=ProviderError("timed out", fault=Fault.INVALID_REQUEST))):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    call = ToolCall.objects.get()
    session.refresh_from_db()
    assert session.cost_total_usd == Decimal("0.005")
    assert session.cost_actual_usd == call.held_usd > 0


def test_a_failed_call_is_booked_at_what_it_reported():
    make_price(MODEL, input_usd="1", output_usd="1", overhead_tokens=1_000)
    session = make_session(current_phase=Phase.ANALYSIS)
    with script(Step(error=ProviderError("broken stream", fault=Fault.INVALID_REQUEST, usage=Usage(100, 20)))):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    session.refresh_from_db()
    assert session.cost_actual_usd == Decimal("0.000120")


def test_a_provider_that_was_never_reached_costs_nothing():
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())  # nobody serves the model
    session.refresh_from_db()
    assert result.outcome == Outcome.GATEWAY_ERROR
    assert result.cost_usd == 0
    assert (session.cost_total_usd, session.cost_actual_usd, session.cost_reserved_usd) == (0, 0, 0)


def test_inference_is_anonymised_unless_told_otherwise(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(anonymize=False))
    assert [request.anonymize for request in provider.requests] == [True, False]
    last = AuditEvent.objects.filter(chain=session.chain, details__outcome="started").latest("seq")
    assert last.details["anonymize"] is False


@pytest.mark.parametrize(
    ("phase", "intent", "params", "model"),
    [
        (Phase.DRAFTING, ToolIntent.EMIT_FINDING, {"title": "t", "content": "c", "severity": "odd"}, Finding),
        (Phase.DRAFTING, ToolIntent.PROPOSE_MEMORY, {"content": "note"}, Memory),
        (Phase.DRAFTING, ToolIntent.PROPOSE_PRECEDENT, {"pattern_kind": "p", "summary": "s"}, Precedent),
        (Phase.DELIVERY, ToolIntent.NOTIFY, {"title": "t"}, Notification),
    ],
)
def test_a_local_intent_writes_its_row_for_the_owner_at_no_cost(phase, intent, params, model):
    session = make_session(current_phase=phase, max_cost_usd=Decimal(0))
    result = guarded_tool_call(session, intent, params, now=NOW)
    assert (result.outcome, result.cost_usd) == (Outcome.SUCCESS, 0)
    assert model.objects.count() == 1
    assert calls_on_record(session) == ["started", "success"]
    session.refresh_from_db()
    assert session.last_activity_at == NOW


def test_a_local_call_joins_the_transaction_of_its_caller():
    session = make_session(current_phase=Phase.DRAFTING)
    with transaction.atomic():
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "t"})
        transaction.set_rollback(True)
    assert not Finding.objects.exists()
    assert not AuditEvent.objects.exists()
    assert not ToolCall.objects.exists()


def test_a_remote_call_refuses_an_open_transaction_before_anything_is_written(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    with transaction.atomic(), pytest.raises(OpenTransaction):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    assert provider.requests == []
    assert not AuditEvent.objects.exists()


def test_a_handler_that_raises_leaves_no_effect_and_an_honest_record():
    session = make_session(current_phase=Phase.DRAFTING)

    def write_and_raise(context, params):
        Finding.objects.create(session_id=context.session_pk)
        raise RuntimeError("disk full")

    with tool(ToolIntent.EMIT_FINDING, probe=write_and_raise, remote=False):
        result = guarded_tool_call(session, ToolIntent.EMIT_FINDING, {})
    assert (result.outcome, result.error) == (Outcome.ERROR, "RuntimeError: disk full")
    assert not Finding.objects.exists()
    assert calls_on_record(session) == ["started", "error"]


def test_bad_parameters_are_a_clear_error():
    session = make_session(current_phase=Phase.DELIVERY)
    result = guarded_tool_call(session, ToolIntent.NOTIFY, {})
    assert result.error == "BadParams: 'title' is missing."


@every_row(
    ("params", "says"),
    [
        ("text", "an object, not str"),
        ({"prompt": "x"}, "'model' is missing"),
        ({"model": "two words", "prompt": "x"}, "without spaces"),
        ({"model": "", "prompt": "x"}, "without spaces"),
        ({"model": 3, "prompt": "x"}, "must be text"),
        ({"model": "m"}, "'prompt' is missing"),
        ({"model": "m", "messages": "hello"}, "list of objects"),
        ({"model": "m", "messages": ["hello"]}, "list of objects"),
        ({"model": "m", "prompt": "x", "max_tokens": 0}, "from 1 to"),
        ({"model": "m", "prompt": "x", "max_tokens": 10**18}, "from 1 to"),
        ({"model": "m", "prompt": "x", "max_tokens": True}, "from 1 to"),
        ({"model": "m", "prompt": "x", "purpose": "fun"}, "'purpose' must be one of"),
    ],
)
def test_a_call_that_makes_no_sense_is_explained_before_anything_is_read_or_written(params, says):
    session = make_session(current_phase=Phase.ANALYSIS)
    with pytest.raises(ValueError, match=says):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, params)
    assert not AuditEvent.objects.exists()


def test_a_call_that_is_too_long_is_explained_before_anything_is_written(monkeypatch):
    assert calls.MAX_ARGUMENT_CHARS == 8_000_000
    monkeypatch.setattr(calls, "MAX_ARGUMENT_CHARS", 1_000)
    session = make_session(current_phase=Phase.ANALYSIS)
    with pytest.raises(ValueError, match="characters long; at most 1000 are taken"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"model": "m", "prompt": "x" * 1_001})
    assert not AuditEvent.objects.exists()


def test_offered_skills_are_stored_as_all_other_parameters_are():
    """They are remembered from request to request; what is remembered is what would be made anew."""
    known, odd = "Grünwalder-Forst-17", Level.SAFE
    offer = {
        "type": "function",
        "function": {
            "name": "send", "description": f"token ghp_{'a1B2' * 9}, {known}\x00", "level": (1, True),
            "default": math.nan,
            "parameters": {"password": "hunter2hunter2", "key": {"$secret": "mail"}, "any": None, "rate": 1.0, 5: "x"},
        },
    }  # fmt: skip

    def stored(**more):
        arguments = calls.usable(ToolIntent.RUN_SKILL, ask(tools=[offer], **more)).arguments
        assert arguments == redact_data(json_safe(ask(tools=[offer], **more)))
        assert list(arguments) == list(ask(tools=[offer], **more))
        return arguments

    first = stored()
    assert "ghp_" not in str(first)
    assert known in str(first)
    first["tools"][0]["function"]["name"] = "another"  # whoever changes its own changes nobody else's
    assert stored()["tools"][0]["function"]["name"] == "send"
    register_known_secrets([known])
    try:
        assert known not in str(stored())
    finally:
        forget_known_secrets()
    offer["function"]["level"] = odd  # beyond plain JSON
    stored()
    offer["function"]["level"] = "x" * calls.MOST_REMEMBERED
    stored()


def test_offered_skills_count_for_the_length_of_a_call(monkeypatch):
    given = ask(tools=[{"type": "function", "function": {"name": "send", "description": "é" * 50}}])
    size = len(canonical(given))
    monkeypatch.setattr(calls, "MAX_ARGUMENT_CHARS", size)
    calls.usable(ToolIntent.RUN_SKILL, given)
    monkeypatch.setattr(calls, "MAX_ARGUMENT_CHARS", size - 1)
    with pytest.raises(BadParams, match=f"the parameters are {size} characters long"):
        calls.usable(ToolIntent.RUN_SKILL, given)


def test_a_finished_call_is_replayed_without_a_second_effect_or_charge(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    first = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="analysis:1")
    again = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="analysis:1")
    session.refresh_from_db()
    assert (again.data, again.cost_usd, again.call_id) == (first.data, first.cost_usd, first.call_id)
    assert again.replayed
    assert not first.replayed
    assert len(provider.requests) == 1
    assert session.cost_total_usd == first.cost_usd
    assert calls_on_record(session) == ["started", "success"]


def test_another_call_at_the_same_place_of_the_run_is_refused(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key="analysis:1")
    with pytest.raises(JournalMismatch):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(prompt="something else"), key="analysis:1")
    assert len(provider.requests) == 1


def test_a_halt_between_authorisation_and_the_first_byte_still_stops_it(provider):
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)
    real = guard.is_halted

    def halt_first(held):
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)
        return real(held)

    with patch.object(guard, "is_halted", side_effect=halt_first):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, ask())
    session.refresh_from_db()
    assert provider.requests == []
    assert (result.outcome, result.detail, result.cost_usd) == (Outcome.DENIED, "halted_before_dispatch", 0)
    assert (session.cost_total_usd, session.cost_reserved_usd, session.cost_held_usd) == (0, 0, 0)
    assert session.halt_state == HaltState.HALT_REQUESTED


def test_settling_does_not_undo_a_halt_that_came_in_meanwhile():
    make_price(MODEL)
    session = make_session(current_phase=Phase.ANALYSIS)

    def halt():
        AgentSession.objects.update(halt_state=HaltState.HALT_REQUESTED)

    with script(Step("late", before_reply=halt)):
        assert guarded_tool_call(session, ToolIntent.RUN_SKILL, ask()).ok
    session.refresh_from_db()
    assert session.halt_state == HaltState.HALT_REQUESTED
    assert session.cost_total_usd == Decimal("0.005")


def test_a_masked_secret_in_the_arguments_of_an_act_is_refused():
    session = make_session(current_phase=Phase.TURN)
    secret = "sk-ant-api03-" + "x7Qa" * 24 + "AA"
    with tool(probe=Probe(), level=Level.SAFE) as probe:
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, {"arguments": {"text": f"key {secret}"}})
        allowed = guarded_tool_call(session, ToolIntent.RUN_SKILL, {"arguments": {"key": {"$secret": "mail"}}})
    assert (result.outcome, result.detail) == (Outcome.DENIED, "secret_in_arguments")
    assert allowed.ok
    assert len(probe.calls) == 1
    assert calls_on_record(session) == ["denied", "started", "success"]


def test_what_a_tool_returns_is_redacted_before_it_is_stored_or_returned():
    session = make_session(current_phase=Phase.TURN)
    secret = "ghp_" + "a1B2" * 9
    with tool(probe=Probe({"header": f"token {secret}"})):
        result = guarded_tool_call(session, ToolIntent.RUN_SKILL, {})
    assert secret not in str(result.data)
    assert secret not in str(ToolCall.objects.get().result)


def test_the_record_holds_no_content():
    canary = "canary-Maria-Schmidt"
    session = make_session(current_phase=Phase.DRAFTING)
    guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": canary, "content": canary})
    assert canary in Finding.objects.get().content
    assert not any(canary in str(details) for details in AuditEvent.objects.values_list("details", flat=True))


def _counted(session, intent, params, django_assert_max_num_queries, limit):
    with django_assert_max_num_queries(100) as seen:
        assert guarded_tool_call(session, intent, params, now=NOW + timedelta(seconds=1)).ok
    bookkeeping = ("SAVEPOINT", "RELEASE", "BEGIN", "COMMIT")
    own_rows = ('INSERT INTO "agents_inferencelog"', 'INSERT INTO "agents_finding"')
    counted = [q["sql"] for q in seen.captured_queries if not q["sql"].startswith((*bookkeeping, *own_rows))]
    assert len(counted) <= limit, "\n".join(counted)
    return len(counted)


def test_a_priced_call_takes_at_most_14_statements_and_a_local_one_8_however_long_the_session(
    django_assert_max_num_queries, provider, monkeypatch
):
    monkeypatch.setattr(at_once, "WAITED_SECONDS", math.inf)
    make_price(MODEL, input_usd="0", output_usd="0")
    session = make_session(current_phase=Phase.TURN, max_cost_usd=Decimal(1_000))
    guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), now=NOW)  # opens the day's books, fills the estimate
    first = [
        _counted(session, ToolIntent.RUN_SKILL, ask(), django_assert_max_num_queries, 14),
        _counted(session, ToolIntent.EMIT_FINDING, {}, django_assert_max_num_queries, 8),
    ]
    for _ in range(50):
        guarded_tool_call(session, ToolIntent.EMIT_FINDING, {}, now=NOW)
    later = [
        _counted(session, ToolIntent.RUN_SKILL, ask(), django_assert_max_num_queries, 14),
        _counted(session, ToolIntent.EMIT_FINDING, {}, django_assert_max_num_queries, 8),
    ]
    assert first == later
    assert connection.vendor in {"sqlite", "postgresql"}


def test_call_that_is_not_open_has_no_journal_row():
    call = calls.plan_call(make_session(), ToolIntent.NOTIFY, {"title": "t", "body": "b"}, key="k", now=NOW)
    with pytest.raises(RuntimeError, match="notify at k is not open"):
        _ = call.journal


@pytest.mark.parametrize("key", ["two words", "k" * (calls.MAX_KEY + 1), "é", "a\n"])
def test_a_key_that_is_no_label_is_refused_before_anything_is_written(key):
    session = make_session(current_phase=Phase.ANALYSIS)
    with pytest.raises(BadParams, match="must be a label of at most"):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, ask(), key=key, now=NOW)
    assert not ToolCall.objects.exists()
