"""The waterfall of a run: phases, slices, waits, calls and brakes as bars to scale, with repetition folded."""

from datetime import timedelta

import pytest

from agents.enums import Outcome, Status, ToolIntent
from agents.models import ToolCall
from agents.sessions.reads import Moment, Timeline, timeline, waterfall
from audit import recorder
from tests.factories import NOW, make_session

pytestmark = pytest.mark.django_db
STARTED = "autonomous_session.started"
RESUMED = "autonomous_session.resumed"


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def event(seconds, kind, sort="note", **more):
    return Moment(at(seconds), sort, more.pop("title", kind), kind=kind, **more)


def call(seconds, took, *, title="Finding", look="good", outcome="success", pk=None):
    took_ms = None if took is None else int(took * 1000)
    kind = "autonomous_session.tool_call"
    return Moment(at(seconds), "call", title, look, outcome=outcome, took_ms=took_ms, call_pk=pk, kind=kind)


def fall(*moments, now=10, status=Status.COMPLETED, left_out=False, calls=(), **options):
    ended = {"completed_at": at(now), "terminal_reason": "completed"} if status == Status.COMPLETED else {}
    if status == Status.WAITING:
        ended["waiting_on"] = "approval"
    session = make_session(status, **ended)
    return waterfall(session, Timeline(moments, left_out), calls, now=at(now), **options)


def bars(found, sort):
    return [(span.title, span.left, span.width) for span in found.spans if span.sort == sort]


def test_phases_end_where_the_next_one_begins_and_bars_are_to_scale():
    found = fall(
        event(2, STARTED),
        Moment(at(2), "phase", "intake"),
        Moment(at(4), "phase", "analysis"),
        call(5, 1, title="Model call"),
    )
    assert (found.began, found.ended, found.took) == (NOW, at(10), timedelta(seconds=10))
    assert bars(found, "phase") == [("intake", 20, 20), ("analysis", 40, 60)]
    assert bars(found, "call") == [("Model call", 50, 10)]


def test_slices_and_the_waits_between_them_are_shown_with_what_was_waited_for():
    found = fall(
        event(1, STARTED),
        event(2, "approval.requested", "approval"),
        event(5, RESUMED),
        event(6, "autonomous_session.pause_requested"),
        event(8, RESUMED),
        call(8, 1, title="Model call", look="bad", outcome="gateway_error"),
    )
    assert bars(found, "wait") == [("Queued", 0, 10), ("Waiting for approval", 20, 30), ("Paused", 60, 20)]
    assert bars(found, "work") == [("Worker", 10, 10), ("Worker", 50, 10), ("Worker", 80, 20)]


def test_a_pause_and_its_end_divide_a_wait():
    found = fall(
        event(0, STARTED),
        event(1, "question.asked", "question"),
        event(3, "autonomous_session.pause_requested"),
        event(6, "autonomous_session.resume_requested"),
        status=Status.WAITING,
    )
    asks = "Waiting for an answer"
    assert bars(found, "wait") == [(asks, 10, 20), ("Paused", 30, 30), (asks, 60, 40)]
    assert bars(found, "work") == [("Worker", 0, 10)]


def test_a_wait_for_a_model_is_named():
    away = Moment(at(1), "call", "Model call", "bad", outcome="gateway_error", detail="retry_later", took_ms=1000)
    found = fall(event(0, STARTED), away, status=Status.WAITING)
    assert bars(found, "wait") == [("Waiting for the model", 20, 80)]


def test_a_run_that_ended_while_it_waited_has_no_worker_to_the_end():
    found = fall(event(0, STARTED), event(1, "approval.requested", "approval"), event(9, "h", "halt", look="bad"))
    assert bars(found, "work") == [("Worker", 0, 10)]
    assert bars(found, "wait") == [("Waiting for approval", 10, 90)]


def test_a_loop_sleeps_between_its_slices():
    session = make_session(Status.SLEEPING, mode="loop", next_wake_at=at(60))
    found = waterfall(session, Timeline((event(0, STARTED), call(0, 2)), left_out=False), [], now=at(10))
    assert bars(found, "wait") == [("Sleeping", 20, 80)]


@pytest.mark.parametrize(
    ("status", "waits", "works"),
    [
        (Status.WAITING, [("Waiting for approval", 40, 60)], [("Worker", 0, 40)]),
        (Status.RUNNING, [], [("Worker", 0, 100)]),
    ],
)
def test_a_run_that_goes_on_is_drawn_up_to_now(status, waits, works):
    found = fall(event(0, STARTED), event(4, "approval.requested", "approval"), status=status)
    assert (bars(found, "wait"), bars(found, "work")) == (waits, works)


