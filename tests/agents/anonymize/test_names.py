"""Names by title, by legal form, as listed, and their learnt short forms."""

import re

from agents.anonymize import Anonymizer
from tests.table import every_row

MARK = re.compile(r"_[a-z]\d[a-z](?![a-z\d])")


def hidden(text, *parties):
    """The hidden text without the mark of the call."""
    return MARK.sub("", Anonymizer(parties).hide(text))


@every_row(
    ("text", "expected"),
    [
        ("Mr Smith", "Mr PERSON_1"),
        ("MR SMITH AGREES", "MR PERSON_1"),
        ("MS SMITH", "MS PERSON_1"),
        ("DR. Smith", "DR. PERSON_1"),
        ("Mr. A. B. Smith's car", "Mr. PERSON_1's car"),
        ("Mr O\u2019Brien-Smith, Esq.", "Mr PERSON_1, Esq."),
        ("Mr Ludwig van der Rohe came", "Mr PERSON_1 came"),
        ("Frau Prof. Dr. med. Weber", "Frau Prof. Dr. med. PERSON_1"),
        ("Mr Smith and Mrs Jones", "Mr PERSON_1 and Mrs PERSON_2"),
        ("MR SMITH AND THE SUPPLIER", "MR PERSON_1 AND THE SUPPLIER"),
        ("Mr Smith Director", "Mr PERSON_1 Director"),
        ("Mr March and Ms June Page", "Mr PERSON_1 and Ms PERSON_2"),
        ("avec M. Dupont hier", "avec M. PERSON_1 hier"),
        ("M. Dupont, Paris", "M. PERSON_1, Paris"),
        ("M. Jean Dupont\nParis", "M. PERSON_1\nParis"),
        ("M Dupont", "M PERSON_1"),
        ("I. Intro\nM. Payment is due", "I. Intro\nM. Payment is due"),
        ("Mr Smith\nThe Supplier", "Mr PERSON_1\nThe Supplier"),
        ("Mr\n\nSmith", "Mr\n\nSmith"),
        (
            "the agreement was signed yesterday by Mr\nSmith in Rome",
            "the agreement was signed yesterday by Mr\nPERSON_1 in Rome",
        ),
        ("Dr. Nguyễn Văn An", "Dr. PERSON_1"),
        ("Mr " + "Xo " * 12, "Mr PERSON_1 " + "Xo " * 4),
        ("Mr 王", "Mr PERSON_1"),
        ("Dr", "Dr"),
        ("Mr", "Mr"),
        ("Mr. smith", "Mr. smith"),
        ("Sir, Smith", "Sir, Smith"),
    ],
)
def test_persons_by_title(text, expected):
    assert hidden(text) == expected


@every_row(
    ("text", "expected"),
    [
        ("The Acme Ltd.", "The ORG_1."),
        ("Between Acme, Inc. and Beta GmbH & Co. KG", "Between ORG_1. and ORG_2"),
        ("Baker, Smith & Jones LLP", "ORG_1"),
        ("Sotheby's Ltd", "ORG_1"),
        ("Bank of Scotland plc", "ORG_1"),
        ("the Supplier Acme Ltd pays", "the Supplier ORG_1 pays"),
        ("Payment Services Ltd", "ORG_1"),
        ("Customer Limited", "Customer Limited"),
        ("1.2 Acme Ltd", "1.2 ORG_1"),
        ("7-Eleven Japan Co., Ltd.", "ORG_1."),
        ("with non-Acme Ltd", "with ORG_1"),
        ("THE PARTIES\nAcme Ltd", "THE PARTIES\nORG_1"),
        (
            "this is a line of forty characters or more, by Northwind\nTraders Ltd",
            "this is a line of forty characters or more, by ORG_1",
        ),
        ("Mr John Smith and Acme Ltd", "Mr PERSON_1 and ORG_1"),
        ("John Smith and Acme Ltd", "ORG_1"),
        ("foo Ltd", "foo Ltd"),
        ("Madrid Se vende", "Madrid Se vende"),
        ("Ltd", "Ltd"),
        ("Acme" + " " * 30 + "Ltd", "Acme" + " " * 30 + "Ltd"),
        ("Acme Limited, Acme Ltd", "ORG_1, ORG_1b"),
        ("Nordlicht SE. Nordlicht pays.", "ORG_1. ORG_1b pays."),
        ("United SE. United we stand.", "ORG_1. United we stand."),
    ],
)
def test_firms_by_legal_form(text, expected):
    assert hidden(text) == expected


