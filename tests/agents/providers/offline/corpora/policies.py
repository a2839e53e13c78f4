"""Policies: travel, conduct, security, site safety and retention of records."""

from agents.providers.offline.verdicts import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpora.case import Case, position, rule

TRAVEL_POLICY = """Travel and Expense Policy

* Meals are reimbursed up to 75 USD per day.
* Flights longer than six hours may be booked in business class.
* Employees should submit expense reports within 60 days of travel.
* Alcohol is reimbursable.
* Receipts are required for expenses over 25 USD.
"""
CODE_OF_CONDUCT = """Code of Conduct (excerpt)

Gifts. Employees may accept gifts worth no more than EUR 50. Gifts above that value must be declined or
handed over to Compliance.
Outside activities. Secondary employment requires prior written approval from the line manager.
Reporting. Concerns can be raised anonymously. Retaliation against anyone who reports in good faith is strictly
prohibited.
Social media. Staff are free to post about customers.
Harassment will not be tolerated.
"""
SECURITY_POLICY = """SECURITY POLICY v2

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
SAFETY_RULES = """Site Safety Rules
- Hard hats must be worn at all times on site.
- Visitors must sign in at reception.
- Smoking is permitted in designated areas only.
- Fire drills are held twice a year.
- Ladders above 3 m need a second person.
- First-aid kits shall be inspected monthly.
"""
RETENTION_SCHEDULE = """Records Retention Schedule

Accounting records are retained for ten years. Recruitment files of unsuccessful applicants are kept for 2 years after
the decision. CCTV footage is overwritten after 90 days. Backups are encrypted and stored off-site. Records under legal
hold must not be destroyed.
"""

CASES = [
    Case(
        "policy-meals",
        position("Meals", "Meals are reimbursed up to 50 USD per day."),
        TRAVEL_POLICY,
        DEVIATES,
        "75 USD",
    ),
    Case("policy-reports", rule("at most", "30 days: expense reports"), TRAVEL_POLICY, DEVIATES, "60 days"),
    Case("policy-alcohol", position("Alcohol", "Alcohol is not reimbursable."), TRAVEL_POLICY, DEVIATES, "Alcohol"),
    Case(
        "policy-receipts",
        position("Receipts", "Receipts are required for all expenses over USD 25."),
        TRAVEL_POLICY,
        MEETS,
    ),
    Case("policy-class", rule("must not mention", "", "first class"), TRAVEL_POLICY, MEETS),
    Case(
        "hr-gifts", position("Gifts", "Employees may accept gifts up to EUR 35."), CODE_OF_CONDUCT, DEVIATES, "EUR 50"
    ),
    Case("hr-gifts-ok", position("Gifts", "Employees may accept gifts up to EUR 50."), CODE_OF_CONDUCT, MEETS),
    Case(
        "hr-second",
        position("Secondary employment", "Secondary employment is allowed only with prior written approval."),
        CODE_OF_CONDUCT,
        MEETS,
    ),
    Case(
        "hr-retal", position("Retaliation", "Retaliation against whistleblowers is prohibited."), CODE_OF_CONDUCT, MEETS
    ),
    Case("hr-social", rule("must not", "staff post about customers"), CODE_OF_CONDUCT, DEVIATES, "free to post"),
    Case("hr-harass", position("Harassment", "Harassment is not tolerated."), CODE_OF_CONDUCT, MEETS),
    Case("hr-training", rule("must", "employees complete annual compliance training"), CODE_OF_CONDUCT, MISSING),
    Case("s-mfa", position("MFA", "Multi-factor authentication is required for all accounts."), SECURITY_POLICY, MEETS),
    Case("s-shared", position("Shared accounts", "Shared accounts are not allowed."), SECURITY_POLICY, MEETS),
    Case(
        "s-inactive",
        position("Inactive accounts", "Inactive accounts are disabled within 30 days.", "90 days"),
        SECURITY_POLICY,
        FALLBACK,
    ),
    Case(
        "s-patch",
        position("Critical patches", "Critical patches are installed within 7 days."),
        SECURITY_POLICY,
        DEVIATES,
        "14 days",
    ),
    Case(
        "s-patch2",
        position("Critical patches", "Critical patches are installed within 30 days."),
        SECURITY_POLICY,
        MEETS,
    ),
    Case(
        "s-logs",
        position("Log retention", "Logs are retained for at least 12 months."),
        SECURITY_POLICY,
        DEVIATES,
        "6 months",
    ),
    Case("s-review", position("Log review", "Logs are reviewed at least daily."), SECURITY_POLICY, DEVIATES, "weekly"),
    Case(
        "s-disk",
        position("Disk encryption", "Laptop disks must be encrypted."),
        SECURITY_POLICY,
        DEVIATES,
        "recommended",
    ),
    Case(
        "s-report",
        position("Incident reporting", "Employees shall report incidents promptly to the security team."),
        SECURITY_POLICY,
        MEETS,
    ),
    Case(
        "s-pentest", position("Penetration tests", "Penetration tests are performed yearly."), SECURITY_POLICY, MISSING
    ),
    Case("site-hats", position("Hard hats", "Hard hats must be worn on site."), SAFETY_RULES, MEETS),
    Case("site-smoking", position("Smoking", "Smoking is prohibited on site."), SAFETY_RULES, DEVIATES, "permitted"),
    Case(
        "site-kits", position("First aid", "First-aid kits are inspected at least every quarter."), SAFETY_RULES, MEETS
    ),
    Case("site-visitors", rule("must", "visitors sign in"), SAFETY_RULES, MEETS),
    Case("site-gloves", rule("must", "gloves are worn"), SAFETY_RULES, MISSING),
    Case(
        "keep-books",
        position("Accounting records", "Accounting records are kept for at least 7 years."),
        RETENTION_SCHEDULE,
        MEETS,
    ),
    Case(
        "keep-applicants",
        position("Applicant files", "Files of unsuccessful applicants are deleted within 6 months."),
        RETENTION_SCHEDULE,
        DEVIATES,
        "2 years",
    ),
    Case("keep-video", rule("at most", "30 days: CCTV footage"), RETENTION_SCHEDULE, DEVIATES, "90 days"),
    Case(
        "keep-hold", position("Legal hold", "Records under legal hold shall not be deleted."), RETENTION_SCHEDULE, MEETS
    ),
    Case("keep-backups", rule("must", "backups are encrypted"), RETENTION_SCHEDULE, MEETS),
]
