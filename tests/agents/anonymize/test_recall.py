"""The share of personal data that is hidden: letters and contracts in several languages, made from a seed."""

import random
import string
from collections.abc import Callable

from agents.anonymize import Anonymizer, Kind
from agents.anonymize.reading import IBAN_LENGTHS
from tests.table import every_row


def items(text: str, separator: str = "|") -> list[str]:
    return [item for line in text.split("\n") for item in line.split(separator) if item]


FIRST = items(
    """Anna José Łukasz Søren Zoë François Jürgen María Ngozi Siân Björn Chloë Đorđe İpek Renée Aoife Nguyễn Priya Olena
Mateusz Thérèse Gwen Yusuf Kateřina""",
    " ",
)
LAST = items(
    """Müller Ångström O'Brien Smith-Jones García Nowak Čapek Đoković Grüßner Lefèvre D'Angelo Szczęsny Vázquez Öztürk
Østergaard Fernández-López Kowalczyk MacIntyre Þórsson Wiśniewska Björnsdóttir Nkemelu Papadopoulou Ravichandran""",
    " ",
)
PARTICLES = ["", "", "", "van der ", "de la ", "von ", "Le ", "J. ", "A. B. "]
TITLES = items(
    """Mr|Mrs|Ms|Mx|Mr.|Mrs.|Dr|Dr.|Prof.|Prof. Dr.|Sir|Dame|Herr|Frau|Herr Dr.|Mme|Sr.|Sra.|Hon.|Judge|Attorney
Justice|Señora|Sig.|Dott.|Miss|Lady|Rev."""
)
FIRMS = items(
    """Northwind Traders|Süd-Öl|Müller & Söhne|Société Générale|Marks and Spencer|Bank of Scotland|O'Hara's|3M Health
Żabka Polska|Łódź Tech|Blåbær|Crédit du Nord|Baker, Smith & Jones|eBay Europe|Quantum-Leap|7-Eleven Japan|J.P. Hartmann
Grupo México|Ördög|AT&T Iberia|Hellström|Studio 54|Fratelli Bianchi|Nordlicht"""
)
FORMS = items(
    """Ltd|Ltd.|Limited|LLC|LLP|Inc|Inc.|Corp.|Corporation|GmbH|AG|KG|SE|S.A.|SA|SAS|SARL|S.p.A.|S.r.l.|B.V.|N.V.|Oy
AB|A/S|ApS|Pty Ltd|PLC|plc|Sp. z o.o.|Kft|d.o.o.|K.K.|Co.|Co., Ltd.|GmbH & Co. KG|Holdings Limited|Holdings
s.r.o.|e.V."""
)
HOSTS = items(
    "example.com mail.example.co.uk bücher.example firma-süd.de xn--bcher-kva.example sub.a-b.org example.museum", " "
)

SENTENCES = {
    Kind.PERSON: [
        "Dear {}, thank you for your letter.",
        "The contract was signed by {} on 3 May 2024.",
        "We met {} and discussed clause 4.2.",
        "Sehr geehrte Damen und Herren, {} hat den Vertrag gekündigt.",
        "Le bail a été signé par {}, à Paris.",
        "according to {}'s statement",
        "({}, witness)",
        "Attn: {}\nRe: the lease",
    ],
    Kind.ORG: [
        "This agreement is made between {} and the Customer.",
        "The {} shall deliver the goods.",
        "Die {} liefert die Ware.",
        "payable to {}, within 30 days",
        "Invoices go to {}.\nThank you.",
        '"{}" means the supplier',
        "we, {} (the Supplier), agree",
    ],
    Kind.EMAIL: ["write to {}.", "<{}>", "mailto:{}?subject=x", "E-Mail: {}, Fax: none", '"from": "{}"', "({})"],
    Kind.PHONE: ["Tel. {}", "call {} today", "phone: {}, ask for Jo", "({})", "Fax {}\nRegards", "reach me on {}."],
    Kind.IBAN: ["IBAN {}", "pay to {} by Friday", "iban: {}.", "({})", "Konto {}, danke"],
    Kind.CARD: ["card {}", "paid with {} yesterday", "Visa {}, exp. 12/27", "({})"],
    Kind.IP: ["from {} at noon", "host={}", "http://{}/login", "addr {}, denied"],
    Kind.ACCT: [
        "account number {}",
        "Account No. {} at the bank",
        "my acct: {}",
        "Kontonummer: {}",
        "SSN {}",
        "tax id {}",
        "Passport no. {}",
        "Steuernummer {}",
        "passport number is {}",
        "customer number: {}",
    ],
}


def person(source: random.Random) -> str:
    return f"{source.choice(FIRST)} {source.choice(PARTICLES)}{source.choice(LAST)}"


def firm(source: random.Random) -> str:
    return f"{source.choice(FIRMS)} {source.choice(FORMS)}"


def email(source: random.Random) -> str:
    first, last = source.choice(FIRST).lower(), source.choice(LAST).lower()
    return f"{source.choice([f'{first}.{last}', f'{first[0]}{last}', f'{last}+tag_{first}'])}@{source.choice(HOSTS)}"


def _digits(pattern: str, source: random.Random) -> str:
    return "".join(source.choice(string.digits[2:]) if c == "#" else c for c in pattern)


