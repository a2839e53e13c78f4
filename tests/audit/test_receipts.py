from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from audit import kinds
from audit.kinds import KINDS
from audit.models import SYSTEM_CHAIN
from audit.receipts import (
    CHANGED_REASON,
    ENDINGS,
    LABELS,
    UnknownChain,
    build_receipt,
    event_sentence,
    fold,
    loans_sentence,
    outcome_sentence,
    receipt_text,
    spent_text,
    usd,
)
from audit.recorder import append, chain_head
from audit.rows import GENESIS, StoredRow, UnreadableRow, digest
from tests.audit.samples import NOW, RUN, edit, later, record_session, start
from tests.table import every_row

S = "autonomous_session."


def events(*facts):
    """(kind, details) or (kind, details, actor) become events a second apart."""
    return [
        StoredRow(seq, RUN, seq, kind, later(seq), actor[0] if actor else "system", "", "", details, "", f"{seq:064}")
        for seq, (kind, details, *actor) in enumerate(facts, 1)
    ]


def called(outcome, call_id="c1", **details):
    return (f"{S}tool_call", {"tool": "run_skill", "call_id": call_id, "outcome": outcome, **details})


def calls_of(*facts):
    return fold(events(*facts))["tool_calls"]


def test_nothing_folds_to_an_empty_receipt():
    receipt = fold([])
    assert (receipt["status"], receipt["rows"], receipt["head_hash"]) == ("running", 0, GENESIS)
    assert receipt["totals"] == {"charged_usd": "0.000000", "actual_usd": "0.000000", "calls": 0}


def test_scalars_come_from_the_start():
    details = {
        "mode": "phased",
        "owner_id": 7,
        "max_cost_usd": "5.00",
        "agent_id": 3,
        "asked_by": "user:7",
        "trigger_kind": "schedule",
        "trigger_ref": "9",
        "restarted_from": "old",
        "project_id": 4,
    }
    receipt = fold(events((f"{S}started", details)))
    assert {name: receipt[name] for name in details} == details
    assert receipt["started_at"] == "2026-05-04T09:00:01+00:00"


def test_running_session_has_no_end():
    receipt = fold(events((f"{S}started", {})))
    assert (receipt["status"], receipt["terminal_reason"], receipt["ended_at"]) == ("running", None, None)
    assert receipt["recorded_totals"] is None
    assert outcome_sentence(receipt) == "Still running."


@every_row(
    ("kind", "details", "status", "reason"),
    [
        ("completed", {"reason": "completed"}, "completed", "completed"),
        ("halted", {"reason": "external_halt"}, "halted", "external_halt"),
        ("failed", {"reason": "stuck_loop"}, "failed", "stuck_loop"),
        ("failed", {}, "failed", None),
        ("cost_cap_reached", {}, "halted", "cost_cap_reached"),
        ("cost_cap_reached", {"reason": "cost_cap_reached"}, "halted", "cost_cap_reached"),
    ],
)
def test_end_comes_from_the_terminal_row(kind, details, status, reason):
    receipt = fold(events((f"{S}started", {}), (f"{S}{kind}", details)))
    assert (receipt["status"], receipt["terminal_reason"]) == (status, reason)
    assert receipt["ended_at"] == "2026-05-04T09:00:02+00:00"


def test_only_the_first_terminal_row_counts():
    receipt = fold(events((f"{S}halted", {"reason": "external_halt", "calls": 3}), (f"{S}failed", {"reason": "x"})))
    assert (receipt["status"], receipt["terminal_reason"]) == ("halted", "external_halt")
    assert receipt["recorded_totals"] == {"charged_usd": None, "actual_usd": None, "tokens": None, "calls": 3}


def test_phases_are_listed_in_order():
    receipt = fold(
        events(
            (f"{S}phase_transition", {"to_phase": "intake"}),
            (f"{S}phase_transition", {"from_phase": "intake", "to_phase": "analysis"}),
        )
    )
    assert [(phase["from_phase"], phase["to_phase"]) for phase in receipt["phase_transitions"]] == [
        (None, "intake"),
        ("intake", "analysis"),
    ]


