"""Whole walks with a scripted model: what each kind of run leaves behind, and what it does not."""

import json
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
import time_machine
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.conf import clock
from agents.enums import Outcome, RunResult, Status, TerminalReason, ToolIntent
from agents.knowledge.documents import document_delete
from agents.knowledge.playbooks import playbook_delete
from agents.models import AgentSession, Document, InferenceLog, Memory, Notification, Precedent
from agents.policy.costs import COLD_START_USD
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import Step
from agents.sessions import fairness
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_enter_phase
from agents.types import SliceOver, Usage
from agents.walk.intake import Slice
from agents.walk.walk import walk
from audit.models import AuditEvent
from tests.agents.conftest import Probe, tool
from tests.agents.walk.scene import LEASE, PHASES, QUOTE, Scene, blocks_of, intents, model, phases, reply, run
from tests.executed import counted, executed_statements
from tests.factories import NOW, make_trigger, make_user, start_run

pytestmark = pytest.mark.django_db


MOST_STATEMENTS = 130 if connection.vendor == "sqlite" else 105  # of a run with findings, beside those of the guard


def titles(session):
    return [finding.title for finding in session.findings.all()]


def test_a_quote_that_the_model_set_otherwise_is_stored_as_the_document_says_it(scene):
    document = scene.document("The land-\nlord may end the\n\n\f“lease”  at once.")
    told = [{"title": "Ends", "content": "At once.", "quote": 'The landlord may end the "lease" at once.', "start": 0}]
    with model(reply(findings=told)):
        session = run(scene.session(document=str(document.public_id)))

    found = session.findings.get(title="Ends")
    assert (found.quote, found.quote_check) == (document.text, "verified")
    assert document.text[found.quote_start : found.quote_end] == found.quote


def test_findings_name_the_position_of_the_playbook_that_they_are_about(scene):
    told = {
        "Pays late": {"position": "payment  TERMS"},
        "Payment terms: 60 days, not 30": {"position": "Made up"},
        "Prepayment terms are missing": {},
        "Renews": {"position": "<script>x</script>"},
    }
    with model(reply(findings=[{"title": title, "content": "c", **more} for title, more in told.items()])):
        session = run(scene.of_document())

    found = {row.title: (row.playbook, row.position, row.about_run) for row in session.findings.all()}
    about = (scene.playbook, "Payment terms", False)
    assert found == {
        "Pays late": about,
        "Payment terms: 60 days, not 30": about,
        "Prepayment terms are missing": (None, "", False),
        "Renews": (None, "", False),
        "Ethics review: none flagged": (None, "", True),
    }


def test_flagged_concerns_are_work_and_notes_of_the_run_are_not(scene):
    with model(reply(findings=[], privilege_concerns=["Marked secret"])):
        flagged = run(scene.of_document())
    assert list(flagged.findings.values_list("title", "about_run")) == [("Ethics review: 1 flagged", False)]
    empty = run(scene.session())
    assert set(empty.findings.values_list("about_run", flat=True)) == {True}


def test_a_whole_run_walks_five_phases_and_leaves_what_the_model_said(scene):
    document = scene.document()
    with model() as asked:
        session = run(scene.session(document=str(document.public_id), max_cost_usd=Decimal("1.00")))

    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED), session.error
    assert phases(session) == PHASES
    assert titles(session) == ["Pays late", "Renews", "Ethics review: none flagged"]
    quoted, guessed, ethics = session.findings.all()
    assert (quoted.document, quoted.quote_check, quoted.quote) == (document, "verified", QUOTE)
    assert document.text[quoted.quote_start : quoted.quote_end] == QUOTE
    assert (guessed.document, guessed.quote_check, guessed.quote_start) == (None, "unverified", None)
    assert "not an independent judgement" in ethics.content
    assert Memory.objects.get().state == "proposed"
    assert Precedent.objects.get().observed_count == 1
    assert len(asked.requests) == 1
    assert session.cost_total_usd == COLD_START_USD
    assert intents(session) == [
        ("intake", "retrieve_chunks"),
        ("analysis", "run_playbook"),
        ("drafting", "emit_finding"),
        ("drafting", "emit_finding"),
        ("drafting", "propose_memory"),
        ("drafting", "propose_precedent"),
        ("ethics_review", "emit_finding"),
        ("delivery", "notify"),
    ]
    assert session.metadata["empty"] is False


