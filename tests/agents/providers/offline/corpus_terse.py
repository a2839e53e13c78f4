"""A fourth set: terse positions as people jot them down, a lease, a letter, a policy, and single clauses."""

from agents.providers.offline.matching import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpus import Case
from tests.agents.providers.offline.corpus_later import position, rule

LEASE = """COMMERCIAL LEASE

Article 3 - Rent
3.1 Base rent is EUR 4,200 per month, payable in advance on the first business day of each month.
3.2 The rent is indexed annually to the consumer price index, with increases capped at 3% per year.

Article 4 - Term
The lease runs for a fixed term of ten years. The Tenant has no right of early termination.

Article 5 - Maintenance
The Tenant bears the cost of structural repairs, including the roof and the façade.

Article 6 - Insurance
The Tenant shall take out third-party liability insurance with a minimum cover of EUR 1 million.

Article 7 - Use
The premises may be used solely as office space.
"""
LETTER = """Dear Ms. Novak,

we confirm your order no. 7781. Delivery takes place on 12 May 2025, free to the door. Payment: 50% on order, 50% on
delivery. Cancellation is possible free of charge up to 24 hours before delivery. The statutory warranty applies.

Kind regards
"""
POLICY = """SECURITY POLICY v2

Access control
All accounts require multi-factor authentication. Shared accounts are forbidden. Inactive accounts are disabled
after 45 days.

Patching
Critical patches shall be installed within 14 days of release; other patches within 60 days.

Logging
Logs are kept for 6 months and reviewed weekly.

Laptops
Disk encryption is recommended on laptops.

Incident response
Employees must report suspected incidents to the security team immediately.
"""

CASES = [
    Case("l-index", position("Rent indexation", "Annual increases are capped at 2%."), LEASE, DEVIATES, "3%"),
    Case(
        "l-term", position("Lease term", "The fixed term is no longer than five years."), LEASE, DEVIATES, "ten years"
    ),
    Case(
        "l-break",
        position("Break option", "The Tenant may terminate early on six months' notice."),
        LEASE,
        DEVIATES,
        "no right",
    ),
    Case(
        "l-repairs",
        position("Structural repairs", "Structural repairs are borne by the Landlord."),
        LEASE,
        DEVIATES,
        "roof",
    ),
    Case("l-ins", position("Insurance", "Tenant maintains liability insurance of at least EUR 500,000."), LEASE, MEETS),
    Case(
        "l-ins2",
        position("Insurance", "Tenant maintains liability insurance of at most EUR 500,000."),
        LEASE,
        DEVIATES,
        "EUR 1 million",
    ),
    Case("l-use", position("Permitted use", "The premises are used as office space."), LEASE, MEETS),
    Case("l-rent", rule("at most", "EUR 4,000 base rent per month"), LEASE, DEVIATES, "4,200"),
    Case("l-sub", rule("must", "the tenant may sublet with consent"), LEASE, MISSING),
    Case(
        "o-cancel",
        position("Cancellation", "Cancellation is free of charge until 48 hours before delivery."),
        LETTER,
        DEVIATES,
        "24 hours",
    ),
    Case("o-prepay", rule("at most", "30 %: payment on order"), LETTER, DEVIATES, "50%"),
    Case("o-warranty", rule("must", "state the warranty"), LETTER, MEETS),
    Case("o-return", rule("must mention", "", "right of withdrawal"), LETTER, MISSING),
    Case("s-mfa", position("MFA", "Multi-factor authentication is required for all accounts."), POLICY, MEETS),
    Case("s-shared", position("Shared accounts", "Shared accounts are not allowed."), POLICY, MEETS),
    Case(
        "s-inactive",
        position("Inactive accounts", "Inactive accounts are disabled within 30 days.", "90 days"),
        POLICY,
        FALLBACK,
    ),
    Case(
        "s-patch",
        position("Critical patches", "Critical patches are installed within 7 days."),
        POLICY,
        DEVIATES,
        "14 days",
    ),
    Case("s-patch2", position("Critical patches", "Critical patches are installed within 30 days."), POLICY, MEETS),
    Case(
        "s-logs", position("Log retention", "Logs are retained for at least 12 months."), POLICY, DEVIATES, "6 months"
    ),
    Case("s-review", position("Log review", "Logs are reviewed at least daily."), POLICY, DEVIATES, "weekly"),
    Case("s-disk", position("Disk encryption", "Laptop disks must be encrypted."), POLICY, DEVIATES, "recommended"),
    Case(
        "s-report",
        position("Incident reporting", "Employees shall report incidents promptly to the security team."),
        POLICY,
        MEETS,
    ),
    Case("s-pentest", position("Penetration tests", "Penetration tests are performed yearly."), POLICY, MISSING),
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