def test_call_is_one_entry():
    [call] = calls_of(
        called("started", name="send", phase="delivery", cost_usd="0.02"),
        called("success", cost_usd="0.02", actual_usd="0.015", model="offline"),
    )
    assert call == {
        "call_id": "c1",
        "tool": "run_skill",
        "name": "send",
        "phase": "delivery",
        "brake": None,
        "model": "offline",
        "detail": None,
        "budget": None,
        "projected_usd": None,
        "cap_usd": None,
        "approval_id": None,
        "what": "model call to offline",
        "outcome": "success",
        "started_at": "2026-05-04T09:00:01+00:00",
        "ended_at": "2026-05-04T09:00:02+00:00",
        "cost_usd": "0.020000",
        "actual_usd": "0.015000",
        "refused": False,
        "in_flight_at_halt": False,
    }


def test_open_call_costs_nothing_yet():
    receipt = fold(events(called("started", cost_usd="0.02")))
    [call] = receipt["tool_calls"]
    assert (call["outcome"], call["cost_usd"], call["ended_at"]) == ("started", None, None)
    assert receipt["totals"]["charged_usd"] == "0.000000"


@every_row("outcome", ["denied", "tool_not_granted", "rate_limited"])
@every_row("call_id", ["c1", None])
def test_refusal_is_an_entry_of_its_own(outcome, call_id):
    [call] = calls_of(called(outcome, call_id, detail="budget_busy"))
    assert (call["outcome"], call["refused"], call["detail"]) == (outcome, True, "budget_busy")
    assert (call["started_at"], call["ended_at"]) == (None, "2026-05-04T09:00:01+00:00")


def test_call_waiting_for_approval_is_not_refused():
    [call] = calls_of(called("approval_pending"))
    assert (call["outcome"], call["refused"]) == ("approval_pending", False)


def test_refusals_without_an_id_are_separate_entries():
    assert len(calls_of(called("denied", None), called("denied", None))) == 2


def test_call_that_ran_after_approval_is_one_entry():
    [call] = calls_of(called("approval_pending"), called("started"), called("success", cost_usd="0.01"))
    assert (call["outcome"], call["refused"], call["cost_usd"]) == ("success", False, "0.010000")


@pytest.mark.parametrize("halt", ["halt_requested", "halted", "cost_cap_reached"])
def test_calls_in_flight_at_a_halt_are_marked(halt):
    calls = calls_of(
        called("started", "before"),
        called("success", "before"),
        called("started", "across"),
        called("started", "open"),
        called("denied", "refused"),
        (f"{S}{halt}", {}),
        called("success", "across"),
    )
    assert {call["call_id"]: call["in_flight_at_halt"] for call in calls} == {
        "before": False,
        "across": True,
        "open": True,
        "refused": False,
    }


def test_decision_of_a_person_is_shown_with_the_call():
    receipt = fold(
        events(
            called("started"),
            called("unknown"),
            ("tool_call.resolved", {"call_id": "c1", "decision": "happened"}, "user:7"),
            ("tool_call.resolved", {"call_id": "nobody", "decision": "happened"}, "user:7"),
        )
    )
    [call] = receipt["tool_calls"]
    assert (call["outcome"], call["resolution"], call["resolved_by"]) == ("unknown", "happened", "user:7")
    assert len(receipt["other_events"]) == 2


def test_approvals_halts_and_other_events_are_separate_lists():
    receipt = fold(
        events(
            ("approval.requested", {"approval_id": 5, "action": "send"}),
            ("approval.approved", {"approval_id": 5}, "user:8"),
            (f"{S}halt_requested", {"halt_id": 2}, "user:9"),
            ("budget.warned", {"budget": "day", "percent": 80}),
            (f"{S}resumed", {"cause": "wake", "recoveries": 1}),
        )
    )
    assert [(found["kind"], found["actor"]) for found in receipt["approvals"]] == [
        ("approval.requested", "system"),
        ("approval.approved", "user:8"),
    ]
    assert receipt["approvals"][0]["details"] == {"approval_id": 5, "action": "send"}
    assert [(found["sentence"], found["actor"]) for found in receipt["halts"]] == [("A halt was requested.", "user:9")]
    assert [found["kind"] for found in receipt["other_events"]] == ["budget.warned", f"{S}resumed"]
    assert [found["seq"] for found in receipt["events"]] == [1, 2, 3, 4, 5]


# --- Refused calls, and reasons of halts ---


