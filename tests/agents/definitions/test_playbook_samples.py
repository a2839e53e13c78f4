"""The samples are real: each loads, and the offline analyst finds in each sample document what a person would."""

import json
from pathlib import Path

import pytest

from agents.definitions.playbooks import PlaybookText, parse_rules, read_playbook, render_playbook
from agents.definitions.skill_files import read_skill, skill_names
from agents.providers.offline.provider import OfflineProvider
from agents.text.blocks import render_block
from agents.types import ModelRequest
from tests.agents.providers.listeners import ignore
from tests.table import every_row

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
NONCE = "7f3a9c0e51d2"
CONTRACT = "contract-review.yaml"
TRIAGE = "incident-triage.yaml"


def target(name):
    """A playbook or a skill as a run would put it into its prompt."""
    if name.endswith(".yaml"):
        title, positions = read_playbook((SAMPLES / "playbooks" / name).read_text(encoding="utf-8"))
        rendered = render_playbook(PlaybookText(title, 1, positions))
        return render_block("playbook", rendered, nonce=NONCE)
    return render_block("skill", read_skill(SAMPLES / "skills", name).body, nonce=NONCE)


def text_of(document):
    return (SAMPLES / "documents" / document).read_text(encoding="utf-8")


def analysis(against, text):
    content = "\n\n".join([target(against), render_block("document", text, nonce=NONCE, id="d1", name="d1")])
    request = ModelRequest("offline", ({"role": "user", "content": content},), max_tokens=20_000)
    return json.loads(OfflineProvider().stream(request, ignore).text)


def found(answer):
    """(severity, what it is about, what shows it) of each finding, in order."""
    return [
        (one["severity"], one["title"].rpartition(": ")[0], " ".join(one["quote"].split()))
        for one in answer["findings"]
    ]


def test_deviating_contract_has_a_finding_per_clause():
    answer = analysis(CONTRACT, text_of("supplier-contract-brightline.md"))

    assert found(answer) == [
        (
            "critical",
            "Limitation of liability",
            "The Supplier's total liability in each contract year shall be limited to 50 % of the annual fees.",
        ),
        (
            "critical",
            "Data protection",
            "The Supplier shall notify the Customer of a personal data breach within 5 days.",
        ),
        ("critical", "Indemnity for infringement", ""),
        ("warn", "Payment term", "The Customer shall pay undisputed invoices within 14 days of receipt."),
        ("warn", "Automatic renewal", "This Agreement renews automatically for further periods of 24 months."),
        ("warn", "Governing law", "This Agreement is governed by the laws of the State of Delaware."),
    ]
    assert answer["analyst"]["verdicts"] == {"deviates": 5, "missing": 1, "fallback": 2, "meets": 2}
    assert len(answer["suggested_precedents"]) == 5


def test_conforming_contract_has_no_finding():
    answer = analysis(CONTRACT, text_of("supplier-contract-northgate.md"))

    assert found(answer) == []
    assert answer["analyst"]["verdicts"] == {"meets": 10}


@every_row(
    ("said", "instead", "issue"),
    [
        ("limited to 200 %", "limited to 100 %", "Limitation of liability"),
        ("within 45 days", "within 10 days", "Payment term"),
        ("shall not renew automatically", "renews automatically every year", "Automatic renewal"),
        ("may terminate", "may not terminate", "Termination for convenience"),
        ("within 24 hours", "within 96 hours", "Data protection"),
        ("shall indemnify", "shall not indemnify", "Indemnity for infringement"),
        ("at least 5 years", "2 years", "Confidentiality"),
        ("at least 99.9 %", "at least 97 %", "Availability of the Services"),
        ("laws of England and Wales", "laws of Singapore", "Governing law"),
        ("Neither party may", "The Supplier may", "Assignment"),
    ],
)
def test_each_position_of_the_contract_review_is_checked(said, instead, issue):
    text = text_of("supplier-contract-northgate.md")
    assert said in text

    assert [about for _, about, _ in found(analysis(CONTRACT, text.replace(said, instead)))] == [issue]


def test_memo_is_found_to_be_privileged():
    answer = analysis("weekly-scan", text_of("policy-memo.md"))

    assert answer["privilege_concerns"] == ["PRIVILEGED AND CONFIDENTIAL", "Attorney-client communication"]
    assert [severity for severity, _, _ in found(answer)] == ["info"]


def test_weekly_report_is_scanned():
    answer = analysis("weekly-scan", text_of("weekly-report.md"))

    assert [(severity, quote) for severity, _, quote in found(answer)] == [
        ("critical", "Of 18,400 parcels, 3.9 % were delivered late."),
        ("critical", "Overtime costs were EUR 41,200, against a budget of EUR 35,000."),
        ("warn", "The number of lost orders is to be confirmed."),
        ("info", ""),
    ]


def test_complete_weekly_report_has_no_finding():
    assert found(analysis("weekly-scan", text_of("weekly-report-complete.md"))) == []


@pytest.mark.parametrize("against", [TRIAGE, "incident-triage"])
def test_sufficient_alert_has_no_finding(against):
    assert found(analysis(against, text_of("incident-checkout.md"))) == []


@pytest.mark.parametrize("against", [TRIAGE, "incident-triage"])
def test_insufficient_alert_has_findings(against):
    answer = analysis(against, text_of("incident-disk.txt"))

    assert [severity for severity, _, _ in found(answer)] == ["critical", "critical", "warn", "warn", "warn"]
    assert ("critical", "Owner: unknown") in [(severity, quote) for severity, _, quote in found(answer)]


def test_webhook_alert_is_triaged():
    data = {
        "affected_service": "checkout-api",
        "customer_impact": "about 4 % of the orders fail with a timeout",
        "owner": "payments-oncall",
        "runbook": "https://runbooks.example.org/checkout-latency",
        "started_at": "2026-03-14T09:12:00Z",
        "summary": "The latency of the checkout rose after the release, and requests wait for a free connection.",
    }
    without_impact = {key: value for key, value in data.items() if key != "customer_impact"}
    head = "title: The checkout is slow\nsource: alertmanager\nseverity: critical\n\n"

    assert found(analysis(TRIAGE, head + json.dumps(data, indent=2))) == []
    gaps = [about for _, about, _ in found(analysis(TRIAGE, head + json.dumps(without_impact, indent=2)))]
    assert gaps == ["Customer impact"]


@pytest.mark.parametrize("name", skill_names(SAMPLES / "skills"))
def test_every_rule_of_a_sample_skill_is_parsed(name):
    rules = parse_rules(read_skill(SAMPLES / "skills", name).body)

    assert len(rules.rules) >= 5
    assert rules.ignored == ()


@pytest.mark.parametrize("file", sorted(path.name for path in (SAMPLES / "playbooks").glob("*.yaml")))
def test_every_sample_playbook_loads(file):
    _, positions = read_playbook((SAMPLES / "playbooks" / file).read_text(encoding="utf-8"))

    assert 6 <= len(positions) <= 10
    assert {position.severity for position in positions} <= {"info", "warn", "critical"}
