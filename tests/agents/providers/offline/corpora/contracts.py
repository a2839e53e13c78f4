"""Contracts: services, confidentiality, subscription, supply, data processing and employment."""

from agents.providers.offline.verdicts import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpora.case import Case, position, rule

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
NDA = """MUTUAL NON-DISCLOSURE AGREEMENT

This Agreement is entered into between Alder GmbH and Birch Oy.

1. Definition. "Confidential Information" means any information disclosed by one party to the other, whether orally or
in writing.
2. Use. The Recipient shall use Confidential Information solely for the Purpose and shall not disclose it to third
parties except to employees who need to know.
3. Term. The obligations in this Agreement remain in force for five (5) years from the date of disclosure.
4. Return. Upon request, the Recipient shall promptly return or destroy all Confidential Information.
5. Remedies. Either party may seek injunctive relief.
6. Disputes. Any dispute shall be settled by arbitration in Stockholm.
"""
SUBSCRIPTION = """Subscription Terms
Availability: the Service will be available 99.5% of each calendar month, excluding maintenance.
Support: Provider responds to critical issues within 4 hours and to other issues within 2 business days.
Fees increase by up to 10% on each renewal. Provider may change these terms at any time without notice.
Customer may cancel at the end of any month. No refunds are given for unused periods.
Customer data will be exported on request for 30 days following cancellation, after which it is permanently deleted.
Provider's aggregate liability shall in no event exceed USD 10,000.
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
DATA_PROCESSING = """Data Processing Addendum

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
        "nda-term",
        position("Term of confidentiality", "Confidentiality obligations end no later than 3 years after disclosure."),
        NDA,
        DEVIATES,
        "five (5)",
    ),
    Case("nda-use", position("Permitted use", "Confidential Information is used only for the Purpose."), NDA, MEETS),
    Case(
        "nda-return",
        position(
            "Return of information", "The recipient shall return or destroy Confidential Information upon request."
        ),
        NDA,
        MEETS,
    ),
    Case(
        "nda-arb",
        position("Dispute resolution", "Disputes are resolved by arbitration in Helsinki."),
        NDA,
        DEVIATES,
        "Stockholm",
    ),
    Case(
        "nda-residuals",
        position("Residuals clause", "The recipient may use residual knowledge retained in memory."),
        NDA,
        MISSING,
    ),
    Case("nda-solicit", rule("must not mention", "", "non-solicitation", "no-hire"), NDA, MEETS),
    Case(
        "saas-avail",
        position("Availability", "The service is available at least 99.9% of each month."),
        SUBSCRIPTION,
        DEVIATES,
        "99.5%",
    ),
    Case(
        "saas-avail-fb",
        position("Availability", "The service is available at least 99.9% of each month.", "99.5%"),
        SUBSCRIPTION,
        FALLBACK,
    ),
    Case(
        "saas-support",
        position("Support response", "The provider responds to critical issues within 8 hours."),
        SUBSCRIPTION,
        MEETS,
    ),
    Case(
        "saas-increase",
        position("Price increase", "Fees may increase by at most 5% on renewal."),
        SUBSCRIPTION,
        DEVIATES,
        "10%",
    ),
    Case(
        "saas-change",
        position("Change of terms", "Provider may change these terms only with 30 days' notice."),
        SUBSCRIPTION,
        DEVIATES,
        "without notice",
    ),
    Case(
        "saas-refund",
        position("Refunds", "Prepaid fees for unused periods are refunded."),
        SUBSCRIPTION,
        DEVIATES,
        "No refunds",
    ),
    Case(
        "saas-export",
        position("Data export", "Customer data can be exported for at least 30 days after cancellation."),
        SUBSCRIPTION,
        MEETS,
    ),
    Case(
        "saas-cap",
        position("Liability cap", "Provider's aggregate liability is at least USD 1,000,000."),
        SUBSCRIPTION,
        DEVIATES,
        "10,000",
    ),
    Case("saas-encr", position("Encryption", "Customer data is encrypted in transit."), SUBSCRIPTION, MISSING),
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
    Case(
        "dpa-breach",
        position("Breach notice", "The Processor notifies the Controller of a personal data breach within 72 hours."),
        DATA_PROCESSING,
        DEVIATES,
        "96 hours",
    ),
    Case(
        "dpa-subprocessors",
        position(
            "Sub-processors",
            "The Processor shall not engage sub-processors without the prior consent of the Controller.",
        ),
        DATA_PROCESSING,
        DEVIATES,
        "may engage",
    ),
    Case(
        "dpa-instructions",
        position(
            "Instructions", "The Processor processes personal data only on documented instructions of the Controller."
        ),
        DATA_PROCESSING,
        MEETS,
    ),
    Case(
        "dpa-deletion",
        position("Deletion", "Personal data is deleted or returned within 60 days after the end of the services."),
        DATA_PROCESSING,
        MEETS,
    ),
    Case(
        "dpa-audit",
        position("Audit", "The Controller may audit the Processor at least once a year."),
        DATA_PROCESSING,
        DEVIATES,
        "every two years",
    ),
    Case(
        "dpa-location",
        position("Data location", "Personal data is stored only in the European Union."),
        DATA_PROCESSING,
        MEETS,
    ),
    Case(
        "dpa-insurance",
        position("Cyber insurance", "The Processor maintains cyber insurance."),
        DATA_PROCESSING,
        MISSING,
    ),
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
]
