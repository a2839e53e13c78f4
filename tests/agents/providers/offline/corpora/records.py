"""Records of a business: a questionnaire, minutes, an incident report, an invoice and a letter."""

from agents.providers.offline.verdicts import DEVIATES, MEETS, MISSING
from tests.agents.providers.offline.corpora.case import Case, position, rule

QUESTIONNAIRE = """| # | Question | Answer |
| 1 | Is multi-factor authentication enforced for all administrators? | Yes |
| 2 | Are backups tested? | Yes, every 18 months |
| 3 | Which TLS version is the minimum? | TLS 1.1 |
| 4 | Do you sell customer data to third parties? | No |
| 5 | Are access rights reviewed? | Quarterly |
| 6 | Is there a vulnerability disclosure program? | No |
"""
MINUTES = """Minutes of the Board Meeting, 4 March 2025

Present: A. Silva, B. Okafor, C. Lund (quorum).
1. The minutes of the previous meeting were approved.
2. The budget of EUR 480,000 was approved by four votes to one.
3. The purchase of the warehouse was rejected.
Next meeting: 8 April.
"""
INCIDENT = """Incident report 2025-031

Summary: The payment service was unavailable from 09:12 to 10:40 UTC.
Detection: A customer reported the outage; monitoring raised no alert.
Impact: about 4,200 orders failed.
Resolution: the faulty deployment was rolled back.
Affected customers were not informed.
"""
INVOICE = """Invoice 2025/118
Bill to: Marlow Foods
Date: 3 February 2025
PO number: 4471

Consulting, 12 hours at 150.00 EUR ........ 1,800.00 EUR
VAT 19% ................................... 342.00 EUR
Total ..................................... 2,142.00 EUR

Please pay within 14 days without deduction.
A fee of 40 EUR is charged for each reminder.
"""
ORDER_LETTER = """Dear Ms. Novak,

we confirm your order no. 7781. Delivery takes place on 12 May 2025, free to the door. Payment: 50% on order, 50% on
delivery. Cancellation is possible free of charge up to 24 hours before delivery. The statutory warranty applies.

Kind regards
"""

CASES = [
    Case(
        "ask-mfa",
        position("Multi-factor authentication", "Multi-factor authentication is enforced for administrators."),
        QUESTIONNAIRE,
        MEETS,
    ),
    Case(
        "ask-backup",
        position("Backup tests", "Backups are tested at least annually."),
        QUESTIONNAIRE,
        DEVIATES,
        "18 months",
    ),
    Case(
        "ask-tls",
        position("Transport encryption", "TLS 1.2 or higher is required."),
        QUESTIONNAIRE,
        DEVIATES,
        "TLS 1.1",
    ),
    Case(
        "ask-sale",
        position("Sale of data", "The provider does not sell customer data to third parties."),
        QUESTIONNAIRE,
        MEETS,
    ),
    Case(
        "ask-review",
        position("Access reviews", "Access rights are reviewed at least every six months."),
        QUESTIONNAIRE,
        MEETS,
    ),
    Case(
        "ask-disclosure",
        position("Vulnerability disclosure", "There is a vulnerability disclosure program."),
        QUESTIONNAIRE,
        DEVIATES,
        "No",
    ),
    Case(
        "minutes-approved",
        position("Previous minutes", "The minutes of the previous meeting were approved."),
        MINUTES,
        MEETS,
    ),
    Case(
        "minutes-warehouse",
        position("Warehouse", "The purchase of the warehouse was approved."),
        MINUTES,
        DEVIATES,
        "rejected",
    ),
    Case("minutes-budget", rule("at most", "EUR 500,000: budget"), MINUTES, MEETS),
    Case(
        "minutes-conflict",
        rule("must mention one of", "", "conflict of interest", "conflicts of interest"),
        MINUTES,
        MISSING,
    ),
    Case(
        "incident-informed",
        position("Customer notice", "Affected customers were informed."),
        INCIDENT,
        DEVIATES,
        "not informed",
    ),
    Case("incident-cause", rule("must", "state the root cause"), INCIDENT, MISSING),
    Case("incident-impact", rule("must", "state the impact"), INCIDENT, MEETS),
    Case("incident-alert", position("Detection", "Monitoring raised an alert."), INCIDENT, DEVIATES, "no alert"),
    Case("incident-rollback", position("Resolution", "The deployment was rolled back."), INCIDENT, MEETS),
    Case("inv-terms", rule("at most", "30 days: pay"), INVOICE, MEETS),
    Case(
        "inv-terms2",
        position("Payment term", "Payment is due no earlier than 30 days after the invoice date."),
        INVOICE,
        DEVIATES,
        "14 days",
    ),
    Case("inv-po", rule("must mention", "", "PO number"), INVOICE, MEETS),
    Case("inv-fee", rule("at most", "EUR 20: reminder fee"), INVOICE, DEVIATES, "40 EUR"),
    Case("inv-vat", rule("must mention", "", "VAT ID"), INVOICE, MISSING),
    Case("inv-vatrate", rule("at most", "20 %: VAT"), INVOICE, MEETS),
    Case(
        "o-cancel",
        position("Cancellation", "Cancellation is free of charge until 48 hours before delivery."),
        ORDER_LETTER,
        DEVIATES,
        "24 hours",
    ),
    Case("o-prepay", rule("at most", "30 %: payment on order"), ORDER_LETTER, DEVIATES, "50%"),
    Case("o-warranty", rule("must", "state the warranty"), ORDER_LETTER, MEETS),
    Case("o-return", rule("must mention", "", "right of withdrawal"), ORDER_LETTER, MISSING),
]