def test_a_queued_run_is_one_wait():
    assert bars(fall(status=Status.QUEUED), "wait") == [("Queued", 0, 100)]


def test_a_call_in_flight_reaches_to_now():
    found = fall(event(0, STARTED), call(5, None, look="warn", outcome="started"), status=Status.RUNNING)
    [span] = [span for span in found.spans if span.sort == "call"]
    assert (span.left, span.width, span.is_open) == (50, 50, True)


def test_repeated_calls_are_folded_and_keep_their_names():
    session = make_session()
    rows = [
        ToolCall.objects.create(
            session=session, key=f"f{n}", intent=ToolIntent.EMIT_FINDING, phase="drafting", digest="d", fencing=0,
            arguments={"title": f"Clause {n}"}, asked_digest="d", outcome=Outcome.SUCCESS, started_at=NOW,
            settled_at=NOW, attempt=2 if n == 3 else 1,
        )
        for n in range(1, 4)
    ]  # fmt: skip
    found = fall(*(call(row.pk - rows[0].pk, 1, pk=row.pk) for row in rows), calls=rows)
    [group] = [span for span in found.spans if span.sort == "call"]
    assert (group.title, group.left, group.width, group.call_pk) == ("3 findings written", 0, 30, None)
    assert [span.title for span in group.inner] == [
        "Finding: Clause 1",
        "Finding: Clause 2",
        "Finding: Clause 3 (attempt 2)",
    ]
    assert [(span.left, span.width) for span in group.inner] == [(0, 10), (10, 10), (20, 10)]


def test_repeated_calls_without_a_name_of_their_own_are_folded_by_their_title():
    found = fall(*(call(n, 1, title="Ping") for n in range(3)), call(4, 1, title="Pong"), call(5, 1, title="Pong"))
    assert [span.title for span in found.spans if span.sort == "call"] == ["3 calls: Ping", "Pong", "Pong"]


def test_calls_with_another_outcome_are_not_folded_in():
    found = fall(*(call(n, 1, look="bad", outcome="error") if n == 1 else call(n, 1) for n in range(4)))
    assert len([span for span in found.spans if span.sort == "call"]) == 4


def test_halts_and_bad_ends_are_brakes():
    found = fall(
        event(3, "h", "halt", look="bad"), event(4, "e", "end", look="warn"), event(5, "c", "end", look="good")
    )
    assert bars(found, "brake") == [("h", 30, 0), ("e", 40, 0)]


def test_the_latest_part_of_a_long_run_begins_with_its_first_moment():
    found = fall(event(5, RESUMED), left_out=True)
    assert found.began == at(5)


def test_a_run_without_length_is_drawn():
    assert fall(event(0, STARTED), now=0).spans[0].width == 0


def test_it_is_built_from_the_timeline_without_a_further_statement(django_assert_num_queries):
    session = make_session()
    recorder.append(session.chain, STARTED, now=NOW, details={"mode": "phased"})
    line = timeline(session)
    with django_assert_num_queries(0):
        found = waterfall(session, line, [], now=at(3))
    assert bars(found, "work") == [("Worker", 0, 100)]


def test_long_waits_are_folded_so_that_the_work_between_them_can_be_seen():
    moments = [event(60, STARTED), call(60, 4), event(64, "approval.requested", "approval"), event(3664, RESUMED)]
    found = fall(*moments, now=3668, folds_waits=True)

    assert found.waited == timedelta(seconds=3660)
    assert bars(found, "wait") == [("Queued", 0, 10), ("Waiting for approval", 50, 10)]
    assert bars(found, "work") == [("Worker", 10, 40), ("Worker", 60, 40)]
    assert bars(found, "call") == [("Finding", 10, 40)]
    assert [span.is_folded for span in found.spans] == [span.sort == "wait" for span in found.spans]
    to_scale = fall(*moments, now=3668)
    assert to_scale.waited == found.waited
    assert bars(to_scale, "call")[0][2] < 1
    assert not any(span.is_folded for span in to_scale.spans)


def test_waits_shorter_than_the_work_are_not_folded():
    found = fall(event(4, STARTED), call(4, 6), folds_waits=True)

    assert found.waited == timedelta()
    assert bars(found, "wait") == [("Queued", 0, 40)]