def test_refused_call_names_its_skill_and_its_brake():
    receipt = fold(events(called("denied", None, name="send", brake="approval", detail="rejected")))
    [refused] = receipt["refused_calls"]
    assert (refused["what"], refused["brake"], refused["detail"]) == ("skill send", "approval", "rejected")
    assert receipt["events"][0]["sentence"] == "Skill send: refused, by approval."


@pytest.mark.parametrize(
    ("kind", "brake", "reason"), [("halted", "R5", "external_halt"), ("cost_cap_reached", "R4", "cost_cap_reached")]
)
def test_call_at_which_a_brake_ended_the_run_is_a_refused_one(kind, brake, reason):
    ended = {"reason": reason, "tool": "run_skill", "model": "offline", "phase": "turn", "brake": brake}
    receipt = fold(events((f"{S}{kind}", ended)))
    assert receipt["refused_calls"] == [
        {
            "tool": "run_skill",
            "name": None,
            "model": "offline",
            "phase": "turn",
            "brake": brake,
            "what": "model call to offline",
            "outcome": "denied",
            "detail": reason,
            "ended_at": "2026-05-04T09:00:01+00:00",
        }
    ]
    assert receipt["tool_calls"] == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("known", "shown"), [({5: "it loops"}, "it loops"), ({5: "other"}, CHANGED_REASON), ({}, CHANGED_REASON)]
)
def test_reason_of_a_halt_is_shown_unless_it_was_changed(monkeypatch, known, shown):
    monkeypatch.setattr(kinds, "_reasons", [lambda ids: {pk: known[pk] for pk in ids if pk in known}])
    start(RUN)
    details = {"halt_id": 5, "reason_digest": digest("it loops")}
    append(RUN, f"{S}halt_requested", now=NOW, details={**details, "scope": "session"})
    append(RUN, f"{S}halted", now=NOW, details={**details, "reason": "external_halt"})
    receipt = build_receipt(RUN)
    assert [halt["reason"] for halt in receipt["halts"]] == [shown, None]
    assert receipt["halts"][0]["sentence"] == f"A halt was requested. Reason: {shown}"
    assert f"Reason: {shown}" in receipt_text(receipt)


@pytest.mark.django_db
def test_halt_without_a_reason_shows_none(monkeypatch):
    monkeypatch.setattr(kinds, "_reasons", [lambda ids: dict.fromkeys(ids, "")])
    start(RUN)
    append(RUN, f"{S}halt_requested", now=NOW, details={"halt_id": 5, "reason_digest": digest("")})
    append(RUN, f"{S}halt_requested", now=NOW, details={"halt_id": 6})
    assert [halt["sentence"] for halt in build_receipt(RUN)["halts"]] == ["A halt was requested."] * 2


@given(st.lists(st.integers(0, 10**12).map(lambda micro: Decimal(micro) / 10**6), max_size=30))
def test_totals_are_exact(amounts):
    rows = [called("success", f"c{number}", cost_usd=str(amount)) for number, amount in enumerate(amounts)]
    receipt = fold(events(*rows))
    assert Decimal(receipt["totals"]["charged_usd"]) == sum(amounts, Decimal(0))
    assert receipt["notes"] == []


@every_row("amount", ["abc", "NaN", "Infinity", "1E+30", "0.0000001", "1E-999999"])
def test_unreadable_amount_is_noted_and_not_counted(amount):
    receipt = fold(events(called("success", cost_usd=amount, actual_usd="1")))
    assert receipt["totals"] == {"charged_usd": "0.000000", "actual_usd": "1.000000", "calls": 1}
    assert receipt["notes"] == ["Row 1 has an unreadable amount."]


def test_whole_numbers_are_amounts():
    assert fold(events(called("success", cost_usd=2)))["totals"]["charged_usd"] == "2.000000"


@every_row("reason", ENDINGS)
def test_every_reason_has_a_sentence(reason):
    sentence = outcome_sentence({"status": "halted", "terminal_reason": reason})
    assert sentence.startswith(("Completed", "Halted", "Failed", "Stopped", "Refused"))


def test_unknown_reason_is_shown_as_it_is():
    assert outcome_sentence({"status": "failed", "terminal_reason": "moon"}) == "Failed: moon."