def test_the_notice_holds_counts_and_the_way_to_the_receipt_only(scene):
    odd = {"title": "canary-1", "severity": "canary-2", "content": "canary-3"}
    told = json.loads(reply(privilege_concerns=["canary-4"]))
    with model(json.dumps({**told, "findings": [*told["findings"], odd]})):
        session = run(scene.of_document(f"{LEASE} canary-5"))
    notice = Notification.objects.get(session=session)
    assert notice.title == f"Run completed: 3 findings, 1 concern, lease.txt by {scene.playbook.name}"
    assert notice.body.splitlines() == [
        "Findings: 1 critical, 1 warn, 1 other.",
        "1 memory proposed.",
        "1 precedent noted.",
        "Privilege or scope concerns: 1.",
        f"Receipt: /receipts/{session.chain}/",
    ]
    recorded = json.dumps([session.result, *AuditEvent.objects.values_list("details", flat=True)])
    assert "canary" not in recorded + notice.title + notice.body


def test_a_second_run_counts_the_precedent_again(scene):
    with model():
        run(scene.of_document())
        run(scene.of_document("Another text."))
    assert Precedent.objects.get().observed_count == 2


@pytest.mark.parametrize(
    "failing",
    [
        Step(error=ProviderError("The server said no.", fault=Fault.AUTH)),
        Step(""),
        Step("  \n "),
        Step("I would rather not.", stop_reason="refusal"),
    ],
    ids=["error", "empty", "blank", "refusal"],
)
def test_an_analysis_that_failed_is_told_honestly_and_nothing_is_made_up(scene, failing):
    with model(failing):
        session = run(scene.of_document())
    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    [finding] = session.findings.all()
    assert (finding.severity, finding.title) == ("warn", "Analysis failed: nothing was produced")
    assert session.cost_total_usd == (0 if failing.error else COLD_START_USD), "a refused key costs nothing"
    assert (Memory.objects.count(), Precedent.objects.count()) == (0, 0)
    assert phases(session) == PHASES
    assert Notification.objects.get().title.startswith("Run failed: nothing was checked, lease.txt")
    assert session.metadata["empty"] is True
    assert session.tool_calls.get(key="analysis:1").outcome == Outcome.GATEWAY_ERROR
    rows = AuditEvent.objects.filter(chain=session.chain, details__tool="run_playbook").order_by("seq")
    assert [row.details["outcome"] for row in rows] == ["started", "gateway_error"]


def test_what_a_refused_answer_really_cost_is_in_the_books(scene):
    with model(Step("No.", usage=Usage(10, 10), stop_reason="refusal")):
        session = run(scene.of_document())
    assert session.tool_calls.get(key="analysis:1").tokens == 20
    assert InferenceLog.objects.get(session=session).refused


def test_runs_that_could_not_ask_the_model_pause_their_trigger_as_failing(scene):
    trigger = make_trigger(owner=scene.owner, pause_after=2)
    fails = Step(error=ProviderError("no", fault=Fault.AUTH))
    with model(fails, fails):
        for text in (LEASE, "Another text."):
            run(scene.of_document(text, trigger=trigger))
    trigger.refresh_from_db()
    assert (trigger.pause_reason, trigger.failed_in_a_row, trigger.empty_in_a_row) == ("failing", 2, 0)
    told = Notification.objects.get(kind="trigger_paused").body
    assert "the model could not be asked" in told


def test_a_schedule_sets_a_baseline_and_then_reads_exactly_what_came_since(scene):
    scene.document("An old document.", at=NOW - timedelta(days=1))
    collection = str(scene.collection.public_id)
    with model() as asked:
        first = run(scene.session(collection=collection, baseline=True))
        between = scene.document(at=NOW + timedelta(minutes=1))
        asked_for = scene.session(collection=collection, since=NOW.isoformat(), baseline=False)
        AgentSession.objects.filter(pk=asked_for.pk).update(created_at=NOW + timedelta(minutes=2))
        scene.document("It came while the run was on its way.", at=NOW + timedelta(minutes=3))
        second = run(asked_for)

    assert [(one.severity, one.title) for one in first.findings.all()] == [("info", "Baseline set")]
    assert (first.cost_total_usd, first.status, phases(first)) == (0, Status.COMPLETED, PHASES)
    assert first.metadata["empty"] is True
    assert not first.notifications.exists()
    assert [block.attributes["id"] for block in blocks_of(asked.requests[0]) if block.kind == "document"] == [
        str(between.public_id)
    ]
    assert len(asked.requests) == 1
    assert {one.document for one in second.findings.filter(quote_check="verified")} == {between}


