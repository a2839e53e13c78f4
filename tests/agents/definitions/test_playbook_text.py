"""Playbooks and rules as text: one golden rendering, and reading gives back what was rendered."""

from hypothesis import given
from hypothesis import strategies as st

from agents.definitions.playbooks import (
    PlaybookText,
    Position,
    Rule,
    RuleSet,
    parse_playbook,
    parse_rules,
    render_playbook,
)
from tests.table import every_row

GOLDEN = """# Playbook: Supplier contracts (version 3)

## 1. Payment terms

Severity: critical

Standard:

> Invoices are paid within 30 days.
>
> Interest is not owed.

Fallback 1:

> Within 45 days.

Fallback 2:

> Within 60 days.

Guidance:

> Ask finance.

Must contain:

- "undisputed"

Must not contain:

- "in advance"
- "so-called "interest""

## 2. Governing law

Severity: warn
"""
PLAYBOOK = PlaybookText(
    "Supplier contracts",
    3,
    (
        Position(
            "Payment terms",
            "critical",
            "Invoices are paid within 30 days.\n\nInterest is not owed.",
            ("Within 45 days.", "Within 60 days."),
            "Ask finance.",
            ("undisputed",),
            ("in advance", 'so-called "interest"'),
        ),
        Position("Governing law"),
    ),
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LINE = WORDS.map(lambda text: " ".join(text.split())).filter(bool)
PROSE = st.lists(WORDS.map(lambda text: text.replace("\r", "")), max_size=4).map(lambda lines: "\n".join(lines).strip())
LABELS = st.sampled_from(["Severity: high", "Standard:", "## 2. x", "- x", "> x", "Must contain: a", "# Playbook: y"])
POSITIONS = st.builds(
    Position,
    issue=LINE,
    severity=LINE,
    standard=PROSE | LABELS,
    fallbacks=st.lists((PROSE | LABELS).filter(bool), max_size=3).map(tuple),
    guidance=PROSE | LABELS,
    must_contain=st.lists(LINE, max_size=3).map(tuple),
    must_not_contain=st.lists(LINE, max_size=3).map(tuple),
)
PLAYBOOKS = st.builds(PlaybookText, LINE, st.integers(1, 10**8), st.lists(POSITIONS, max_size=3).map(tuple))


def test_golden_rendering():
    assert render_playbook(PLAYBOOK) == GOLDEN
    assert parse_playbook(GOLDEN) == PLAYBOOK
    assert parse_playbook(GOLDEN.replace("\n", "\r\n")) == PLAYBOOK


@given(PLAYBOOKS)
def test_rendered_playbook_is_read_back(playbook):
    assert parse_playbook(render_playbook(playbook)) == playbook


@given(WORDS, WORDS, WORDS)
def test_untidy_values_are_normalised_once(name, issue, text):
    untidy = PlaybookText(name, 1, (Position(issue, name, text, (text, " "), text, (text,), ("",)),))
    tidy = parse_playbook(render_playbook(untidy))

    assert render_playbook(tidy) == render_playbook(untidy)
    assert parse_playbook(render_playbook(tidy)) == tidy


def test_text_without_a_playbook_is_an_empty_one():
    assert parse_playbook("") == parse_playbook("words\nStandard: x\n") == PlaybookText("(unnamed)", 1, ())


@every_row(
    ("line", "rule"),
    [
        ("must: be signed", Rule("must", "be signed")),
        ("[Critical] Must not: renew", Rule("must not", "renew", severity="Critical")),
        ("**Must not** renew", Rule("must not", "renew")),
        ("shall state the law", Rule("must", "state the law")),
        ("never mention: price", Rule("must not mention", "price")),
        ('must mention: "VAT", “tax number”', Rule("must mention", phrases=("VAT", "tax number"))),
        ('must contain one of: "a", «b»', Rule("must mention one of", phrases=("a", "b"))),
        ("should: name a contact", Rule("should", "name a contact", severity="info")),
        ("[ ] must: be dated", Rule("must", "be dated")),
        ("At most 30 days: payment", Rule("at most", "30 days: payment")),
        ("no less than 2 years of warranty", Rule("at least", "2 years of warranty")),
    ],
)
def test_synonyms_of_forms_are_read(line, rule):
    assert parse_rules(f"# Check\n\n## Rules\n- {line}\n").rules == (rule,)


def test_unknown_items_are_reported_and_prose_is_skipped():
    text = """Read carefully.
- a list item elsewhere
- must be careful here
- must: be signed

## Rules
- be nice
- must:
1. must: be dated
"""
    assert parse_rules(text) == RuleSet((Rule("must", "be signed"), Rule("must", "be dated")), ("be nice", "must:"))
