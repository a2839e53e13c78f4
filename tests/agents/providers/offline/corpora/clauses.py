"""Single clauses of many trades, and positions as terse as people jot them down."""

from agents.definitions.playbooks import Position
from agents.providers.offline.verdicts import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpora.case import Case, position

PAYMENT = Position(
    "Payment terms",
    "critical",
    "The Customer shall pay undisputed invoices within 30 days of receipt.",
    ("The Customer shall pay undisputed invoices within 45 days of receipt.",),
)
LIABILITY = Position(
    "Limitation of liability",
    "critical",
    "Each party's total liability shall not exceed the fees paid in the preceding 12 months.",
    ("Liability is capped at 24 months of fees.",),
)
LAW = Position("Governing law", "warn", "This Agreement is governed by the laws of Portugal.", ("laws of Spain",))
ASSIGNMENT = Position(
    "Assignment",
    "warn",
    "Neither party may assign this Agreement without the prior written consent of the other party.",
)
BREACH = Position(
    "Breach notification",
    "critical",
    "The Supplier shall notify the Customer of any personal data breach within 48 hours.",
    ("within 72 hours",),
)
DEPOSIT = Position("Security deposit", "warn", "The security deposit shall not exceed two months' rent.")
SUBLET = Position(
    "Subletting", "warn", "The Tenant shall not sublet the premises without the Landlord's written consent."
)
REMOTE = Position(
    "Remote work", "info", "Employees may work remotely up to 3 days per week.", ("up to 2 days per week",)
)
LEAVE = Position("Annual leave", "warn", "Employees are entitled to at least 25 days of paid annual leave.")
PASSWORDS = Position("Password length", "warn", "Passwords must have at least 12 characters.")
ENCRYPTION = Position("Encryption at rest", "critical", "Customer data is encrypted at rest.")
ROOT_CAUSE = Position("Root cause", "warn", "The report states the root cause of the incident.")
QUORUM = Position("Quorum", "warn", "A quorum was present.")
LATE_FEE = Position("Late fee", "warn", "Late payments bear interest of at most 1% per month.")
PENTEST = Position("Penetration testing", "warn", "The provider performs penetration tests at least annually.")