@pytest.mark.parametrize("narrowed", [True, False], ids=["in a collection", "anywhere"])
def test_a_schedule_by_a_query_sets_a_baseline_and_then_reads_only_what_is_new(scene, narrowed):
    scene.document("An old document on invoices.", at=NOW - timedelta(days=1))
    asked_for = {"query": "invoices", **({"collection": str(scene.collection.public_id)} if narrowed else {})}
    with model() as asked:
        first = run(scene.session(**asked_for, since=None, baseline=True))
        between = scene.document(at=NOW + timedelta(minutes=1))
        scene.document("Nothing of the kind.", at=NOW + timedelta(minutes=1))
        second = scene.session(**asked_for, since=NOW.isoformat(), baseline=False)
        AgentSession.objects.filter(pk=second.pk).update(created_at=NOW + timedelta(minutes=2))
        second = run(second)
        third = run(scene.session(**asked_for, since=(NOW + timedelta(minutes=2)).isoformat(), baseline=False))

    assert [(one.severity, one.title) for one in first.findings.all()] == [("info", "Baseline set")]
    assert (first.cost_total_usd, intents(first)) == (0, [("drafting", "emit_finding")])
    [request] = asked.requests
    assert [block.attributes["id"] for block in blocks_of(request) if block.kind == "document"] == [
        str(between.public_id)
    ]
    assert (titles(third), third.cost_total_usd) == (["Nothing new since the last run"], 0)


@pytest.mark.parametrize(
    ("params", "title"),
    [
        ({"since": NOW.isoformat()}, "Nothing new since the last run"),
        ({}, "Nothing to read"),
        ({"query": "zeppelin"}, "Nothing to read"),
    ],
)
def test_a_run_with_nothing_to_read_says_so_and_is_quiet(scene, params, title):
    with model() as asked:
        session = run(scene.session(collection=str(scene.collection.public_id), **params))
    assert [(one.severity, one.title) for one in session.findings.all()] == [("info", title)]
    assert (asked.requests, session.cost_total_usd, Notification.objects.count()) == ([], 0, 0)
    assert session.metadata["empty"] is True


def test_a_run_that_was_given_nothing_at_all_fetches_nothing(scene):
    with model():
        session = run(scene.session())
    assert titles(session) == ["Nothing to read"]
    assert intents(session) == [("drafting", "emit_finding")]


def test_a_run_by_a_playbook_alone_completes_costs_nothing_and_says_that_it_was_given_nothing(scene):
    with model() as asked:
        session = run(start_run(owner=scene.owner, by=scene.owner, now=clock(), playbook=scene.playbook))
    [note] = session.findings.all()
    assert (note.severity, note.title) == ("info", "Nothing to read")
    assert note.content.startswith("The run was given no document")
    assert (session.status, session.cost_total_usd, asked.requests) == (Status.COMPLETED, 0, [])


def test_without_a_target_no_model_is_asked(scene):
    with model() as asked:
        session = run(scene.of_document(playbook=None))
    assert titles(session) == ["Nothing to check against"]
    assert asked.requests == []
    assert (session.run_result, session.result_reason) == (RunResult.FAILED, "Nothing to check against.")
    assert session.metadata["fault"] == "no_target"
    assert session.notifications.get().title.startswith("Run failed: nothing was checked")


def test_documents_without_a_fault_make_a_quiet_run(scene):
    with model(reply(findings=[], suggested_memories=[], suggested_precedents=[])):
        session = run(scene.of_document())
    assert titles(session) == ["Ethics review: none flagged"]
    assert not session.notifications.exists()
    assert session.metadata["empty"] is True