@every_row(
    ("party", "text", "expected"),
    [
        ("Anna Müller", "ANNA  MULLER and anna\nmüller", "PERSON_1 and PERSON_1b"),
        ("Anna Müller", "Mu\u0308ller's and müller's", "PERSON_1's and müller's"),
        ("Anna Müller", "Annabel Müllerstraße", "Annabel Müllerstraße"),
        ("Anna Müller", "mueller_müller.pdf and Müller_Vertrag.pdf", "mueller_müller.pdf and PERSON_1_Vertrag.pdf"),
        ("Anna Smith-Jones", "Smith-Jones, Smith, Jones", "PERSON_1, Smith, Jones"),
        ("Will Young", "Young people will grow; will young too", "Young people will grow; PERSON_1 too"),
        ("Will", "Will they? they will.", "PERSON_1 they? they will."),
        ("apple", "Apple and apple", "PERSON_1 and PERSON_1b"),
        ("Zed", "zed ZED Zedd", "PERSON_1 PERSON_1b Zedd"),
        ("Li Wu", "Wu is short", "Wu is short"),
        ("Northwind Traders", "northwind traders", "ORG_1"),
        ("Acme Ltd", "Acme, ACME LTD., acme", "ORG_1, ORG_1b., acme"),
        ("Ltd", "Acme, ltd", "Acme, PERSON_1"),
        ("王小明", "昨日王小明さん", "昨日PERSON_1さん"),
        ("김철수", "김철수는", "PERSON_1는"),
        ("Acme Inc.", "Acme Inc. Acme Inc", "ORG_1. ORG_1"),
        ("  ", "nothing", "nothing"),
    ],
)
def test_listed_parties(party, text, expected):
    assert hidden(text, party) == expected


def test_a_shared_surname_gets_a_placeholder_of_its_own():
    assert hidden("Anna Weber, Bernd Weber, Weber", "Anna Weber", "Bernd Weber") == "PERSON_1, PERSON_2, PERSON_3"


def test_a_listed_surname_stays_its_own_and_a_longer_name_wins():
    assert hidden("weber and Anna Weber", "Weber", "Anna Weber") == "PERSON_1 and PERSON_2"


def test_the_surname_of_a_titled_name_is_learnt_backwards():
    assert hidden("Weber called. Then Dr. Anna Weber called. Herr Weber too.") == (
        "PERSON_1 called. Then Dr. PERSON_1b called. Herr PERSON_1 too."
    )


def test_a_listed_name_is_known_with_and_without_its_title():
    assert hidden("Mr Weber, Anna Weber", "Anna Weber") == "Mr PERSON_1, PERSON_1b"


def test_a_firm_listed_with_one_form_is_found_with_another():
    assert hidden("Acme Trading Limited and Acme Trading", "Acme Trading Ltd") == "ORG_1 and ORG_1b"


def test_names_are_read_through_json_escapes():
    text = '{"to": "Anna M\\u00fcller\\nMr Smith\\\\nHerr Gr\\u00f6\\u00dfe", "x": "tab\\tAnna Müller"}'
    assert hidden(text, "Anna Müller") == ('{"to": "PERSON_1\\nMr PERSON_2\\\\nHerr PERSON_3", "x": "tab\\tPERSON_1b"}')
