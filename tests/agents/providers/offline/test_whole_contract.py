"""A whole contract against a whole playbook: no finding while it complies, one for each changed clause."""

from tests.agents.providers.offline.corpora.case import position
from tests.agents.providers.offline.offline_calls import analysis, document, playbook
from tests.table import every_row

POSITIONS = (
    position(
        "Confidentiality",
        "Each party shall keep the other party's Confidential Information confidential for at least three years.",
    ),
    position("Term and termination", "Either party may terminate this Agreement on 60 days' written notice."),
    position(
        "Limitation of liability",
        "Neither party's aggregate liability shall exceed the fees paid in the twelve months before the claim.",
    ),
    position(
        "Indemnity",
        "Supplier shall indemnify Customer against third-party claims of intellectual property infringement.",
    ),
    position(
        "Data protection",
        "Supplier shall process personal data only on Customer's instructions and shall notify Customer of any "
        "personal data breach without undue delay and no later than 72 hours.",
    ),
    position("Insurance", "Supplier shall maintain professional liability insurance of not less than EUR 2,000,000."),
    position("Audit", "Customer may audit Supplier's records on 30 days' notice."),
    position("Subcontracting", "Supplier shall not subcontract without Customer's prior written consent."),
)
CONTRACT = """SERVICES AGREEMENT

8. Confidentiality
8.1 Each party shall keep confidential all Confidential Information of the other party for five years after the end of
the term.

9. Termination
9.1 This Agreement can be terminated by either party by giving sixty (60) days' written notice.
9.2 On termination, Supplier shall return all documents within 10 days.

10. Liability
10.1 The aggregate liability of either party is limited to the fees paid during the 12 months before the claim.
10.2 Supplier shall indemnify and hold harmless Customer from third party claims that the services
infringe intellectual property rights.

11. Data protection
11.1 Supplier processes personal data only in accordance with Customer's instructions.
11.2 Supplier shall notify Customer of a personal data breach without undue delay, at the latest within 48 hours.

12. Miscellaneous
12.1 Supplier shall maintain professional liability insurance with a cover of at least EUR 3 million.
12.2 With 30 days' notice, Customer is entitled to audit the records of Supplier.
12.3 Supplier may subcontract only with the prior written consent of Customer.
"""
TURNED = [
    ("five years", "one year", "Confidentiality"),
    ("sixty (60)", "ten (10)", "Term and termination"),
    ("12 months before", "36 months before", "Limitation of liability"),
    ("shall indemnify and hold harmless", "shall not indemnify", "Indemnity"),
    ("48 hours", "7 days", "Data protection"),
    ("EUR 3 million", "EUR 300,000", "Insurance"),
    ("With 30 days' notice", "With 90 days' notice", "Audit"),
    ("may subcontract only with", "may subcontract without", "Subcontracting"),
]


def findings(text):
    return analysis(playbook(*POSITIONS), document(text))["findings"]


def test_a_compliant_contract_gives_no_finding():
    assert findings(CONTRACT) == []


@every_row(("old", "new", "issue"), TURNED)
def test_a_changed_clause_gives_its_finding_and_no_other(old, new, issue):
    text = CONTRACT.replace(old, new)
    (found,) = findings(text)

    assert (found["position"], found["verdict"]) == (issue, "deviates")
    assert new.split()[0] in found["quote"] == text[found["start"] : found["end"]]


def test_all_changed_clauses_give_all_findings():
    text = CONTRACT
    for old, new, _ in TURNED:
        text = text.replace(old, new)

    assert [found["position"] for found in findings(text)] == [issue for _, _, issue in TURNED]