def test_a_document_that_cannot_be_read_is_a_warning(scene):
    document = scene.document()
    session = scene.session(document=str(document.public_id))
    document_delete(document=document, by=scene.owner, now=NOW)
    with model() as asked:
        run(session)
    assert [(one.severity, one.title) for one in session.findings.all()] == [
        ("warn", "The documents could not be read")
    ]
    assert asked.requests == []
    assert session.notifications.get().title.startswith("Run failed: nothing was checked, lease.txt")


def test_the_document_of_somebody_else_is_not_read(scene):
    theirs = Scene().document("Theirs.")
    with model() as asked:
        session = run(scene.session(document=str(theirs.public_id)))
    assert titles(session) == ["The documents could not be read"]
    assert asked.requests == []


def test_an_answer_that_cannot_be_read_is_asked_for_once_more(scene):
    with model("It all looks fine to me.", reply()) as asked:
        session = run(scene.of_document())
    first, second = asked.requests
    assert [one["role"] for one in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[:2] == first.messages
    assert second.messages[2]["content"] == "It all looks fine to me."
    assert second.response_schema == first.response_schema
    assert (session.run_result, session.findings.count()) == (RunResult.FINDINGS, 3)


def test_an_answer_that_cannot_be_read_twice_is_no_result(scene):
    with model("It all looks fine to me.") as asked:
        session = run(scene.of_document())
    assert len(asked.requests) == 2
    assert titles(session) == ["Analysis failed: nothing was produced"]
    assert session.run_result == RunResult.FAILED
    assert session.result_reason == "Nothing was checked: the model's answer could not be read"
    assert session.metadata["fault"] == "cut_off"
    assert session.notifications.get().title.startswith("Run failed: nothing was checked")


def test_an_answer_without_a_verdict_is_a_warning(scene):
    with model(json.dumps({"findings": []})):
        session = run(scene.of_document())
    assert [(one.severity, one.title) for one in session.findings.all()] == [
        ("warn", "Ethics review: no readable verdict")
    ]


def test_what_a_reader_must_know_of_the_answer_is_noted(scene):
    text = reply(suggested_memories=[{}], analyst={"notes": ["A rule was not understood."]})
    with model(text):
        session = run(scene.of_document())
    told = {one.title: (one.severity, one.content) for one in session.findings.all()}
    assert "1 of suggested_memories" in told["Parts of the answer were left out"][1]
    assert told["Notes of the analyst"] == ("info", "- A rule was not understood.")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("stop", ["out_of_time", "max_tokens"])
def test_an_answer_that_was_cut_off_is_continued_over_slices_and_read_as_one(scene, stop):
    text = reply()
    first, second, last = text[:40], text[40:90], text[90:]
    parts = [Step(first, stop_reason=stop), Step(second, stop_reason=stop), last]
    with model(*parts) as asked, patch.object(Slice, "is_over", True):
        session = run(scene.of_document())
    assert session.status == Status.COMPLETED
    with model(text):
        whole = run(scene.of_document())
    assert [one.title for one in session.findings.all()] == [one.title for one in whole.findings.all()]
    said = [[message["role"] for message in request.messages] for request in asked.requests]
    assert said == [["system", "user"], *[["system", "user", "assistant", "user"]] * 2]
    assert [asked.requests[number].messages[2]["content"] for number in (1, 2)] == [first, first + second]
    assert [request.response_schema is None for request in asked.requests] == [False, True, True]


def test_a_model_that_begins_anew_when_it_is_to_go_on_has_given_its_answer(scene):
    text = reply()
    with model(Step(text[:40], stop_reason="out_of_time"), text):
        session = run(scene.of_document())
    assert "The answer had no structure" not in " ".join(one.title for one in session.findings.all())
    assert session.findings.filter(title__startswith="Ethics review").exists()


def test_a_model_that_never_comes_to_an_end_is_paid_for_three_parts_and_has_read_nothing(scene):
    with model(Step("and so on ", stop_reason="max_tokens")) as asked:
        session = run(scene.of_document())
    assert len(asked.requests) == 3
    assert titles(session) == ["Analysis failed: nothing was produced"]
    assert "was cut off" in session.result_reason
    assert session.metadata["fault"] == "cut_off"


@pytest.mark.parametrize("kind", ["privilege_concerns", "scope_concerns"])
def test_concerns_are_listed(scene, kind):
    with model(reply(findings=[], **{kind: ["It is marked confidential."]})):
        session = run(scene.of_document())
    [ethics] = session.findings.all()
    assert (ethics.severity, ethics.title) == ("warn", "Ethics review: 1 flagged")
    assert "- It is marked confidential." in ethics.content
    assert session.notifications.get().title.startswith("Run completed: 1 concern, lease.txt")


def test_a_playbook_that_is_gone_refuses_the_run(scene):
    session = scene.of_document()
    playbook_delete(scene.playbook, by=scene.owner, now=NOW)
    with model() as asked:
        run(session)
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.REFUSED)
    assert "NotFound" in session.error
    assert asked.requests == []


