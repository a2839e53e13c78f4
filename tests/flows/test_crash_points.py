"""A process that is killed just before or after any commit or effect loses nothing, and nothing is done twice."""

import pytest

from tests import flushing
from tests.flows.crash_points import NAMED, Points, RenewalPoints, go_on, run
from tests.flows.story import Story, told
from tests.invariants import problems

pytestmark = pytest.mark.django_db(transaction=True)

# Of the points with this name, the first. `make test` takes two of them, `make test-long` these, `make stress` all.
SAMPLE = (
    ("after", "trigger fired, session row"),
    ("after", "model reply received"),
    ("after", "approval consumed, tool reserved"),
    ("after", "tool returned, not saved"),
    ("before", "call settled"),
    ("after", "outbox sent"),
    ("before", "session finished, receipt saved"),
    ("before", "all work halted"),
)


@pytest.fixture
def fresh(tmp_path):
    """`fresh()` gives a story of its own, on an empty database, and a folder for what it leaves outside."""
    made = []

    def make():
        flushing.flush_now()
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(folder)
        with told(folder / "effects"):
            return Story(), folder

    return make


def killed_at(points, label, fresh):
    """Kill a process at one point, let another one go on, and return what is wrong then."""
    story, folder = fresh()
    assert run(story, folder, points) is None, f"{label} was not reached"
    return [f"killed {label}: {one}" for one in (*go_on(story, folder), *problems())]


def passed_by(fresh):
    """The points of a story in which nobody is killed; every point that has a name is among them."""
    story, folder = fresh()
    passed = run(story, folder, Points(None))
    assert [*story.faults(), *problems()] == []
    for when in ("before", "after"):
        passing = [label for label in passed if label.startswith(when)]
        missing = [name for name, what in NAMED.items() if not any(what in label for label in passing)]
        assert missing == ASKED_ONCE[when]
    return passed


# What is sent has a point before it, what was received one after it.
ASKED_ONCE = {
    "before": ["model reply received", "tool returned, not saved"],
    "after": ["model call sent", "tool dispatched"],
}


def number_of(passed, when, what):
    return next(n for n, label in enumerate(passed, 1) if label.startswith(when) and what in label)


@pytest.mark.parametrize("sample", [SAMPLE[3:5], pytest.param(SAMPLE, marks=pytest.mark.long)], ids=["two", "all"])
def test_a_kill_at_a_commit_or_an_effect_loses_and_doubles_nothing(fresh, sample):
    passed = passed_by(fresh)
    numbers = [number_of(passed, when, NAMED[name]) for when, name in sample]
    assert [wrong for n in numbers for wrong in killed_at(Points(n), passed[n - 1], fresh)] == []


def test_a_kill_while_the_lease_is_renewed_loses_and_doubles_nothing(fresh):
    assert killed_at(RenewalPoints("after"), "after the renewal", fresh) == []


@pytest.mark.stress
def test_a_kill_at_every_commit_and_effect_loses_and_doubles_nothing(fresh):
    passed = passed_by(fresh)
    for n, label in enumerate(passed, 1):
        assert killed_at(Points(n), f"{label} ({n})", fresh) == []
    for when in ("before", "after"):
        assert killed_at(RenewalPoints(when), f"{when} the renewal", fresh) == []
    print(f"killed at {len(passed) + 2} points, {2 * len(NAMED)} of them by name: nothing lost, nothing doubled")
