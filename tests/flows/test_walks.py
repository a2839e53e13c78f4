"""Whole runs through the real queue: from a trigger to a receipt, with nobody watching."""

import threading
from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from agents.accounts import profile_set
from agents.ask.chats import chat_answer, chat_send
from agents.enums import HaltState, Mode, Outcome, Phase, Status, TerminalReason, TriggerKind
from agents.knowledge.projects import precedent_promote, proposal_accept
from agents.models import (
    AgentSession,
    Halt,
    Lease,
    Memory,
    Message,
    ModelOutage,
    Notification,
    Precedent,
    Trigger,
    Turn,
)
from agents.roster.agents import agent_stop
from audit.models import AuditEvent
from audit.receipts import build_receipt
from audit.verify import verify_chain
from tests.factories import make_session, start_run
from tests.flows.cluster import Cluster, ended, lose_worker_of, now, session_of, worker_of
from tests.flows.loops import SLEEP, TURN, asleep, begin, text_of, turns_of
from tests.flows.processes import until
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)

COLD_START = Decimal("0.005")  # what a call is estimated at before there are averages


def kinds(session):
    return list(AuditEvent.objects.filter(chain=session.chain).order_by("seq").values_list("kind", flat=True))


def phases(session):
    rows = AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.phase_transition").order_by("seq")
    return [row.details["to_phase"] for row in rows]


def daily(scene, **fields):
    """A schedule whose time of day is this very minute, and so not again before tomorrow."""
    this_minute = now()
    cron = f"{this_minute.minute} {this_minute.hour} * * *"
    return scene.trigger(TriggerKind.SCHEDULE, cron=cron, max_cost_usd=Decimal(1), **fields)


def later_ticks():
    """Returns when every tick to come has a later time than this: what came in until now is before it."""
    asked_at = now()
    until(lambda: Lease.objects.filter(name="ticker", done_at__gt=asked_at).exists())


def make_due(schedule):
    """As if its time of day had been waited for."""
    Trigger.objects.filter(pk=schedule.pk).update(next_run_at=now() - timedelta(minutes=3))


def in_flight(session):
    return session.tool_calls.filter(outcome=Outcome.STARTED).exists()


def test_watch_with_a_tiny_cap_halts_before_the_model_is_asked(model):
    scene = Scene()
    watch = scene.watch(cap="0.001")

    scene.attach("First words.")
    session = ended(session_of(watch))

    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    assert session.cost_cap_reached
    assert session.cost_total_usd == 0
    assert model.requests == []
    assert session.result["terminal_reason"] == "cost_cap_reached"
    assert Notification.objects.filter(owner=scene.owner, session=session).exists()
    assert verify_chain(session.chain).verified


def test_watch_runs_all_five_phases_and_leaves_findings_memory_and_precedent(model):
    scene = Scene()
    watch = scene.watch()

    document = scene.attach("Liability is unlimited.")
    session = ended(session_of(watch))

    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED), session.error
    assert phases(session) == [phase for phase in Phase if phase != Phase.TURN]
    assert len(model.requests) == 1
    assert session.findings.count() == 3
    quoted = session.findings.get(title="Liability is not capped")
    assert (quoted.quote_check, quoted.document) == ("verified", document)
    assert document.text[quoted.quote_start : quoted.quote_end] == quoted.quote != ""
    assert session.findings.get(title="Renews by itself").quote_check == "unverified"
    assert Memory.objects.get(owner=scene.owner).state == "proposed"
    assert Precedent.objects.get(owner=scene.owner).observed_count == 1
    assert session.cost_total_usd == COLD_START
    assert session.max_cost_usd == Decimal(1)
    assert Notification.objects.filter(owner=scene.owner, session=session).count() == 1
    assert build_receipt(session.chain) == session.result


def test_second_run_counts_the_precedent_and_only_a_person_takes_it_into_the_project(model):
    scene = Scene()
    watch = scene.watch()
    scene.attach("One.")
    ended(session_of(watch))
    scene.attach("Two.")
    ended(session_of(watch, number=2))

    precedent = Precedent.objects.get(owner=scene.owner)
    assert precedent.observed_count == 2
    scene.project.refresh_from_db()
    assert scene.project.context_md == "Old context."
    proposal = precedent_promote(precedent=precedent, project=scene.project, by=scene.owner, now=now())
    scene.project.refresh_from_db()
    assert scene.project.context_md == "Old context."
    proposal_accept(proposal=proposal, by=scene.owner, now=now())

    scene.project.refresh_from_db()
    lines = scene.project.context_md.splitlines()
    assert lines[0] == "Old context."
    assert len(lines) == 2
    assert "uncapped liability" in lines[1]
    scene.attach("Three.")
    third = ended(session_of(watch, number=3))
    assert third.context_version == scene.project.context_version
    assert any("uncapped liability" in str(request) for request in model.asked_about("Three."))