CASES = [
    Case(
        "pay-same",
        PAYMENT,
        "1. Fees. The Customer shall pay undisputed invoices within thirty (30) days of receipt.",
        MEETS,
    ),
    Case(
        "pay-synonyms",
        PAYMENT,
        "Undisputed bills are payable by the Client no later than 30 days after receipt.",
        MEETS,
    ),
    Case("pay-earlier", PAYMENT, "Client must settle each undisputed invoice within two weeks of receiving it.", MEETS),
    Case("pay-fallback", PAYMENT, "The Customer shall pay undisputed invoices within 45 days of receipt.", FALLBACK),
    Case(
        "pay-late",
        PAYMENT,
        "Customer shall pay all undisputed invoices within ninety days of receipt.",
        DEVIATES,
        "ninety days",
    ),
    Case("pay-net", PAYMENT, "INVOICE\n\nPayment terms: Net 60\nTotal: USD 1,200.00\n", DEVIATES, "Net 60"),
    Case(
        "pay-net-ok", PAYMENT, "INVOICE\n\nPayment terms: Net 30 from receipt of invoice\nTotal: USD 1,200.00\n", MEETS
    ),
    Case(
        "pay-silent", PAYMENT, "The parties shall keep all information confidential. Notices are sent by post.", MISSING
    ),
    Case(
        "cap-same",
        LIABILITY,
        "The aggregate liability of each party is limited to the fees paid in the twelve months preceding the claim.",
        MEETS,
    ),
    Case(
        "cap-fallback",
        LIABILITY,
        "Each party's liability is capped at the fees paid in the preceding 24 months.",
        FALLBACK,
    ),
    Case(
        "cap-more",
        LIABILITY,
        "Each party's total liability shall not exceed the fees paid in the preceding 36 months.",
        DEVIATES,
        "36 months",
    ),
    Case(
        "cap-none",
        LIABILITY,
        "The Supplier's liability under this Agreement shall be unlimited.",
        DEVIATES,
        "unlimited",
    ),
    Case("law-same", LAW, "12. Governing law\nThis contract shall be governed by the law of Portugal.", MEETS),
    Case("law-other", LAW, "This Agreement is governed by the laws of Brazil.", DEVIATES, "Brazil"),
    Case("law-fallback", LAW, "This Agreement shall be governed by the laws of Spain.", FALLBACK),
    Case(
        "assign-same",
        ASSIGNMENT,
        "A party may assign this Agreement only with the prior written consent of the other party.",
        MEETS,
    ),
    Case(
        "assign-free",
        ASSIGNMENT,
        "Either party may assign this Agreement without the prior written consent of the other party.",
        DEVIATES,
        "may assign",
    ),
    Case("breach-same", BREACH, "Vendor will inform Customer of any breach of personal data within 2 days.", MEETS),
    Case(
        "breach-slow",
        BREACH,
        "Vendor will inform Customer of any breach of personal data within ten business days.",
        DEVIATES,
        "ten business days",
    ),
    Case(
        "breach-may",
        BREACH,
        "The Supplier may notify the Customer of a personal data breach within 48 hours.",
        DEVIATES,
        "may notify",
    ),
    Case(
        "breach-fallback",
        BREACH,
        "The Supplier shall notify the Customer of any personal data breach within 72 hours.",
        FALLBACK,
    ),
    Case("deposit-ok", DEPOSIT, "The Tenant pays a security deposit of one month's rent.", MEETS),
    Case(
        "deposit-high",
        DEPOSIT,
        "Upon signing, the Tenant pays a security deposit equal to three months' rent.",
        DEVIATES,
        "three months",
    ),
    Case("sublet-ok", SUBLET, "Lessee may not sublease the premises unless Lessor gives written consent.", MEETS),
    Case("sublet-free", SUBLET, "The Tenant may sublet the premises at any time.", DEVIATES, "may sublet"),
    Case("remote-fallback", REMOTE, "Employees may work remotely up to two days per week.", FALLBACK),
    Case("remote-none", REMOTE, "Remote work is not permitted for employees.", DEVIATES, "not permitted"),
    Case("leave-ok", LEAVE, "Staff are entitled to 28 days of paid annual leave.", MEETS),
    Case("leave-low", LEAVE, "Employees are entitled to 15 days of paid annual leave.", DEVIATES, "15 days"),
    Case(
        "password-ok",
        PASSWORDS,
        "Q: What is the minimum password length?\nA: Passwords must have 14 or more characters.",
        MEETS,
    ),
    Case("password-short", PASSWORDS, "Passwords have a minimum of eight characters.", DEVIATES, "eight characters"),
    Case("encryption-yes", ENCRYPTION, "Is customer data encrypted at rest? Yes, with AES-256.", MEETS),
    Case("encryption-no", ENCRYPTION, "Is customer data encrypted at rest?\nNo.", DEVIATES, "No."),
    Case("cause-found", ROOT_CAUSE, "Root cause: an expired certificate caused the incident.", MEETS),
    Case("cause-silent", ROOT_CAUSE, "The service was down for an hour. Users were told by mail.", MISSING),
    Case("quorum-ok", QUORUM, "The chair noted that a quorum was present.", MEETS),
    Case("quorum-not", QUORUM, "The chair noted that a quorum was not present.", DEVIATES, "not present"),
    Case("fee-ok", LATE_FEE, "Overdue payments bear interest at 6% per year.", MEETS),
    Case("fee-high", LATE_FEE, "Late payments bear interest at 2.5% per month.", DEVIATES, "2.5%"),
    Case("pentest-ok", PENTEST, "The provider performs penetration tests every six months.", MEETS),
    Case("pentest-rare", PENTEST, "The provider performs penetration tests every two years.", DEVIATES, "two years"),
    Case(
        "s-cap",
        position("Liability", "Cap at 12 months' fees; no unlimited liability."),
        "Supplier's liability is capped at the fees of 12 months.",
        MEETS,
    ),
    Case(
        "s-cap2",
        position("Liability", "Cap at 12 months' fees."),
        "Supplier's liability is not limited.",
        DEVIATES,
        "not limited",
    ),
    Case(
        "s-law",
        position("Governing law", "Delaware law"),
        "This Agreement shall be governed by and construed under the laws of the State of Delaware.",
        MEETS,
    ),
    Case(
        "s-law2",
        position("Governing law", "Delaware law"),
        "This Agreement shall be governed by and construed under the laws of England and Wales.",
        DEVIATES,
        "England",
    ),
    Case(
        "s-conf",
        position("Confidentiality", "Mutual confidentiality obligations"),
        "Each party shall keep the other party's information confidential.",
        MEETS,
    ),
    Case(
        "s-net",
        position("Payment", "Net 30"),
        "Invoices shall be paid within forty-five (45) days from the invoice date.",
        DEVIATES,
        "45",
    ),
    Case(
        "s-auto",
        position("Renewal", "No automatic renewal"),
        "This Agreement will automatically renew for one-year terms.",
        DEVIATES,
        "automatically",
    ),
    Case("s-auto2", position("Renewal", "No automatic renewal"), "This Agreement does not renew automatically.", MEETS),
]