@every_row(
    ("result", "sentence"),
    [
        ("ok", "Completed."),
        ("findings", "Completed, with findings."),
        ("empty", "Completed: there was nothing to check."),
        ("partial", "Partly done: not everything was checked."),
        ("failed", "Failed: nothing was checked."),
    ],
)
def test_outcome_of_a_completed_run_goes_by_its_result(result, sentence):
    receipt = fold(events((f"{S}started", {}), (f"{S}completed", {"reason": "completed", "result": result})))
    assert (receipt["result"], outcome_sentence(receipt)) == (result, sentence)
    assert receipt["events"][-1]["sentence"] == f"Run ended: completed. Result: {result}."


def test_result_is_unknown_while_it_runs_and_for_runs_that_recorded_none():
    assert fold(events((f"{S}started", {})))["result"] is None
    receipt = fold(events((f"{S}started", {}), (f"{S}completed", {"reason": "completed"})))
    assert (receipt["result"], outcome_sentence(receipt)) == (None, "Completed.")


def lent_by(*loans):
    made = [("run.handed_on", {"child_id": child, "cap_usd": cap}) for child, cap, _ in loans]
    back = [("run.handed_back", {"child_id": child, "rest_usd": rest}) for child, _, rest in loans if rest]
    return fold(events((f"{S}started", {"max_cost_usd": "5"}), *made, *back, (f"{S}cost_cap_reached", {})))


def test_run_at_its_cap_names_what_it_has_lent():
    receipt = lent_by(("abc12345-6", "2.5", None), ("def67890-1", "1.25", "1"))
    assert receipt["loans"] == {"lent": {"abc12345-6": "2.500000"}, "spent_usd": "0.250000"}
    assert outcome_sentence(receipt) == (
        "Stopped: its next call did not fit into what it kept. Cap $5.00, of which $2.50 is lent to run abc12345 and "
        "$0.25 was spent by runs that it started. Halt or finish what holds it, or give it a higher cap."
    )


def test_run_at_its_cap_whose_runs_have_spent_it_says_so():
    receipt = lent_by(("abc12345-6", "2.5", "0.5"))
    assert "Cap $5.00, of which $2.00 was spent by runs that it started. Run again, or" in outcome_sentence(receipt)


def test_run_whose_runs_gave_everything_back_tells_of_no_loan():
    assert loans_sentence(lent_by(("abc12345-6", "2.5", "2.5"))) == ""


def test_rest_of_a_run_that_a_started_run_has_lent_to_counts_as_come_back():
    receipt = lent_by(("abc12345-6", "2.5", "1"))
    further = fold(
        events(
            (f"{S}started", {"max_cost_usd": "5"}),
            ("run.handed_on", {"child_id": "a", "cap_usd": "2.5"}),
            ("run.handed_back", {"child_id": "a", "rest_usd": "1"}),
            ("run.handed_back", {"child_id": "b", "rest_usd": "0.5"}),
        )
    )
    assert (receipt["loans"]["spent_usd"], further["loans"]["spent_usd"]) == ("1.500000", "1.000000")


def test_many_loans_are_counted():
    receipt = lent_by(*((f"run{number}", "0.5", None) for number in range(5)))
    assert "$2.50 is lent to runs run0, run1, run2 and 2 more." in loans_sentence(receipt)


def test_run_at_its_cap_names_the_cap_and_what_to_do():
    receipt = fold(events((f"{S}started", {"max_cost_usd": "0.50"}), (f"{S}cost_cap_reached", {})))
    assert outcome_sentence(receipt) == "Stopped at its cost cap of $0.50. Run again with a higher cap."


ASKED = ("approval.requested", {"approval_id": "a1", "action": "notify"})
DONE = (f"{S}completed", {"reason": "completed"})


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("rejected", "notification (denied by user:8)"),
        ("expired", "notification (no decision in time)"),
    ],
)
def test_outcome_names_what_was_not_approved_and_by_whom(answer, missing):
    receipt = fold(events(ASKED, (f"approval.{answer}", {"approval_id": "a1"}, "user:8"), DONE))
    assert outcome_sentence(receipt) == f"Completed, without: {missing}."


def test_outcome_with_every_approval_granted_is_plain():
    receipt = fold(events(ASKED, ("approval.approved", {"approval_id": "a1"}, "user:8"), DONE))
    assert outcome_sentence(receipt) == "Completed."


