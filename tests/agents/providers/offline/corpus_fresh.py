"""A third set, written last; nothing was changed for it but one word of one pattern."""

from agents.providers.offline.matching import DEVIATES, FALLBACK, MEETS, MISSING
from tests.agents.providers.offline.corpus import Case
from tests.agents.providers.offline.corpus_later import position, rule

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
SAAS = """Subscription Terms
Availability: the Service will be available 99.5% of each calendar month, excluding maintenance.
Support: Provider responds to critical issues within 4 hours and to other issues within 2 business days.
Fees increase by up to 10% on each renewal. Provider may change these terms at any time without notice.
Customer may cancel at the end of any month. No refunds are given for unused periods.
Customer data will be exported on request for 30 days following cancellation, after which it is permanently deleted.
Provider's aggregate liability shall in no event exceed USD 10,000.
"""
INV = """Invoice 2025/118
Bill to: Marlow Foods
Date: 3 February 2025
PO number: 4471

Consulting, 12 hours at 150.00 EUR ........ 1,800.00 EUR
VAT 19% ................................... 342.00 EUR
Total ..................................... 2,142.00 EUR

Please pay within 14 days without deduction.
A fee of 40 EUR is charged for each reminder.
"""
HR = """Code of Conduct (excerpt)

Gifts. Employees may accept gifts worth no more than EUR 50. Gifts above that value must be declined or
handed over to Compliance.
Outside activities. Secondary employment requires prior written approval from the line manager.
Reporting. Concerns can be raised anonymously. Retaliation against anyone who reports in good faith is strictly
prohibited.
Social media. Staff are free to post about customers.
Harassment will not be tolerated.
"""

CASES = [
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
        SAAS,
        DEVIATES,
        "99.5%",
    ),
    Case(
        "saas-avail-fb",
        position("Availability", "The service is available at least 99.9% of each month.", "99.5%"),
        SAAS,
        FALLBACK,
    ),
    Case(
        "saas-support",
        position("Support response", "The provider responds to critical issues within 8 hours."),
        SAAS,
        MEETS,
    ),
    Case(
        "saas-increase",
        position("Price increase", "Fees may increase by at most 5% on renewal."),
        SAAS,
        DEVIATES,
        "10%",
    ),
    Case(
        "saas-change",
        position("Change of terms", "Provider may change these terms only with 30 days' notice."),
        SAAS,
        DEVIATES,
        "without notice",
    ),
    Case(
        "saas-refund",
        position("Refunds", "Prepaid fees for unused periods are refunded."),
        SAAS,
        DEVIATES,
        "No refunds",
    ),
    Case(
        "saas-export",
        position("Data export", "Customer data can be exported for at least 30 days after cancellation."),
        SAAS,
        MEETS,
    ),
    Case(
        "saas-cap",
        position("Liability cap", "Provider's aggregate liability is at least USD 1,000,000."),
        SAAS,
        DEVIATES,
        "10,000",
    ),
    Case("saas-encr", position("Encryption", "Customer data is encrypted in transit."), SAAS, MISSING),
    Case("inv-terms", rule("at most", "30 days: pay"), INV, MEETS),
    Case(
        "inv-terms2",
        position("Payment term", "Payment is due no earlier than 30 days after the invoice date."),
        INV,
        DEVIATES,
        "14 days",
    ),
    Case("inv-po", rule("must mention", "", "PO number"), INV, MEETS),
    Case("inv-fee", rule("at most", "EUR 20: reminder fee"), INV, DEVIATES, "40 EUR"),
    Case("inv-vat", rule("must mention", "", "VAT ID"), INV, MISSING),
    Case("inv-vatrate", rule("at most", "20 %: VAT"), INV, MEETS),
    Case("hr-gifts", position("Gifts", "Employees may accept gifts up to EUR 35."), HR, DEVIATES, "EUR 50"),
    Case("hr-gifts-ok", position("Gifts", "Employees may accept gifts up to EUR 50."), HR, MEETS),
    Case(
        "hr-second",
        position("Secondary employment", "Secondary employment is allowed only with prior written approval."),
        HR,
        MEETS,
    ),
    Case("hr-retal", position("Retaliation", "Retaliation against whistleblowers is prohibited."), HR, MEETS),
    Case("hr-social", rule("must not", "staff post about customers"), HR, DEVIATES, "free to post"),
    Case("hr-harass", position("Harassment", "Harassment is not tolerated."), HR, MEETS),
    Case("hr-training", rule("must", "employees complete annual compliance training"), HR, MISSING),
]
