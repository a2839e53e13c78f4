"""Documents and positions that were written when the analyst was finished, as somebody else would write them."""

from agents.definitions.playbooks import Position, Rule
from agents.providers.offline.matching import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpus import Case

SERVICES = """MASTER SERVICES AGREEMENT

1. SERVICES
1.1 Contractor will perform the services described in each Statement of Work.

2. FEES AND PAYMENT
2.1 Contractor shall invoice monthly in arrears. Each undisputed invoice falls due sixty (60) days after
the date on which Client receives it.
2.2 Amounts not paid when due accrue interest at the rate of 1.5% per month.

3. TERM AND TERMINATION
3.1 This Agreement begins on the Effective Date and continues for one year.
3.2 It shall renew automatically for successive one-year periods unless cancelled.
3.3 Client may terminate this Agreement for convenience by giving ten (10) days' written notice.

4. CONFIDENTIALITY
4.1 Each party shall protect the other party's Confidential Information for a period of two (2) years
after termination of this Agreement.

5. INTELLECTUAL PROPERTY
All work product created under this Agreement shall be owned exclusively by Contractor.

6. INSURANCE
Contractor shall carry commercial general liability insurance of at least $2,000,000 per occurrence.

7. GOVERNING LAW
This Agreement is governed by the laws of the State of Texas, without regard to conflict of laws rules.
"""
LEASE = """RESIDENTIAL LEASE

Rent. The Tenant agrees to pay $1,850 per month, due on the 5th day of each month.
Deposit. A refundable deposit of $1,850 is held by the Landlord and will be returned within 60 days of move-out.
Pets. No pets are allowed on the premises.
Entry. The Landlord may enter the unit at any time without notice.
Repairs. The Landlord is responsible for repairs to the heating, plumbing and electrical systems.
Utilities: paid by Tenant.
"""
POLICY = """Travel and Expense Policy

* Meals are reimbursed up to 75 USD per day.
* Flights longer than six hours may be booked in business class.
* Employees should submit expense reports within 60 days of travel.
* Alcohol is reimbursable.
* Receipts are required for expenses over 25 USD.
"""
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


def position(issue, standard, *fallbacks, **more):
    return Position(issue, "warn", standard, fallbacks, **more)


def rule(form, text="", *phrases):
    return Rule(form, text, phrases)


CASES = [
    Case(
        "msa-payment",
        position("Payment terms", "Undisputed invoices are due within 45 days of receipt."),
        SERVICES,
        DEVIATES,
        "sixty (60)",
    ),
    Case(
        "msa-payment-longer",
        position("Payment terms", "Client pays invoices within 90 days of receipt.", "60 days"),
        SERVICES,
        FALLBACK,
    ),
    Case(
        "msa-interest",
        position("Late payment interest", "Interest on late amounts shall not exceed 1% per month."),
        SERVICES,
        DEVIATES,
        "1.5%",
    ),
    Case(
        "msa-interest-ok",
        position("Late payment interest", "Interest on overdue amounts is at most 2% per month."),
        SERVICES,
        MEETS,
    ),
    Case("msa-renewal", rule("must not", "renew automatically"), SERVICES, DEVIATES, "renew automatically"),
    Case(
        "msa-convenience",
        position("Termination for convenience", "Client may terminate for convenience on 30 days' written notice."),
        SERVICES,
        DEVIATES,
        "ten (10)",
    ),
    Case(
        "msa-confidentiality",
        position(
            "Confidentiality period", "Confidentiality obligations survive at least three years after termination."
        ),
        SERVICES,
        DEVIATES,
        "two (2) years",
    ),
    Case(
        "msa-property",
        position("Ownership of work product", "All work product is owned by the Customer."),
        SERVICES,
        DEVIATES,
        "Contractor",
    ),
    Case(
        "msa-insurance",
        position(
            "Insurance", "The Supplier maintains commercial general liability insurance of at least USD 1,000,000."
        ),
        SERVICES,
        MEETS,
    ),
    Case(
        "msa-law",
        position("Governing law", "This Agreement is governed by the laws of the State of New York."),
        SERVICES,
        DEVIATES,
        "Texas",
    ),
    Case(
        "msa-law-fallback",
        position(
            "Governing law",
            "The laws of the State of Delaware govern this Agreement.",
            "The laws of the State of Texas govern this Agreement.",
        ),
        SERVICES,
        FALLBACK,
    ),
    Case(
        "msa-indemnity",
        position("Indemnification", "Supplier shall indemnify Customer against third-party claims."),
        SERVICES,
        MISSING,
    ),
    Case("msa-data", rule("must mention", "", "data protection"), SERVICES, MISSING),
    Case(
        "lease-day", position("Rent due date", "Rent is due on the 1st day of each month."), LEASE, DEVIATES, "5th day"
    ),
    Case(
        "lease-return",
        position("Return of deposit", "The deposit shall be returned within 30 days after move-out."),
        LEASE,
        DEVIATES,
        "60 days",
    ),
    Case(
        "lease-entry",
        position("Landlord entry", "The Landlord may enter only after 24 hours' notice."),
        LEASE,
        DEVIATES,
        "without notice",
    ),
    Case(
        "lease-repairs",
        position("Repairs", "The Landlord shall repair heating, plumbing and electrical systems."),
        LEASE,
        MEETS,
    ),
    Case("lease-pets", position("Pets", "Pets are not allowed."), LEASE, MEETS),
    Case("lease-rent", rule("at most", "USD 2,000: rent per month"), LEASE, MEETS),
    Case("lease-rent-high", rule("at most", "USD 1,500: rent per month"), LEASE, DEVIATES, "$1,850"),
    Case("policy-meals", position("Meals", "Meals are reimbursed up to 50 USD per day."), POLICY, DEVIATES, "75 USD"),
    Case("policy-reports", rule("at most", "30 days: expense reports"), POLICY, DEVIATES, "60 days"),
    Case("policy-alcohol", position("Alcohol", "Alcohol is not reimbursable."), POLICY, DEVIATES, "Alcohol"),
    Case("policy-receipts", position("Receipts", "Receipts are required for all expenses over USD 25."), POLICY, MEETS),
    Case("policy-class", rule("must not mention", "", "first class"), POLICY, MEETS),
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
]