def phone(source: random.Random) -> str:
    shapes = """+44 20 #### ####|+44 (0)20 #### ####|+49 30 #######|+49-170-#######|+33 1 ## ## ## ##|+1 212 555 ####
+1 (212) 555-####|+1-212-555-####|+12125550###|(212) 555-####|212-555-####|212.555.####|1-800-555-####|020 #### ####
0#### ######|07#########|0170/#######|089/######-##|01 ## ## ## ##|01.##.##.##.##|(02) #### ####|0049 30 #######
00493012#####|+48 601 ### ###|+91 98### #####|+86 138 #### ####|03-####-####|+46 8 123 ## ##|138 #### ####"""
    return _digits(source.choice(items(shapes)), source)


def iban(source: random.Random) -> str:
    country, length = source.choice(sorted(IBAN_LENGTHS.items()))
    body = _digits("#" * (length - 4), source)
    check = 98 - int("".join(str(int(c, 36)) for c in f"{body}{country}00")) % 97
    solid = f"{country}{check:02}{body}"
    return source.choice([solid, " ".join(solid[at : at + 4] for at in range(0, length, 4))])


def card(source: random.Random) -> str:
    prefix, groups = source.choice(
        [("4", (4, 4, 4, 4)), ("53", (4, 4, 4, 4)), ("37", (4, 6, 5)), ("6", (4, 4, 4, 4, 3))]
    )
    body = prefix + _digits("#" * (sum(groups) - len(prefix) - 1), source)
    total = sum(sum(divmod(int(c) * (2 if at % 2 == 0 else 1), 10)) for at, c in enumerate(reversed(body)))
    solid = body + str(-total % 10)
    join = source.choice(["", " ", "-"])
    cuts = [sum(groups[:at]) for at in range(len(groups))]
    return join.join(solid[cut : cut + size] for cut, size in zip(cuts, groups, strict=True))


def address(source: random.Random) -> str:
    v4 = ".".join(str(source.randint(100, 200)) for _ in range(4))
    v6 = ":".join(f"{source.randint(4096, 65535):x}" for _ in range(8))
    return source.choice([v4, v6, f"2001:db8::{source.randint(1, 9999)}", f"fe80::1:{source.randint(1, 99)}"])


def account(source: random.Random) -> str:
    shapes = [
        "########",
        "##-##-######",
        "### ### ####",
        "AB######C",
        "DE#########",
        "C##X##T##",
        "####/####/##",
        "12 345 67#",
    ]
    return _digits(source.choice(shapes), source)


MAKERS: dict[Kind, Callable[[random.Random], str]] = {
    Kind.PERSON: person,
    Kind.ORG: firm,
    Kind.EMAIL: email,
    Kind.PHONE: phone,
    Kind.IBAN: iban,
    Kind.CARD: card,
    Kind.IP: address,
    Kind.ACCT: account,
}
LEAST = 0.99
SAMPLES = 400


def samples(kind: Kind, *, seed: int = 36) -> list[tuple[str, str]]:
    """Pairs of a text and the value in it that must not be left."""
    source = random.Random(f"{seed}{kind}")
    made = []
    for _ in range(SAMPLES):
        value = MAKERS[kind](source)
        shown = f"{source.choice(TITLES)} {value}" if kind is Kind.PERSON else value
        made.append((source.choice(SENTENCES[kind]).format(shown), value))
    return made


@every_row("kind", MAKERS)
def test_recall(kind):
    missed = []
    for text, value in samples(kind):
        anonymizer = Anonymizer()
        hidden = anonymizer.hide(text)
        assert anonymizer.restore(hidden) == text
        if f"{kind}_1_" not in hidden or any(part in hidden for part in value.rstrip(".").split() if len(part) > 3):
            missed.append((text, hidden))
    recall = 1 - len(missed) / SAMPLES
    print(f"{kind}: {recall:.1%} of {SAMPLES}")
    assert recall >= LEAST, missed[:10]


@every_row("shout", [str.upper, str.title, str.lower, lambda name: name.replace(" ", "\u00a0 ")])
def test_every_listed_name_is_found_in_any_spelling(shout):
    source = random.Random(7)
    for _ in range(100):
        name = person(source)
        hidden = Anonymizer([name]).hide(f"They asked {shout(name)}, who agreed.")
        assert hidden.startswith("They asked PERSON_1_")
        assert hidden.endswith(", who agreed.")


LETTER = """{firm}
{street} 12, 80331 München
Tel. {phone}, {email}

Dear {title} {person},

we refer to our agreement of 12.03.2024 (clauses 4.2 and 12.3.4) and to your account no. {account}. Please pay
EUR 12,500.00 to IBAN {iban}; the card {card} was refused at 10:15:30 from {address}. {person} confirmed this.
Yours, {firm}"""


def test_a_letter_loses_its_personal_data_and_keeps_the_rest():
    source = random.Random(11)
    for _ in range(50):
        values = {name.lower(): make(source) for name, make in MAKERS.items()}
        values = {"firm": values.pop("org"), "account": values.pop("acct"), "address": values.pop("ip"), **values}
        text = LETTER.format(title="Frau", street="Hauptstraße", **values)
        hidden = Anonymizer().hide(text)
        for value in values.values():
            assert value.rstrip(".") not in hidden
        assert "agreement of 12.03.2024 (clauses 4.2 and 12.3.4)" in hidden
        assert "EUR 12,500.00" in hidden
        assert "at 10:15:30 from" in hidden
