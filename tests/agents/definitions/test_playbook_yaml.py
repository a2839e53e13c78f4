"""Playbooks in YAML: what is read, how a mistake is told, and that writing and reading give the same values."""

from dataclasses import asdict
from unittest.mock import patch

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.definitions.playbooks import Position, checked_playbook, read_playbook, write_playbook
from agents.exceptions import Invalid
from agents.text import strict_yaml
from tests.table import every_row

WHOLE = """
name: Leases
positions:
  - issue: Deposit
    severity: critical
    standard: |
      The deposit is at most
      three months' rent.
    fallbacks: [Four months' rent., "Five months' rent."]
    guidance: Ask the landlord.
    must_contain:
      - deposit
      - "2024"
    must_not_contain: []
  - issue: Pets
    standard:
"""


def test_complete_playbook_is_read():
    assert read_playbook(WHOLE) == (
        "Leases",
        (
            Position(
                "Deposit",
                "critical",
                "The deposit is at most\nthree months' rent.",
                ("Four months' rent.", "Five months' rent."),
                "Ask the landlord.",
                ("deposit", "2024"),
            ),
            Position("Pets"),
        ),
    )


def position(text):
    return f"name: n\npositions:\n  - issue: one\n  - issue: two\n{text}"


@every_row(
    ("text", "says"),
    [
        ("- a", "expected a map with the keys name, positions; got a list (line 1)"),
        ("just words", 'expected a map with the keys name, positions; got "just words" (line 1)'),
        ("positions: [{issue: a}]", "name: expected a value: name is required; got nothing (line 1)"),
        ("name:\npositions: [{issue: a}]", "name: expected a value: name is required; got nothing (line 1)"),
        ("name: '  '\npositions: [{issue: a}]", 'name: expected text that is not empty; got "  " (line 1)'),
        ("name: [a]\npositions: [{issue: a}]", "name: expected text; got a list (line 1)"),
        ("name: 2024\npositions: [{issue: a}]", "name: expected text, in quotes; got 2024 (line 1)"),
        ("name: true\npositions: [{issue: a}]", "name: expected text, in quotes; got true (line 1)"),
        ("\nname: n", "positions: expected a value: positions is required; got nothing (line 2)"),
        ("name: n\npositions:", "positions: expected a value: positions is required; got nothing (line 2)"),
        ("name: n\npositions: []", "positions: expected a list of at least 1 positions; got a list (line 2)"),
        ("name: n\npositions: {a: b}", "positions: expected a list of positions; got a map (line 2)"),
        ("name: n\npositions:\n  - text", "positions[0]: expected a map with the keys issue, severity, standard"),
        ("name: n\npositions:\n  - severity: info", "positions[0].issue: expected a value: issue is required"),
        (position("    severity:\n      - info"), "positions[1].severity: expected text; got a list (line 5)"),
        (position("    guidance: 12"), "positions[1].guidance: expected text, in quotes; got 12 (line 5)"),
        (position("    fallbacks: text"), 'positions[1].fallbacks: expected a list of texts; got "text" (line 5)'),
        (position("    fallbacks: [a, ~]"), "positions[1].fallbacks[1]: expected text; got nothing (line 5)"),
        (
            position("    must_contain:\n      - a\n      - [b]"),
            "positions[1].must_contain[1]: expected text; got a list (line 7)",
        ),
        (
            position("    fallback: x"),
            "positions[1].fallback: expected one of the keys issue, severity, standard, fallbacks, guidance, ",
        ),
        ("name: 5\npositions: 6", "name: expected text, in quotes; got 5 (line 1)\npositions: expected a list of"),
    ],
)
def test_error_names_key_and_line(text, says):
    with pytest.raises(Invalid) as refusal:
        read_playbook(text)

    assert str(refusal.value).startswith(says)


def test_long_text_is_written_as_a_block():
    text = write_playbook("Leases", (Position("Deposit", standard="One.\nTwo.", must_contain=("a: b", "no", "3")),))

    assert text == (
        "name: Leases\npositions:\n- issue: Deposit\n  severity: warn\n  standard: |-\n    One.\n    Two.\n"
        "  must_contain:\n  - 'a: b'\n  - 'no'\n  - '3'\n"
    )


def test_other_yaml_readers_read_the_same_values():
    positions = (Position("Deposit", "critical", "The deposit: 3 months.", ("yes", "1.10"), must_contain=("2024",)),)

    read = yaml.safe_load(write_playbook("5", positions))

    assert read == {
        "name": "5",
        "positions": [
            {
                "issue": "Deposit",
                "severity": "critical",
                "standard": "The deposit: 3 months.",
                "fallbacks": ["yes", "1.10"],
                "must_contain": ["2024"],
            }
        ],
    }


REPEATED = settings(suppress_health_check=[HealthCheck.too_slow])
TEXT = st.text(
    st.one_of(
        st.sampled_from("\n\n\t  :#-?*&!|>'\"%@`{}[],~<=0123456789yesnofftrue\x85\u2028\u2029\xa0\ufeff"),
        st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"),
    ),
    max_size=60,
)
LISTS = st.lists(TEXT, max_size=3).map(tuple)
POSITIONS = st.builds(
    Position,
    issue=TEXT.filter(str.strip),
    severity=TEXT.map(lambda text: text[:32]),
    standard=TEXT,
    fallbacks=LISTS,
    guidance=TEXT,
    must_contain=LISTS,
    must_not_contain=LISTS,
)


def checked(name, positions):
    return checked_playbook({"name": name, "positions": [asdict(one) for one in positions]})


@pytest.mark.parametrize("parser", [strict_yaml.LOADER, yaml.SafeLoader], ids=["usual", "in Python"])
@REPEATED
@given(name=TEXT.filter(str.strip), positions=st.lists(POSITIONS, min_size=1, max_size=3))
def test_written_playbook_is_read_back(parser, name, positions):
    kept = checked(name, positions)

    with patch.object(strict_yaml, "LOADER", parser):
        assert read_playbook(write_playbook(*kept)) == kept


@REPEATED
@given(st.lists(POSITIONS, min_size=1, max_size=3))
def test_stored_positions_survive_writing_and_reading(positions):
    kept = checked("n", positions)

    assert checked(*kept) == kept


@REPEATED
@given(st.text(max_size=400) | st.lists(st.sampled_from(list("-:?[]{}&*!|>'\"%#\n  ab0")), max_size=200).map("".join))
def test_any_text_is_read_or_refused(text):
    try:
        name, positions = read_playbook(text)
    except Invalid:
        return
    assert name.strip()
    assert all(isinstance(one, Position) for one in positions)
