"""Numbers and addresses, and lookalikes that are none."""

import re

from agents.anonymize import Anonymizer
from tests.table import every_row

MARK = re.compile(r"_[a-z]\d[a-z](?![a-z\d])")


def hidden(text):
    return MARK.sub("", Anonymizer().hide(text))


@every_row(
    ("text", "expected"),
    [
        ("'bob.o'neil+x@example.com'", "'EMAIL_1'"),
        ("https://bob@example.com/path", "https://EMAIL_1/path"),
        ("-.@example.com", "-.@example.com"),
        ("x" * 70 + "@example.com", "x" * 6 + "EMAIL_1"),
        ("müller@bücher.example.", "EMAIL_1."),
        ("Von: Jo <jo@example.com>; An: al@example.org", "Von: Jo <EMAIL_1>; An: EMAIL_2"),
    ],
)
def test_mail_addresses(text, expected):
    assert hidden(text) == expected


@every_row(
    ("text", "expected"),
    [
        ("server 192.168.17.4:8080/24", "server IP_1:8080/24"),
        ("http://203.0.113.9/x", "http://IP_1/x"),
        ("1.2.3.4", "IP_1"),
        ("Line\n10.0.0.1 is down", "Line\nIP_1 is down"),
        ("Line\n9.8.7.6", "Line\nIP_1"),
        ("999.1.1.1 and 1.2.3.4.5 and 01.2.3.4", "999.1.1.1 and 1.2.3.4.5 and 01.2.3.4"),
        ("Section 4: the host 10.20.30.40 fails", "Section 4: the host IP_1 fails"),
        ("::ffff:203.0.113.9 and fe80::1%eth0", "IP_1 and IP_2%eth0"),
        ("[2001:db8::1]:443", "[IP_1]:443"),
        ("12:30:45 and 1:2:3:4:5:6:7", "12:30:45 and 1:2:3:4:5:6:7"),
    ],
)
def test_ip_addresses(text, expected):
    assert hidden(text) == expected


# Their last groups have the form, the length and the check digits of an IBAN of Belgium, Bosnia, Estonia and Andorra.
UUIDS_LIKE_IBANS = (
    "4dbd3dc9-8b53-c16b-be29-490bdfbaaafa",
    "d67e8ecf-a9b5-ba45-57aa-5ae17139bed1",
    "42553a33-2374-ee45-2008-749797f2a702",
    "e4b06ce6-ad59-c7a8-7ce4-2c8218072e8c",
)


@every_row(
    ("text", "expected"),
    [
        ("de89 3704 0044 0532 0130 00 and more", "IBAN_1 and more"),
        ("DE89-3704-0044-0532-0130-00", "IBAN_1"),
        ("GB82 WEST 1234 5698 7654 32", "IBAN_1"),
        ("NO93 8601 1117 947", "IBAN_1"),
        ("DE88370400440532013000", "DE88370400440532013000"),
        ("ZZ89370400440532013000", "ZZ89370400440532013000"),
        ("IBAN: DE88370400440532013000", "IBAN: ACCT_1"),
        *((uuid, uuid) for uuid in UUIDS_LIKE_IBANS),
        ("12345678-DE89370400440532013000", "12345678-IBAN_1"),
        ("4111 1111 1111 1111 123", "CARD_1 123"),
        ("2024 4111 1111 1111 1111", "2024 CARD_1"),
        ("3782 822463 10005", "CARD_1"),
        ("4222222222222", "CARD_1"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("9111 1111 1111 1111", "9111 1111 1111 1111"),
    ],
)
def test_ibans_and_cards(text, expected):
    assert hidden(text) == expected


@every_row(
    ("text", "expected"),
    [
        ("123-45-6789", "ACCT_1"),
        ("000-45-6789, 666-45-6789, 900-45-6789", "000-45-6789, 666-45-6789, 900-45-6789"),
        ("Account number\n12345678", "Account number\nACCT_1"),
        ("account_number=12345678", "account_number=ACCT_1"),
        ('{"account": 12345678}', '{"account": ACCT_1}'),
        ("passport C01X00T47, NINO QQ123456C", "passport ACCT_1, NINO ACCT_2"),
        ("VAT DE123456789, USt-IdNr. DE 123456789", "VAT ACCT_1, USt-IdNr. DE ACCT_2"),
        ("sort code 12-34-56, account 12 345 678 today", "sort code ACCT_1, account ACCT_2 today"),
        ("account opened 2024-03-12, 12.03.2024 or 12/03/24", "account opened 2024-03-12, 12.03.2024 or 12/03/24"),
        ("account opened 12.03.24 at noon", "account opened 12.03.24 at noon"),
        ("account: 500000 EUR; account: EUR 500000", "account: 500000 EUR; account: EUR 500000"),
        ("account 1234,56 and account 12345", "account 1234,56 and account 12345"),
        ("account; 12345678", "account; 12345678"),
        ("the account " + "x" * 40 + " 12345678", "the account " + "x" * 40 + " 12345678"),
        ("EIN 12-3456789, Ein 123456 und ein 123456", "EIN ACCT_1, Ein 123456 und ein 123456"),
        ("Tel.: 912345678, phone number 912 345 679", "Tel.: PHONE_1, phone number PHONE_2"),
        ("tel 12345", "tel 12345"),
        ("+1 212 555 0100 12 May", "PHONE_1 12 May"),
        ("+49 30 1234567%", "+49 30 1234567%"),
        ("07700900123 and 0123456789", "PHONE_1 and 0123456789"),
        ("01 2345 67", "01 2345 67"),
    ],
)
def test_accounts_and_telephones(text, expected):
    assert hidden(text) == expected


def test_a_labelled_number_in_a_web_address_is_hidden():
    text = "https://example.com/020-7946-0958?account=12345678&to=a@example.com"
    assert hidden(text) == "https://example.com/020-7946-0958?account=ACCT_1&to=EMAIL_1"
