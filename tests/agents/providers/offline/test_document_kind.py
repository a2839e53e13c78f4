"""Documents of another kind than a playbook is for: one finding that says so, not one for each position."""

import re
from pathlib import Path

import pytest

from agents.definitions.playbooks import PlaybookText, read_playbook, render_playbook
from agents.text.blocks import render_block
from tests.agents.providers.offline.corpora.case import position
from tests.agents.providers.offline.offline_calls import NONCE, analysis, document, playbook, skill

SAMPLES = Path(__file__).parents[4] / "samples"
TITLE = "Not the kind of document that the playbook is for"
NAME, POSITIONS = read_playbook((SAMPLES / "playbooks" / "contract-review.yaml").read_text())
CONTRACT_REVIEW = render_block("playbook", render_playbook(PlaybookText(NAME, 1, POSITIONS)), nonce=NONCE)
NORTHGATE = (SAMPLES / "documents" / "supplier-contract-northgate.md").read_text()
TOTAL = len(POSITIONS)


def sample(name):
    return (SAMPLES / "documents" / name).read_text()


def findings(text, *parts):
    return analysis(*(parts or [CONTRACT_REVIEW]), document(text))["findings"]


@pytest.mark.parametrize(
    "name", ["policy-memo.md", "weekly-report.md", "weekly-report-complete.md", "incident-checkout.md"]
)
def test_a_document_of_another_kind_yields_one_finding(name):
    result = analysis(CONTRACT_REVIEW, document(sample(name)))

    (found,) = result["findings"]
    assert (found["title"], found["severity"], found["quote"]) == (TITLE, "warn", "")
    assert "“Supplier contract review”" in found["content"]
    assert "Check that this is the right playbook for it." in found["content"]
    assert all(position.issue in found["content"] for position in POSITIONS), "none is lost if the playbook is right"
    assert result["analyst"]["verdicts"] == {"undecided": 1}


def test_markings_of_another_kind_of_document_are_still_reported():
    assert analysis(CONTRACT_REVIEW, document(sample("policy-memo.md")))["privilege_concerns"]


@pytest.mark.parametrize("name", ["supplier-contract-northgate.md", "supplier-contract-brightline.md"])
def test_contracts_are_checked_position_by_position(name):
    result = analysis(CONTRACT_REVIEW, document(sample(name)))

    assert TITLE not in {found["title"] for found in result["findings"]}
    assert sum(result["analyst"]["verdicts"].values()) == TOTAL


@pytest.mark.parametrize("number", range(1, TOTAL + 1))
def test_a_contract_with_one_clause_yields_the_missing_ones(number):
    sections = re.split(r"(?m)^## ", NORTHGATE)[1:]
    assert len(sections) >= TOTAL
    verdicts = analysis(CONTRACT_REVIEW, document(f"# Agreement\n\n## {sections[number - 1]}"))["analyst"]["verdicts"]

    assert "undecided" not in verdicts
    assert verdicts["missing"] >= TOTAL - 2


def test_a_forbidden_phrase_is_reported_in_any_document():
    text = sample("policy-memo.md") + "\n\nThe archive accepts no liability whatsoever.\n"

    titles = {found["title"] for found in findings(text)}

    assert titles == {TITLE, "Limitation of liability: deviates from the standard"}


def test_what_was_found_in_a_document_of_another_kind_is_reported():
    """A playbook for incidents over a terse log shares few words with it, and finds one thing that is wrong."""
    log = playbook(
        position("Owner", "The incident names the person in charge of the response."),
        position("Impact", "The incident says how many customers were affected."),
        position("Timeline", "The incident lists each step with its time."),
        position("Backup", "A restore from the backup was tested.", must_contain=("restore tested",)),
        position("Debug", "Debug mode is switched off in production.", must_not_contain=("debug=true",)),
    )
    text = "02:11:04 ERROR db01 connection refused\n02:11:09 WARN web03 debug=true\n" * 20

    kind, debug = findings(text, log)

    assert (kind["title"], debug["title"]) == (TITLE, "Debug: deviates from the standard")
    assert "missing or not met: Owner; Impact; Timeline; Backup; Debug." in kind["content"]


def test_rules_of_a_skill_are_checked_in_any_document():
    rules = skill('## Rules\n\n- must mention: "retention", "signature"\n')

    titles = [found["title"] for found in findings(sample("policy-memo.md"), CONTRACT_REVIEW, rules)]

    assert TITLE in titles
    assert any("signature" in title and title.endswith("not found in the document") for title in titles)


def test_each_playbook_is_judged_by_itself():
    memo = playbook(
        position("Retention", "Recordings of customer calls are kept for at most 24 months."),
        position("Report", "The data protection officer shall report to the board."),
        position("Disputes", "Recordings for an open dispute may be kept until the dispute has ended."),
        position("Suppliers", "No recording older than 12 months is handed to a supplier."),
    )

    found = findings(sample("policy-memo.md"), CONTRACT_REVIEW, memo)

    assert [one["title"] for one in found if one["verdict"] == "undecided"] == [TITLE]
    assert NAME in found[0]["content"]


def test_a_playbook_of_few_positions_or_of_phrases_alone_says_nothing_about_the_kind():
    few = playbook(*POSITIONS[:3])
    phrases = playbook(*(position(f"Topic {number}", "", must_contain=(f"word {number}",)) for number in range(6)))

    for rules, count in ((few, 3), (phrases, 6)):
        found = findings(sample("policy-memo.md"), rules)
        assert [one["verdict"] for one in found] == ["missing"] * count
