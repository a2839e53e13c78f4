"""Which rule an event fits: the table of points, and who wins."""

import pytest

from agents.enums import EventSeverity
from agents.models import Trigger
from agents.triggers.events import EventIn, best_match

CRITICAL, WARNING, CAUTION = (EventSeverity(word) for word in ("critical", "warning", "caution"))
FIRE = EventIn("plant", "alarm", "safety", WARNING)


def rule(source="", event_type="", category="", min_severity="info"):
    return Trigger(source=source, event_type=event_type, category=category, min_severity=min_severity)


@pytest.mark.parametrize(
    ("given", "points"),
    [
        (rule(), 0),
        (rule("*", "*", "*"), 0),
        (rule("plant"), 10),
        (rule(event_type="alarm"), 5),
        (rule(category="safety"), 3),
        (rule(min_severity=CAUTION), 1),
        (rule(min_severity=WARNING), 2),
        (rule(min_severity=CRITICAL), None),
        (rule("plant", "alarm"), 15),
        (rule("plant", "*", "safety"), 13),
        (rule("*", "alarm", "safety", CAUTION), 9),
        (rule("plant", "alarm", "safety", WARNING), 20),
        (rule("office", "alarm", "safety", WARNING), None),
        (rule("plant", "test", "safety"), None),
        (rule("plant", "alarm", "fire"), None),
        (rule("Plant"), None),
    ],
)
def test_a_rule_scores_by_what_it_names(given, points):
    assert best_match([given], FIRE) == ((None, 0) if points is None else (given, points))


def test_a_rule_that_names_something_does_not_fit_an_event_that_says_nothing():
    assert best_match([rule("plant")], EventIn()) == (None, 0)


def test_the_most_specific_rule_wins_and_of_equals_the_first():
    rules = [rule(), rule("plant"), rule("plant", min_severity=WARNING), rule(event_type="alarm")]
    assert best_match(rules, FIRE) == (rules[2], 12)
    equal = [rule("office"), rule("plant"), rule("plant", "*")]
    assert best_match(equal, FIRE)[0] is equal[1]


def test_named_agent_gets_the_event_by_the_rule_that_names_most_if_none_fits():
    event = EventIn("home", target_agent="Ada")
    rules = [rule("office", min_severity=CAUTION), rule("plant", "alarm"), rule("office")]
    assert best_match(rules, event) == (rules[1], 0)
    assert best_match([], event) == (None, 0)
