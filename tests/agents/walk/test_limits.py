"""More documents than one run can read: nothing is lost without a word, and no run says that there was nothing."""

from datetime import timedelta
from unittest.mock import patch

import pytest

from agents.enums import RunResult, Status, TriggerKind
from agents.exceptions import LeaseLost
from agents.guard.guard import _dispatch
from agents.knowledge.documents import document_delete
from agents.models import AgentSession, Notification
from agents.providers.scripted import Step
from agents.triggers.firing import session_restart
from agents.triggers.schedules import schedules_fire
from tests.agents.walk.scene import blocks_of, lose, model, reply, run
from tests.factories import NOW, make_trigger

pytestmark = pytest.mark.django_db

START = NOW.replace(second=0)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
QUIET = reply(seen=[], findings=[], suggested_memories=[], suggested_precedents=[])
FALSE = ("Nothing new since the last run", "Nothing to read")


@pytest.fixture(autouse=True)
def _long_sections(monkeypatch):
    """One question holds as much as one run of a schedule takes, a tenth of what it does otherwise."""
    for limit in ("walk.analysis.SECTION_CHARS", "knowledge.search.RUN_CHARS", "guard.retrieve.RUN_CHARS"):
        monkeypatch.setattr(f"agents.{limit}", 20_000)


def told(session):
    return {one.title: (one.severity, one.content) for one in session.findings.all()}


def put_in(scene, *sizes, at=START + MINUTE):
    """Documents of these lengths, in hundreds of characters."""
    return [
        scene.document(f"{number} ".ljust(size * 100, "x"), name=f"{number}.txt", at=at)
        for number, size in enumerate(sizes)
    ]


def read(asked):
    """The names of the documents in each question, question by question."""
    return [
        [block.attributes["name"] for block in blocks_of(request) if block.kind == "document"]
        for request in asked.requests
    ]


@pytest.fixture
def fire(scene):
    """Fires the schedule of the collection; its first run has been made."""
    make_trigger(
        owner=scene.owner,
        kind=TriggerKind.SCHEDULE,
        cron="* * * * *",
        zone="UTC",
        collection=scene.collection,
        playbook=scene.playbook,
        next_run_at=START,
    )

    def firing(now):
        assert schedules_fire(now=now) == 1
        return AgentSession.objects.latest("pk")

    run(firing(START))
    return firing


# --- Schedules ---


def test_a_schedule_reads_what_did_not_fit_in_its_next_run_and_says_so(scene, fire):
    put_in(scene, 150, 150, 10)
    with model(QUIET) as asked:
        first, second, third = (run(fire(START + number * HOUR)) for number in (1, 2, 3))

    assert read(asked) == [["0.txt"], ["1.txt", "2.txt"]]
    severity, said = told(first)["Documents left for the next run: 2"]
    assert (severity, "none of them is lost" in said) == ("info", True)
    assert not told(second).keys() & {*FALSE, "Documents left for the next run: 2"}
    assert told(third).keys() == {"Nothing new since the last run"}
    assert not Notification.objects.exists()


def test_a_document_that_is_longer_than_what_a_run_takes_is_read_to_its_end(scene, fire):
    put_in(scene, 250)
    with model(QUIET) as asked:
        session = run(fire(START + HOUR))
    assert read(asked) == [["0.txt"], ["0.txt"], []]
    assert told(session).keys() == {"Ethics review: none flagged"}
    assert session.run_result == RunResult.OK


def test_a_run_that_fails_loses_none_of_what_waits_and_reads_the_same_when_it_is_made_again(scene, fire):
    put_in(scene, 150, 150)
    with model(Step("")):
        failed = run(fire(START + HOUR))
    with model(QUIET) as asked:
        run(fire(START + 2 * HOUR))
        again = run(session_restart(session=failed, by=scene.owner, now=START + 3 * HOUR))
    assert "Analysis failed: nothing was produced" in told(failed)
    assert read(asked) == [["1.txt"], ["0.txt"]]
    assert "Documents left for the next run: 1" not in told(again)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("lost_at", ["intake:retrieve", "note:put_off"])