def test_decisions_name_the_call():
    receipt = fold(events(ASKED, ("approval.rejected", {"approval_id": "a1"}), ("approval.expired", {})))
    assert [found["sentence"] for found in receipt["approvals"]] == [
        "Approval of notification was requested.",
        "Approval of notification was denied.",
        "Approval none expired.",
    ]
    assert receipt["approvals"][1]["details"] == {"approval_id": "a1"}


@pytest.mark.parametrize(
    ("scope", "actor", "outcome"),
    [
        ("session", "user:7", "Halted by a person."),
        ("session", "command", "Halted from the command line."),
        ("organisation", "user:7", "Halted with all other work."),
    ],
)
def test_outcome_of_a_halt_names_who_halted(scope, actor, outcome):
    halted = (f"{S}halted", {"reason": "external_halt"})
    receipt = fold(events((f"{S}halt_requested", {"scope": scope}, actor), halted))
    assert outcome_sentence(receipt) == outcome


def test_labels_are_for_known_details():
    assert set(LABELS) <= {name for kind in KINDS.values() for name in kind.details}
    receipt = fold(events(called("danced", tool="sing")))
    assert [found["sentence"] for found in receipt["events"]] == ["Sing: danced."]


@every_row(
    ("details", "what"),
    [
        ({"name": "drop_table"}, "Skill drop_table"),
        ({"model": "offline"}, "Model call to offline"),
        ({"tool": "run_playbook", "model": "offline"}, "Model call to offline"),
        ({"budget": "session"}, "Model call"),
        ({}, "Skill or model call"),
        ({"tool": "notify"}, "Notification"),
    ],
)
def test_call_is_named_by_its_skill_or_model(details, what):
    receipt = fold(events(called("success", **details)))
    assert receipt["events"][0]["sentence"] == f"{what}: succeeded."
    assert receipt["tool_calls"][0]["what"].casefold() == what.casefold()


@every_row(
    ("kind", "details", "sentence"),
    [
        ("session.inputs", {"context_version": None}, "Inputs: project context version none, memories: none."),
        ("session.inputs", {"memories": 1, "context_version": 3}, "Inputs: project context version 3, memories: 1."),
        (
            f"{S}resumed",
            {"cause": "queue", "recoveries": 0},
            "Run picked up by a worker: next in the queue. Workers lost so far: 0.",
        ),
        (
            "tool_call.resolved",
            {"call_id": "c1", "decision": "did_not_happen"},
            "A person decided that call c1 did not happen.",
        ),
    ],
)
def test_sentence_has_labels_and_dashes_for_missing_details(kind, details, sentence):
    assert event_sentence(kind, details) == sentence


def test_amounts_have_two_to_six_places():
    assert [usd(None), usd(Decimal(2)), usd(Decimal("0.000161"))] == ["—", "$2.00", "$0.000161"]


@pytest.mark.parametrize(("approved", "reported"), [("0.1", "0.85"), ("0.85", "0.1")])
def test_spent_is_the_larger_ledger_and_says_so(approved, reported):
    receipt = {"totals": {"charged_usd": approved, "actual_usd": reported}, "max_cost_usd": None}
    source = f"the larger of {usd(Decimal(approved))} approved and {usd(Decimal(reported))} reported by providers"

    assert spent_text(receipt) == f"$0.85 no cap ({source})"
    assert spent_text({**receipt, "max_cost_usd": "2"}) == f"$0.85 of $2.00 ({source})"


def test_call_under_a_standing_approval_names_who_gave_it():
    standing = {"approval_id": "a1", "standing_id": "s1", "action": "drop_table", "uses": 3}
    receipt = fold(
        events(
            ("approval.standing_created", standing, "user:7"),
            ("approval.requested", {"approval_id": "a2", "action": "drop_table"}),
            ("approval.approved", {"approval_id": "a2", "standing_id": "s1"}),
            ("approval.approved", {"approval_id": "a2", "standing_id": "gone"}),
        )
    )
    assert [found["sentence"] for found in receipt["approvals"][2:]] == [
        "Approval of drop_table was granted, by user:7 (standing approval).",
        "Approval of drop_table was granted, by a standing approval.",
    ]


OUT = (f"{S}halted", {"reason": "budget_exceeded"})
SPENT = called("success", "c0", cost_usd="0.001", actual_usd="0.002")


