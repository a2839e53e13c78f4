"""Which rule an event fits: the table of points, and who wins."""

import pytest

from agents.enums import EventSeverity
from agents.triggers.events import Facts, Rule, best_rule, most_specific, score

CRITICAL, WARNING, CAUTION, INFO = (EventSeverity(word) for word in ("critical", "warning", "caution", "info"))
FIRE = Facts("plant", "alarm", "safety", WARNING)


@pytest.mark.parametrize(
    ("rule", "points"),
    [
        (Rule(), 0),
        (Rule("*", "*", "*"), 0),
        (Rule("plant"), 10),
        (Rule(event_type="alarm"), 5),
        (Rule(category="safety"), 3),
        (Rule(min_severity=CAUTION), 1),
        (Rule(min_severity=WARNING), 2),
        (Rule(min_severity=CRITICAL), None),
        (Rule("plant", "alarm"), 15),
        (Rule("plant", "*", "safety"), 13),
        (Rule("*", "alarm", "safety", CAUTION), 9),
        (Rule("plant", "alarm", "safety", WARNING), 20),
        (Rule("office", "alarm", "safety", WARNING), None),
        (Rule("plant", "test", "safety"), None),
        (Rule("plant", "alarm", "fire"), None),
        (Rule("Plant"), None),
    ],
)
def test_a_rule_scores_by_what_it_names(rule, points):
    assert score(rule, FIRE) == points


def test_a_rule_that_names_something_does_not_fit_an_event_that_says_nothing():
    assert score(Rule("plant"), Facts()) is None
    assert score(Rule(), Facts()) == 0


def test_the_most_specific_rule_wins():
    assert best_rule([Rule(), Rule("plant"), Rule("plant", min_severity=WARNING), Rule(event_type="alarm")], FIRE) == (
        2,
        12,
    )


def test_of_equal_rules_the_first_wins():
    assert best_rule([Rule("office"), Rule("plant"), Rule("plant", "*")], FIRE) == (1, 10)


def test_no_rule_fits():
    assert best_rule([], FIRE) is None
    assert best_rule([Rule("office"), Rule(min_severity=CRITICAL)], FIRE) is None


def test_the_rule_that_names_most_is_found_without_an_event():
    rules = [
        Rule(),
        Rule(event_type="alarm", min_severity=CRITICAL),
        Rule("plant", "*"),
        Rule("office"),
        Rule("*", "*"),
    ]
    assert most_specific(rules) == 2
    assert most_specific([]) is None
