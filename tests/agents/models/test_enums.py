"""The words of the domain are closed sets, and their values are contract."""

import pytest

from agents import enums
from agents.types import ZERO, ToolResult
from tests.table import every_row

CLOSED = {
    "ToolIntent": (
        "retrieve_chunks run_skill run_playbook propose_memory propose_precedent emit_finding emit_artifact notify"
    ),
    "Phase": "intake analysis drafting ethics_review delivery turn",
    "Mode": "phased loop chat heartbeat sensor index",
    "Status": "queued running sleeping waiting completed halted failed",
    "HaltState": "running halt_requested halted idle",
    "WaitingOn": "approval input operator model resume runs",
    "TerminalReason": (
        "completed agent_shutdown external_halt timed_out max_steps budget_exceeded cost_cap_reached idle_timeout "
        "stuck_loop provider_error tool_not_granted worker_error worker_lost opted_out refused unpriced_model"
    ),
    "RunResult": "ok findings empty partial failed",
    "AgentState": (
        "running waiting_for_tool waiting_for_input waiting_for_approval waiting_for_model waiting_for_runs "
        "sleeping paused completed error cancelled timed_out max_steps budget_exceeded"
    ),
    "Brake": "R4 R5 R6 approval rate_limit arguments skill rule",
    "RuleEffect": "allow ask deny",
    "Outcome": (
        "started success tool_not_granted gateway_error skipped storage_error rate_limited denied approval_pending "
        "worker_lost error timeout unknown"
    ),
    "TriggerKind": "watch schedule event manual suggestion",
    "ApprovalMode": "auto semi manual",
    "Level": "SAFE MONITORED CONTROLLED RESTRICTED PRIVILEGED",
    "Risk": "low medium high",
    "ApprovalStatus": "pending approved rejected expired cancelled",
    "Purpose": "chat judge embedding autonomous_executor simulation precheck signal compaction test",
    "Urgency": "0 1",
    "BudgetScope": "installation owner project agent trigger",
    "BudgetPeriod": "day month",
    "HaltScope": "session organisation",
    "PauseScope": "session agent trigger organisation",
    "DocumentOrigin": "upload artifact",
    "ProposalStatus": "proposed accepted rejected retired",
    "PrecedentEnd": "dismissed expired merged",
    "EventSeverity": "info caution warning critical",
    "EventOutcome": "spawned no_match refused",
    "OutboxStatus": "pending sent failed",
    "NoticeKind": (
        "agent run_stopped run_findings run_completed approval_waiting approval_escalated delegated question_waiting "
        "trigger_paused outcome_unknown watch_behind "
        "sensor_failing model_away model_back loop_waiting input_given_up finding budget channel_failing fault "
        "sign_in"
    ),
    "News": "decisions failures findings messages money installation successes",
    "NewsChoice": "always now digest off",
    "ChannelKind": "email webhook chat",
    "InputState": "queued retrying given_up dismissed",
    "QuestionStatus": "pending answered expired cancelled",
    "FindingState": "open acknowledged dismissed resolved expired",
    "QuoteCheck": "verified unverified",
    "AnalysisMode": "single agentic",
    "TurnState": "open done skipped failed",
    "HotSource": "sensor refresh agent",
    "SensorKind": "poll watch stream",
    "SensorState": "waiting fine failing unresolved invalid",
    "EventKind": (
        "autonomy:turn_started autonomy:turn_completed autonomy:precheck_skipped autonomy:guardrail_triggered "
        "autonomy:sensor_updated autonomy:sensor_error autonomy:notification_pushed approval:requested "
        "approval:resolved session:error"
    ),
}


@every_row("name", CLOSED)
def test_the_set_is_exactly_this_one(name):
    assert [str(value) for value in getattr(enums, name).values] == CLOSED[name].split()


def test_no_other_set_exists():
    made_here = {name for name, item in vars(enums).items() if getattr(item, "__module__", "") == enums.__name__}
    assert {name for name in made_here if not name.startswith("_")} == set(CLOSED)


@every_row("name", CLOSED)
@every_row("stranger", ["", "delete_project", "no_such_word", "Running", None])
def test_a_word_outside_of_the_set_is_refused(name, stranger):
    with pytest.raises(ValueError, match="is not a valid"):
        getattr(enums, name)(stranger)


def test_no_outcome_but_success_is_a_success():
    assert [outcome for outcome in enums.Outcome if ToolResult(ZERO, None, outcome).ok] == ["success"]


def test_levels_rise_in_the_order_of_their_declaration():
    assert [level.rank for level in enums.Level] == [0, 1, 2, 3, 4]
    assert enums.Level.SAFE.rank < enums.Level.CONTROLLED.rank < enums.Level.PRIVILEGED.rank


def test_the_five_phases_are_declared_in_the_order_they_are_walked_in():
    assert list(enums.Phase)[:5] == ["intake", "analysis", "drafting", "ethics_review", "delivery"]