def test_a_run_whose_worker_is_lost_reads_the_same_and_the_next_one_the_rest(scene, fire, lost_at):
    put_in(scene, 150, 150)
    session = fire(START + HOUR)

    def losing(call, stopped):
        result = _dispatch(call, stopped)
        if call.key == lost_at:
            raise LeaseLost("lost")
        return result

    with model(QUIET) as asked:
        with patch("agents.guard.guard._dispatch", losing):
            run(session)
        assert session.status == Status.RUNNING
        lose(session)
        scene.document("late", name="late.txt", at=START + HOUR + MINUTE)
        run(session)
        run(fire(START + 2 * HOUR))
    assert session.status == Status.COMPLETED
    assert read(asked) == [["0.txt"], ["1.txt", "late.txt"]]


def test_a_run_whose_documents_were_deleted_meanwhile_does_not_say_that_nothing_came(scene, fire):
    gone, _ = put_in(scene, 150, 150)
    session = fire(START + HOUR)
    document_delete(document=gone, by=scene.owner, now=START + HOUR)
    with model(QUIET) as asked:
        run(session)
        run(fire(START + 2 * HOUR))
    assert told(session).keys() == {"The documents were not read", "Documents left for the next run: 1"}
    assert read(asked) == [["1.txt"]]


# --- A whole collection ---


def of_collection(scene):
    return scene.session(collection=str(scene.collection.public_id))


def test_a_run_over_a_large_collection_reads_all_of_it(scene):
    put_in(scene, 150, 150, 150)
    with model(QUIET) as asked:
        session = run(of_collection(scene))
    assert read(asked) == [["0.txt"], ["1.txt"], ["2.txt"]]
    assert session.run_result == RunResult.OK


def test_a_run_over_far_too_large_a_collection_warns_and_says_what_to_do(scene, monkeypatch):
    monkeypatch.setattr("agents.guard.retrieve.PLACES_CHARS", 20_000)
    put_in(scene, 150, 150, 150)
    with model(QUIET):
        session = run(of_collection(scene))
    severity, said = told(session)["2 of 3 documents were not read"]
    assert severity == "warn"
    assert said.startswith("1 of 3 documents were read: ")
    assert all(way in said for way in ("a smaller collection", "a query", "single documents"))
    assert (session.run_result, session.result_reason) == (RunResult.PARTIAL, "2 documents were not read.")
    assert Notification.objects.get(session=session).title.startswith("Run partly done: no findings")


def test_a_run_of_steps_says_which_part_of_a_document_it_was_not_shown(scene):
    put_in(scene, 10, 250)
    with model(QUIET) as asked:
        session = run(scene.session(collection=str(scene.collection.public_id), analysis_mode="agentic"))
    assert read(asked) == [["0.txt", "1.txt"]]
    [(severity, said)] = [one for title, one in told(session).items() if title.endswith("were not checked")]
    assert severity == "warn"
    assert "- 1.txt, characters " in said
    assert "to 25,000: it is too long for a run of steps" in said
    assert session.run_result == RunResult.PARTIAL


@pytest.mark.parametrize("since", [None, (NOW - HOUR).isoformat()])
def test_a_retrieval_that_left_out_everything_is_told_as_a_warning(scene, since):
    """As retrievals of long documents were journalled that are replayed now."""
    put_in(scene, 1, at=NOW)
    session = scene.session(collection=str(scene.collection.public_id), since=since)
    summary = {"mode": "since" if since else "collection", "left_out": 1, "cut_chars": 0}
    with model() as asked, patch("agents.walk.intake._retrieved", return_value={"summary": summary, "chunks": []}):
        run(session)
    assert {title: severity for title, (severity, _) in told(session).items()} == {
        "The documents were not read": "warn",
        "1 of 1 documents were not read": "warn",
    }
    assert asked.requests == []
    assert Notification.objects.filter(session=session).exists()
