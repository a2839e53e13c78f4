"""A residential and a commercial lease."""

from agents.providers.offline.verdicts import DEVIATES, MEETS, MISSING
from tests.agents.providers.offline.corpora.case import Case, position, rule

RESIDENTIAL_LEASE = """RESIDENTIAL LEASE

Rent. The Tenant agrees to pay $1,850 per month, due on the 5th day of each month.
Deposit. A refundable deposit of $1,850 is held by the Landlord and will be returned within 60 days of move-out.
Pets. No pets are allowed on the premises.
Entry. The Landlord may enter the unit at any time without notice.
Repairs. The Landlord is responsible for repairs to the heating, plumbing and electrical systems.
Utilities: paid by Tenant.
"""
COMMERCIAL_LEASE = """COMMERCIAL LEASE

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

CASES = [
    Case(
        "lease-day",
        position("Rent due date", "Rent is due on the 1st day of each month."),
        RESIDENTIAL_LEASE,
        DEVIATES,
        "5th day",
    ),
    Case(
        "lease-return",
        position("Return of deposit", "The deposit shall be returned within 30 days after move-out."),
        RESIDENTIAL_LEASE,
        DEVIATES,
        "60 days",
    ),
    Case(
        "lease-entry",
        position("Landlord entry", "The Landlord may enter only after 24 hours' notice."),
        RESIDENTIAL_LEASE,
        DEVIATES,
        "without notice",
    ),
    Case(
        "lease-repairs",
        position("Repairs", "The Landlord shall repair heating, plumbing and electrical systems."),
        RESIDENTIAL_LEASE,
        MEETS,
    ),
    Case("lease-pets", position("Pets", "Pets are not allowed."), RESIDENTIAL_LEASE, MEETS),
    Case("lease-rent", rule("at most", "USD 2,000: rent per month"), RESIDENTIAL_LEASE, MEETS),
    Case("lease-rent-high", rule("at most", "USD 1,500: rent per month"), RESIDENTIAL_LEASE, DEVIATES, "$1,850"),
    Case(
        "l-index", position("Rent indexation", "Annual increases are capped at 2%."), COMMERCIAL_LEASE, DEVIATES, "3%"
    ),
    Case(
        "l-term",
        position("Lease term", "The fixed term is no longer than five years."),
        COMMERCIAL_LEASE,
        DEVIATES,
        "ten years",
    ),
    Case(
        "l-break",
        position("Break option", "The Tenant may terminate early on six months' notice."),
        COMMERCIAL_LEASE,
        DEVIATES,
        "no right",
    ),
    Case(
        "l-repairs",
        position("Structural repairs", "Structural repairs are borne by the Landlord."),
        COMMERCIAL_LEASE,
        DEVIATES,
        "roof",
    ),
    Case(
        "l-ins",
        position("Insurance", "Tenant maintains liability insurance of at least EUR 500,000."),
        COMMERCIAL_LEASE,
        MEETS,
    ),
    Case(
        "l-ins2",
        position("Insurance", "Tenant maintains liability insurance of at most EUR 500,000."),
        COMMERCIAL_LEASE,
        DEVIATES,
        "EUR 1 million",
    ),
    Case("l-use", position("Permitted use", "The premises are used as office space."), COMMERCIAL_LEASE, MEETS),
    Case("l-rent", rule("at most", "EUR 4,000 base rent per month"), COMMERCIAL_LEASE, DEVIATES, "4,200"),
    Case("l-sub", rule("must", "the tenant may sublet with consent"), COMMERCIAL_LEASE, MISSING),
]