@every_row(
    ("details", "outcome"),
    [
        (
            {"detail": "dimension:cost", "budget": "session", "projected_usd": "0.012", "cap_usd": "0.005"},
            "the next model call could have brought the budget session to $0.012, above its cap of $0.005.",
        ),
        ({"detail": "dimension:tokens", "budget": "session"}, "token budget exhausted."),
        (
            {"detail": "budget_spent", "budget": "agent:3", "projected_usd": "1.2", "cap_usd": "1"},
            "the next model call could have brought the budget agent:3 to $1.20, above its cap of $1.00.",
        ),
        (
            {"detail": "budget_spent", "budget": "owner:3/month", "projected_usd": "1.2", "cap_usd": "1"},
            "the next model call could have brought the budget owner:3 of this month to $1.20, above its cap of $1.00.",
        ),
        ({"detail": "dimension:cost", "budget": "session"}, "no budget left for the next model call."),
        ({}, "no budget left for the next model call."),
    ],
)
def test_outcome_over_budget_says_what_was_needed_and_left(details, outcome):
    receipt = fold(events(SPENT, called("denied", None, **details), OUT))
    assert outcome_sentence(receipt) == f"Halted: {outcome}"


@pytest.mark.django_db
def test_receipt_of_a_recorded_session():
    record_session()
    receipt = build_receipt(RUN)
    assert (receipt["session_id"], receipt["status"], receipt["owner_id"]) == (RUN, "completed", 7)
    assert (receipt["started_at"], receipt["ended_at"]) == (NOW.isoformat(), later(60).isoformat())
    assert receipt["totals"] == {"charged_usd": "0.020000", "actual_usd": "0.016000", "calls": 2}
    assert (receipt["rows"], receipt["head_hash"]) == (7, chain_head(RUN).hash)


@pytest.mark.django_db
def test_receipt_reads_only_the_rows_of_its_chain():
    record_session()
    with CaptureQueriesContext(connection) as queries:
        build_receipt(RUN)
    assert len(queries) == 1
    assert queries[0]["sql"].count(" FROM ") == 1


@pytest.mark.django_db
@pytest.mark.parametrize("chain", ["nobody", SYSTEM_CHAIN])
def test_only_sessions_have_receipts(chain):
    start(RUN)
    with pytest.raises(UnknownChain, match="is not the id of a recorded session"):
        build_receipt(chain)


def test_unreadable_row_is_named(unguarded):
    record_session()
    edit(RUN, 2, details=[])
    with pytest.raises(UnreadableRow, match=f"row 2 of chain {RUN}"):
        build_receipt(RUN)


@pytest.mark.django_db
def test_text_for_a_terminal():
    record_session()
    append(RUN, f"{S}tool_call", now=later(61), details={"tool": "notify", "outcome": "success", "cost_usd": "x"})
    text = receipt_text(build_receipt(RUN), {"user:7": "ada"})
    assert text.startswith(
        f"Run {RUN}, for ada: five-phase run\nTrigger: unknown\nStarted 2026-05-04 09:00:00 UTC, ended "
    )
    assert (
        "Completed.\nSpent: $0.02 of $5.00 (the larger of $0.02 approved and $0.016 reported by providers); 3 calls\n"
        in text
    )
    assert "Row 8 has an unreadable amount." in text
    assert "2026-05-04 09:00:00 UTC  ada           Run started: five-phase run, cost cap 5.00 USD." in text
    assert "for user:7" in receipt_text(build_receipt(RUN))
    assert "Result: " not in text


def test_text_for_a_terminal_names_the_result():
    ended = (f"{S}completed", {"reason": "completed", "result": "partial"})
    text = receipt_text({"session_id": RUN, **fold(events((f"{S}started", {"mode": "phased"}), ended))})
    assert "\nPartly done: not everything was checked.\nResult: partial\nSpent: " in text


@pytest.mark.django_db
@pytest.mark.parametrize(("cap", "shown"), [(None, "no cap"), ("a lot", "of a lot")])
def test_text_shows_a_missing_or_unreadable_cap(cap, shown):
    record_session()
    text = receipt_text({**build_receipt(RUN), "max_cost_usd": cap})
    assert f" {shown} (the larger of " in text
    assert "providers); 2 calls\n" in text