def test_the_playbook_of_somebody_else_refuses_the_run(scene):
    session = scene.of_document(playbook=str(Scene().playbook.public_id))
    assert run(session).terminal_reason == TerminalReason.REFUSED


def test_a_brake_ends_the_run_where_it_stands(scene):
    with model() as asked:
        session = run(scene.of_document(max_cost_usd=Decimal("0.001")))
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    assert phases(session) == ["intake", "analysis"]
    assert (asked.requests, session.findings.count(), session.cost_total_usd) == ([], 0, 0)


def test_a_finding_that_cannot_be_stored_fails_the_run(scene):
    probe = Probe(error=RuntimeError("disk full"))
    with model(), tool(ToolIntent.EMIT_FINDING, probe=probe, remote=False, name="emit_finding"):
        session = run(scene.of_document())
    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_ERROR)
    assert "NotStored" in session.error
    assert "disk full" in session.error


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(hours=1)])
def test_a_slice_that_is_over_is_continued_in_the_next_phase(scene, lifetime):
    session = scene.of_document()
    slices = []

    def engine(held):
        slices.append(walk(held))
        return slices[-1]

    with model() as asked, patch.object(fairness, "slice_lifetime", return_value=lifetime):
        run(session, engine)
    assert session.status == Status.COMPLETED
    assert slices.count(SliceOver()) == (0 if lifetime else 4)
    assert phases(session) == PHASES
    assert len(asked.requests) == 1


def test_a_session_of_another_mode_is_not_walked(scene):
    session = scene.of_document()
    AgentSession.objects.filter(pk=session.pk).update(current_phase="turn")
    assert run(session).terminal_reason == TerminalReason.WORKER_ERROR


def test_phases_are_entered_in_order_whatever_the_model_says(scene):
    session = scene.of_document()
    held = lease_claim(session.pk, owner="w", now=NOW)
    session_enter_phase(held, "ethics_review", now=NOW)
    held.refresh_from_db()
    with model() as asked:
        walk(held)
    assert phases(session) == ["ethics_review", "delivery"]
    assert asked.requests == []


def test_documents_are_not_changed_by_a_run(scene):
    with model():
        run(scene.of_document())
    assert Document.objects.get().text == LEASE
    assert make_user().lqops_documents.count() == 0


def test_statements_of_a_run_do_not_grow_with_its_findings(scene):
    def statements(findings):
        told = [{"title": f"T{number}", "severity": "warn", "content": "x"} for number in range(findings)]
        session = scene.of_document()
        with (
            time_machine.travel(clock(), tick=False),  # activity is noted by the second
            model(reply(findings=told)),
            CaptureQueriesContext(connection) as seen,
        ):
            run(session)
        assert session.status == Status.COMPLETED, session.error
        return len(seen)

    statements(1)  # what a process reads once
    few, many = statements(20), statements(40)
    assert abs(many - few) <= 2, "activity is noted by the second"
    assert many <= MOST_STATEMENTS


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite takes several short statements for one")
@pytest.mark.django_db(transaction=True)
def test_run_takes_few_statements_and_commits_as_the_server_counts_them():
    scene = Scene()
    for number in range(2):  # first what a process reads once
        told = [{"title": f"T{number}.{place}", "content": "x" * 100, "quote": QUOTE} for place in range(10)]
        session = scene.of_document(f"{number}. {LEASE}")
        with model(reply(findings=told)), executed_statements() as words:
            run(session)
        assert (session.status, session.findings.count()) == (Status.COMPLETED, 11), session.error
    statements, commits = counted(words)
    assert statements <= 58
    assert commits <= 8  # claim, intake, inputs, opened, reply, settled, findings, end
