"""Several runs at a time in one worker: while one waits for its model, the worker takes the next."""

import threading
import time
from unittest.mock import patch

import pytest
from django.db import InterfaceError, OperationalError

from agents.queue import let_worker_go_on, work_beside_others, workers
from agents.queue.workers import Conf, Runs

PATIENCE = 30


@pytest.fixture(autouse=True)
def _not_retired(monkeypatch):
    """Another test of this process may have retired it."""
    monkeypatch.setattr(Conf, "MAX_RSS", None)


@pytest.fixture
def _room_for_two():
    with patch.object(Runs, "most", 2):
        yield
    workers._wait_for_runs()
    assert Runs.threads == set()


class Run:
    """A run that waits for its model until it is answered."""

    def __init__(self, fails=""):
        self.begun = threading.Event()
        self.answered = threading.Event()
        self.ended = threading.Event()
        self.thread = None
        self._fails = fails

    def __call__(self):
        self.thread = threading.current_thread()
        if self._fails == "at once":
            raise ValueError("it cannot be claimed")
        let_worker_go_on()
        self.begun.set()
        assert self.answered.wait(PATIENCE)
        self.ended.set()
        if self._fails:
            raise ValueError("the answer is of no use")


def begun(run):
    """Start the run as a worker does, in a thread that ends when the worker goes on."""
    worker = threading.Thread(target=work_beside_others, args=[run])
    worker.start()
    return worker


@pytest.mark.usefixtures("_room_for_two")
def test_worker_goes_on_while_a_run_waits_for_its_model():
    run = Run()

    work_beside_others(run)

    assert run.thread.is_alive()
    assert not run.ended.is_set()
    run.answered.set()
    assert run.ended.wait(PATIENCE)


@pytest.mark.usefixtures("_room_for_two")
def test_worker_with_as_many_runs_as_it_may_have_waits_for_the_end_of_one():
    first, second = Run(), Run()
    work_beside_others(first)
    worker = begun(second)
    worker.join(0.2)
    assert worker.is_alive()

    first.answered.set()
    worker.join(PATIENCE)

    assert not worker.is_alive()
    assert not second.ended.is_set()
    second.answered.set()


@pytest.mark.usefixtures("_room_for_two")
def test_run_without_a_model_is_over_when_the_task_is():
    done = []

    work_beside_others(lambda: done.append(threading.current_thread()))

    assert done != []
    assert done != [threading.current_thread()]
    done[0].join(PATIENCE)


@pytest.mark.usefixtures("_room_for_two")
def test_error_before_the_wait_is_the_task_s():
    with pytest.raises(ValueError, match="cannot be claimed"):
        work_beside_others(Run(fails="at once"))


@pytest.mark.usefixtures("_room_for_two")
def test_error_after_the_wait_is_logged(caplog):
    run = Run(fails="later")
    work_beside_others(run)
    run.answered.set()
    run.thread.join(PATIENCE)

    assert "a run ended with an error" in caplog.text


@pytest.mark.usefixtures("_room_for_two")
def test_run_that_hangs_costs_its_worker_and_no_other_run(monkeypatch, caplog):
    """The queue would end the process, with all runs that wait in it."""
    monkeypatch.setattr(workers, "task_seconds", lambda: 0.05)
    retired, free = [], threading.Event()
    monkeypatch.setattr(workers, "worker_retire", lambda: retired.append(True))

    work_beside_others(lambda: free.wait(PATIENCE))

    assert retired == [True]
    assert Runs.threads == set()
    assert "given up" in caplog.text
    free.set()


@pytest.fixture
def full_worker(monkeypatch):
    """Return a function that lets a worker without room look whether somebody waits, until its first run ends."""
    monkeypatch.setattr(workers, "URGENT_EVERY", 0.01)
    runs, threads = [Run(), Run()], []

    def look(urgent):
        work_beside_others(runs[0])
        threads.append(threading.Thread(target=work_beside_others, args=[runs[1], urgent]))
        threads[0].start()

    yield look
    for run in runs:
        run.answered.set()
    threads[0].join(PATIENCE)


@pytest.mark.usefixtures("_room_for_two")
def test_worker_without_room_has_one_place_for_work_that_somebody_waits_for(full_worker):
    chats, asked, again = [Run(), Run()], [], threading.Event()

    def urgent():
        if asked:
            again.set()
        asked.append(chats[len(asked)] if len(asked) < 2 else None)
        return asked[-1]

    full_worker(urgent)
    assert chats[0].begun.wait(PATIENCE)
    assert not again.wait(0.1), "nobody is looked for while the place is taken"
    chats[0].answered.set()
    assert again.wait(PATIENCE), "the place is free again"
    chats[1].answered.set()

    assert chats[0].ended.wait(PATIENCE)
    assert chats[1].ended.wait(PATIENCE)


@pytest.mark.usefixtures("_room_for_two")
@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_worker_without_room_looks_again_after_an_error_of_the_database(full_worker, error):
    errors, chat = [error], Run()

    def urgent():
        if errors:
            raise errors.pop()
        return None if chat.thread else chat

    full_worker(urgent)
    chat.answered.set()

    assert chat.ended.wait(PATIENCE)


@pytest.mark.usefixtures("_room_for_two")
def test_error_of_urgent_work_is_logged(full_worker, caplog):
    looked = threading.Event()
    given = [Run(fails="at once")]

    def urgent():
        if not given:
            looked.set()
        return given.pop() if given else None

    full_worker(urgent)

    assert looked.wait(PATIENCE)
    assert "a run ended with an error" in caplog.text


@pytest.mark.usefixtures("_room_for_two")
def test_worker_that_retires_begins_nothing_urgent(full_worker, monkeypatch):
    monkeypatch.setattr(Conf, "MAX_RSS", 1)
    asked = threading.Event()
    full_worker(asked.set)
    assert not asked.wait(0.1)


def test_nothing_urgent_is_begun_late_in_a_task(monkeypatch):
    monkeypatch.setattr(workers, "task_seconds", lambda: 600)
    monkeypatch.setattr(Runs, "threads", {None})
    now = time.monotonic()
    assert workers._has_urgent_place(now - 299)
    assert not workers._has_urgent_place(now - 301)


@pytest.mark.usefixtures("_room_for_two")
def test_nothing_urgent_is_begun_while_the_cluster_ends(full_worker):
    stopping, again = threading.Event(), threading.Event()

    def urgent():
        if stopping.is_set():
            again.set()
        stopping.set()

    with patch.object(Runs, "stopping", stopping):
        full_worker(urgent)
        assert stopping.wait(PATIENCE)
        assert not again.wait(0.1)


def test_nothing_is_begun_while_the_cluster_ends():
    stopping, done = threading.Event(), []
    with patch.object(Runs, "stopping", stopping):
        work_beside_others(lambda: done.append("before"))
        stopping.set()
        work_beside_others(lambda: done.append("after"))

    assert done == ["before"]


def test_outside_of_a_worker_the_work_is_done_in_the_thread_that_asks():
    done = []

    work_beside_others(lambda: done.append(threading.current_thread()))

    assert done == [threading.current_thread()]


def test_worker_has_as_many_runs_as_the_setting_says(settings):
    settings.LQOPS_RUNS_PER_WORKER = 3
    with patch.object(Runs, "most", 1), patch.object(workers, "Finalize") as at_the_end:
        workers.post_spawn.send(sender="django_q", proc_name="worker")

        assert Runs.most == 3
    at_the_end.assert_called_once_with(None, workers._wait_for_runs, exitpriority=1)