def test_halt_in_the_admin_returns_at_once_and_stops_the_run_at_its_next_call(model):
    scene = Scene(is_staff=True, is_superuser=True)
    watch = scene.watch()
    model.free.clear()
    scene.attach("Slow.")
    session = session_of(watch)
    until(lambda: in_flight(session))
    browser = Client()
    browser.force_login(scene.owner)
    sessions = reverse("admin:agents_agentsession_changelist")
    assert browser.get(sessions).status_code == 200  # as somebody has it open who is about to halt a run

    answer = browser.post(
        sessions,
        {"action": "halt", "_selected_action": [session.pk], "confirmed": "1", "reason": "enough"},
    )

    assert answer.status_code in {200, 302}
    session.refresh_from_db()
    assert in_flight(session), "the answer did not wait for the call, which cannot end before the model is let go"
    assert (session.status, session.halt_state) == (Status.RUNNING, HaltState.HALT_REQUESTED)
    model.free.set()
    ended(session)
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.EXTERNAL_HALT)
    assert session.cost_total_usd == COLD_START, "the call in flight is charged once"
    assert Halt.objects.get(session=session).requested_by == scene.owner
    assert session.findings.count() == 0
    started = [kind for kind in kinds(session) if kind == "autonomous_session.halt_requested"]
    assert len(started) == 1


def test_model_that_refuses_is_told_honestly_and_nothing_is_made_up(model):
    scene = Scene()
    watch = scene.watch()
    model.status = 401

    scene.attach("Broken.")
    session = ended(session_of(watch))

    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert session.tool_calls.get(key="analysis:1").outcome == Outcome.GATEWAY_ERROR
    assert session.findings.filter(severity="warn").count() == 1
    assert not Memory.objects.filter(owner=scene.owner).exists()
    assert not Precedent.objects.filter(owner=scene.owner).exists()


def test_run_waits_for_a_model_that_is_away_and_goes_on_by_itself(model):
    scene = Scene()
    watch = scene.watch()
    model.status = 500

    scene.attach("Away.")
    session = session_of(watch)
    until(lambda: AgentSession.objects.filter(pk=session.pk, waiting_on="model").exists())
    model.status = 200
    session = ended(session)

    assert (session.status, session.terminal_reason) == (Status.COMPLETED, TerminalReason.COMPLETED)
    assert len(model.asked_about("Away.")) >= 2
    assert session.findings.filter(title="Liability is not capped").count() == 1
    assert not ModelOutage.objects.exists()


def test_killed_worker_is_replaced_and_the_lost_call_is_charged_once(model):
    scene = Scene()
    watch = scene.watch()
    model.free.clear()
    scene.attach("Mortal.")
    session = session_of(watch)
    until(lambda: in_flight(session) and model.asked_about("Mortal."))
    first = worker_of(session)

    lose_worker_of(session)
    until(lambda: len(model.asked_about("Mortal.")) == 2)
    assert worker_of(session) != first
    model.free.set()
    ended(session)

    assert session.status == Status.COMPLETED, session.error
    lost, repeated = session.tool_calls.filter(key="analysis:1").order_by("attempt")
    assert (lost.outcome, repeated.outcome) == (Outcome.WORKER_LOST, Outcome.SUCCESS)
    assert lost.charged_usd == lost.approved_usd > 0
    assert session.cost_total_usd == lost.charged_usd + repeated.charged_usd > lost.charged_usd
    assert session.findings.count() == 3
    assert phases(session) == [phase for phase in Phase if phase != Phase.TURN]
    assert verify_chain(session.chain).verified


@pytest.mark.long
def test_session_that_kills_its_workers_is_given_up(model):
    scene = Scene()
    watch = scene.watch()
    model.free.clear()
    scene.attach("Poison.")
    session = session_of(watch)

    for lives in range(1, 5):
        until(lambda lives=lives: len(model.asked_about("Poison.")) == lives and in_flight(session))
        lose_worker_of(session)
    ended(session)

    assert (session.status, session.terminal_reason) == (Status.FAILED, TerminalReason.WORKER_LOST)
    assert session.result["terminal_reason"] == "worker_lost"
    assert Notification.objects.filter(owner=scene.owner, session=session).count() == 1


