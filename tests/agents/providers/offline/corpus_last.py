"""A second set from later still: other trades, other ways of writing, longer sentences."""

from agents.providers.offline.matching import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpus import Case
from tests.agents.providers.offline.corpus_later import position, rule

DPA = """Data Processing Addendum

The Processor shall process personal data only on documented instructions from the Controller, and shall ensure that
persons authorised to process the data are bound by confidentiality. The Processor may engage sub-processors without the
prior consent of the Controller. In the event of a personal data breach the Processor will, without undue delay and in
any case within 96 hours, notify the Controller. Upon expiry of the services the Processor shall delete or return all
personal data within 30 days. Audits may be carried out once every two years on sixty days' notice.
Personal data shall be stored exclusively in the European Union.
"""
EMPLOYMENT = """EMPLOYMENT CONTRACT

Section 4 — Working Time
The regular working week is 40 hours. Overtime is compensated at 125% of the hourly wage.

Section 5 — Probation
The first six months of employment are a probationary period, during which either party may terminate on two weeks'
notice.

Section 6 — Non-Competition
For a period of 24 months following termination, the Employee shall not work for a competitor.

Section 7 — Holidays
The Employee receives 20 days of paid vacation per calendar year.

Section 8 — Data
The Employee consents to processing of personal data for payroll purposes.
"""
SUPPLY = """Supply Terms
(a) Delivery. Goods are delivered within four weeks from order confirmation;
(b) Title. Title passes to the Buyer upon full payment;
(c) Warranty. The Seller warrants the goods for a period of six (6) months from delivery;
(d) Returns. Defective goods may be returned within 14 days;
(e) Price. Prices are fixed for the term and exclude VAT;
(f) Liability. The Seller excludes all liability for consequential damages;
(g) Force majeure. Neither party is liable for delays caused by events beyond its control.
"""
SAFETY = """Site Safety Rules
- Hard hats must be worn at all times on site.
- Visitors must sign in at reception.
- Smoking is permitted in designated areas only.
- Fire drills are held twice a year.
- Ladders above 3 m need a second person.
- First-aid kits shall be inspected monthly.
"""
RETENTION = """Records Retention Schedule

Accounting records are retained for ten years. Recruitment files of unsuccessful applicants are kept for 2 years after
the decision. CCTV footage is overwritten after 90 days. Backups are encrypted and stored off-site. Records under legal
hold must not be destroyed.
"""

CASES = [
    Case(
        "dpa-breach",
        position("Breach notice", "The Processor notifies the Controller of a personal data breach within 72 hours."),
        DPA,
        DEVIATES,
        "96 hours",
    ),
    Case(
        "dpa-subprocessors",
        position(
            "Sub-processors",
            "The Processor shall not engage sub-processors without the prior consent of the Controller.",
        ),
        DPA,
        DEVIATES,
        "may engage",
    ),
    Case(
        "dpa-instructions",
        position(
            "Instructions", "The Processor processes personal data only on documented instructions of the Controller."
        ),
        DPA,
        MEETS,
    ),
    Case(
        "dpa-deletion",
        position("Deletion", "Personal data is deleted or returned within 60 days after the end of the services."),
        DPA,
        MEETS,
    ),
    Case(
        "dpa-audit",
        position("Audit", "The Controller may audit the Processor at least once a year."),
        DPA,
        DEVIATES,
        "every two years",
    ),
    Case("dpa-location", position("Data location", "Personal data is stored only in the European Union."), DPA, MEETS),
    Case("dpa-insurance", position("Cyber insurance", "The Processor maintains cyber insurance."), DPA, MISSING),
    Case(
        "job-hours",
        position("Working hours", "The working week shall not exceed 38 hours."),
        EMPLOYMENT,
        DEVIATES,
        "40 hours",
    ),
    Case(
        "job-overtime",
        position("Overtime", "Overtime is paid at no less than 150% of the hourly wage."),
        EMPLOYMENT,
        DEVIATES,
        "125%",
    ),
    Case(
        "job-probation",
        position("Probation", "The probationary period is at most three months.", "six months"),
        EMPLOYMENT,
        FALLBACK,
    ),
    Case(
        "job-compete",
        position("Non-compete", "The non-compete lasts at most 12 months after termination."),
        EMPLOYMENT,
        DEVIATES,
        "24 months",
    ),
    Case(
        "job-vacation",
        position("Paid vacation", "Employees have at least 24 days of paid holiday per year."),
        EMPLOYMENT,
        DEVIATES,
        "20 days",
    ),
    Case("job-vacation-ok", rule("at least", "20 days: paid vacation"), EMPLOYMENT, MEETS),
    Case("job-severance", rule("must", "state the severance pay"), EMPLOYMENT, MISSING),
    Case(
        "goods-delivery",
        position("Delivery time", "Goods are delivered within 30 days from order confirmation."),
        SUPPLY,
        MEETS,
    ),
    Case(
        "goods-warranty",
        position("Warranty period", "The Supplier warrants the goods for at least 24 months."),
        SUPPLY,
        DEVIATES,
        "six (6) months",
    ),
    Case(
        "goods-title",
        position("Transfer of title", "Title passes to the Buyer upon delivery."),
        SUPPLY,
        DEVIATES,
        "full payment",
    ),
    Case(
        "goods-returns",
        position("Returns", "Defective goods may be returned within 30 days.", "14 days"),
        SUPPLY,
        FALLBACK,
    ),
    Case("goods-price", position("Price", "Prices are fixed for the term."), SUPPLY, MEETS),
    Case(
        "goods-force",
        position("Force majeure", "Neither party is liable for delay caused by events beyond its control."),
        SUPPLY,
        MEETS,
    ),
    Case("goods-limit", rule("must not", "exclude liability for consequential damages"), SUPPLY, DEVIATES, "excludes"),
    Case("site-hats", position("Hard hats", "Hard hats must be worn on site."), SAFETY, MEETS),
    Case("site-smoking", position("Smoking", "Smoking is prohibited on site."), SAFETY, DEVIATES, "permitted"),
    Case("site-kits", position("First aid", "First-aid kits are inspected at least every quarter."), SAFETY, MEETS),
    Case("site-visitors", rule("must", "visitors sign in"), SAFETY, MEETS),
    Case("site-gloves", rule("must", "gloves are worn"), SAFETY, MISSING),
    Case(
        "keep-books",
        position("Accounting records", "Accounting records are kept for at least 7 years."),
        RETENTION,
        MEETS,
    ),
    Case(
        "keep-applicants",
        position("Applicant files", "Files of unsuccessful applicants are deleted within 6 months."),
        RETENTION,
        DEVIATES,
        "2 years",
    ),
    Case("keep-video", rule("at most", "30 days: CCTV footage"), RETENTION, DEVIATES, "90 days"),
    Case("keep-hold", position("Legal hold", "Records under legal hold shall not be deleted."), RETENTION, MEETS),
    Case("keep-backups", rule("must", "backups are encrypted"), RETENTION, MEETS),
]