def test_schedule_sets_a_baseline_and_then_reads_exactly_what_came_since(model):
    scene = Scene()
    scene.attach("Before.")
    later_ticks()
    schedule = daily(scene)

    make_due(schedule)
    first = ended(session_of(schedule))
    between = scene.attach("Between.")
    later_ticks()
    AgentSession.objects.filter(pk=first.pk).update(slot="cron:1")  # as if it had answered yesterday's
    make_due(schedule)
    second = ended(session_of(schedule, number=2))

    assert first.cost_total_usd == 0
    assert first.findings.filter(severity="info", title__icontains="baseline").count() == 1
    assert second.status == Status.COMPLETED
    assert len(model.asked_about("Between.")) == 1
    assert model.asked_about("Before.") == []
    assert {finding.document for finding in second.findings.filter(quote_check="verified")} == {between}


def test_opting_out_ends_the_loop_and_stops_the_schedule_and_hides_nothing(model):
    scene = Scene()
    watch = scene.watch()
    scene.attach("Past.")
    past = ended(session_of(watch))
    loop = make_session(Status.SLEEPING, owner=scene.owner, mode=Mode.LOOP, next_wake_at=now() + timedelta(hours=1))
    schedule = daily(scene)

    profile_set(user=scene.owner, opted_in=False, by=scene.owner, now=now())
    make_due(schedule)
    beat = daily(Scene())
    make_due(beat)
    ended(session_of(beat))  # the ticker has been round since

    loop.refresh_from_db()
    assert (loop.status, loop.terminal_reason) == (Status.HALTED, TerminalReason.OPTED_OUT)
    assert not AgentSession.objects.filter(trigger=schedule).exists()
    browser = Client()
    browser.force_login(scene.owner)
    assert browser.get(reverse("audit:receipt", args=[past.chain])).status_code == 200


@pytest.mark.parametrize(
    "number", [pytest.param(10, marks=pytest.mark.long), pytest.param(30, marks=pytest.mark.stress)]
)
def test_two_clusters_on_one_database_run_each_session_once(model, number):
    scene = Scene()
    document = scene.attach()
    model.free.clear()
    second = Cluster({**model.environment, "LQOPS_WORKERS": "1"})
    try:
        sessions = [start_run(playbook=scene.playbook, document=document, now=now(), **scene.by) for _ in range(number)]
        until(lambda: len(model.requests) >= 3)  # as many as there are workers, at the least
        model.free.set()
        for session in sessions:
            assert ended(session).status == Status.COMPLETED
    finally:
        second.stop()

    assert len(model.requests) == number
    starts = AuditEvent.objects.filter(kind="autonomous_session.started", chain__in=[one.chain for one in sessions])
    assert starts.count() == len(sessions) == AgentSession.objects.filter(owner=scene.owner).count()


def chat(loop, text):
    return chat_send(owner=loop.owner, by=loop.owner, text=text, agent=loop.agent, now=now())


def messages_of(session):
    return "\n".join(Message.objects.filter(session=session).values_list("content", flat=True))


def test_chat_is_answered_while_the_loop_sleeps_and_during_a_turn_and_their_transcripts_are_apart(model):
    thought = threading.Event()

    def answer(request):
        if TURN not in text_of(request):
            return "Fine."
        if len(turns_of(model)) == 2:
            assert thought.wait(60)
        return SLEEP

    model.answer = answer
    loop = begin("name: Clerk\nautonomy: {enabled: true}\n")
    asleep(loop, 1)

    early = chat(loop, "How are you, sleeper?")
    assert chat_answer(ended(early)) == "Fine."
    until(lambda: len(turns_of(model)) == 2)  # it was woken by the message, and thinks
    late = chat(loop, "And now?")
    assert chat_answer(ended(late)) == "Fine."
    assert Turn.objects.filter(session=loop, state="done").count() == 1
    thought.set()
    asleep(loop, 3)  # the second message came before it lay down

    spoken = {row.mode + str(row.pk): messages_of(row) for row in (loop, early, late)}
    assert [name for name, said in spoken.items() if "sleeper" in said] == [f"chat{early.pk}"]
    assert [name for name, said in spoken.items() if "And now?" in said] == [f"chat{late.pk}"]
    assert [name for name, said in spoken.items() if TURN in said] == [f"loop{loop.pk}"]
    agent_stop(agent=loop.agent, by=None, now=now())


@pytest.mark.long
def test_slow_model_does_not_hold_its_workers(model, cluster):
    """Five runs are out with the model at the same time, and there are two workers."""
    model.free.clear()
    runs = []
    for number in range(5):
        scene = Scene()
        watch = scene.watch()
        scene.attach(f"Side by side {number}.")
        runs.append(session_of(watch))

    until(lambda: len(model.asked_about("Side by side")) == 5)
    workers = {worker_of(run) for run in runs}
    model.free.set()

    assert len(workers) <= 2
    assert [ended(run).status for run in runs] == [Status.COMPLETED] * 5
    assert all(verify_chain(run.chain).verified for run in runs)
