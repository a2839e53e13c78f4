"""Spans to hide, a text as words, and the phrases to look for in it.

A reading knows where each word stands, how it reads without case and accents, and what stands between two words. JSON
escapes are read through (`\n`, `\u00fc`), since a document quoted in a prompt is often a JSON string. This module must
not decide what is personal.
"""

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from audit.repetition import possessive

# --- Spans ---


class Kind(StrEnum):
    """The kind of a hidden value, as the model reads it, the most specific first.

    No kind ends with another, so placeholders are unambiguous.
    """

    EMAIL = "EMAIL"
    IBAN = "IBAN"
    CARD = "CARD"
    ACCT = "ACCT"
    PHONE = "PHONE"
    IP = "IP"
    ORG = "ORG"
    PERSON = "PERSON"
    TEXT = "TEXT"  # a text that already looked like one of our placeholders


class Span(NamedTuple):
    """A piece of text that must not leave the process.

    `key` names the person, firm or number behind it; empty when the text itself does.
    """

    start: int
    end: int
    kind: Kind
    key: str = ""


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted and overlapping ones joined, so that all they cover is hidden.

    The longest span names the kind; of two equally long ones the more specific.
    """
    groups: list[list[Span]] = []
    end = 0
    for span in sorted(spans, key=lambda item: (item.start, -item.end, not item.key, item.kind)):
        if groups and span.start < end:
            groups[-1].append(span)
        else:
            groups.append([span])
        end = max(end, span.end)
    return [_joined(group) for group in groups]


def _joined(group: list[Span]) -> Span:
    start, end = group[0].start, max(span.end for span in group)
    named = max(group, key=lambda span: (span.end - span.start, -list(Kind).index(span.kind)))
    return Span(start, end, named.kind, named.key if (named.start, named.end) == (start, end) else "")


# --- A text as words ---


MARK = "\u034f"  # a combining mark without shape: it fills the place of what was read through
MARKS = "\u0300-\u036f"
# Scripts written without blanks: every character is a word of its own, so that a name is found inside a sentence.
UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
WORD = re.compile(f"[{UNSPACED}]|" + possessive(rf"[^\W_{UNSPACED}]++[{MARKS}]*+", "+"))
ESCAPE = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|[bfnrt])")
SAME = str.maketrans(
    {**dict.fromkeys("\u2018\u2019\u02bc", "'"), **dict.fromkeys("\u2010\u2011\u2013", "-"), MARK: None}
)
SHORTER = {"limited": "ltd", "corporation": "corp", "incorporated": "inc"}
PLAIN_GAPS = frozenset({"", " ", ", ", ". ", ".", "-", "'", "&", " & ", ",", ":", "_"})
LONGEST_GAP = 12
WRAPPED_LINE = 40


def _read_through(match: re.Match[str]) -> str:
    """Decode an escape; what follows it keeps its offset."""
    size = match.end() - match.start()
    if match[1] is None:
        return ("\n" if match[0].endswith("n") else " ").ljust(size)
    return chr(int(match[1], 16)) + MARK * (size - 1)


def fold(word: str) -> str:
    """Return one form for all cases and accents of a word."""
    if word.isascii():
        return word.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if unicodedata.category(c) != "Mn")


class Reading:
    """One text, read once. `text` has the same length as the original, so offsets are the same in both.

    Three lists and not a list of words: a long text has hundreds of thousands.
    """

    __slots__ = ("ends", "folded", "starts", "text")

    def __init__(self, text: str) -> None:
        self.text = ESCAPE.sub(_read_through, text) if "\\" in text else text
        places = [found.span() for found in WORD.finditer(self.text)]
        fold_once = cache(fold)  # no longer than this reading, since words may be names
        self.starts = [start for start, _ in places]
        self.ends = [end for _, end in places]
        self.folded = [fold_once(self.text[start:end]) for start, end in places]

    def places_of(self, words: Container[str]) -> list[int]:
        """Return where one of the words stands."""
        return [at for at, folded in enumerate(self.folded) if folded in words]

    def gap(self, at: int) -> str:
        """Return what stands before word `at`: blanks as one, quotes and dashes as the plain ones."""
        between = self.text[self.ends[at - 1] : self.starts[at]]
        if between in PLAIN_GAPS:
            return between
        if len(between) > LONGEST_GAP:
            return "\n"
        return " " if between.isspace() else " ".join(re.split(r"\s+", between.translate(SAME)))

    def starts_new_line(self, at: int) -> bool:
        """Return True when word `at` begins a line that is not merely wrapped: no name continues there."""
        end, start = self.ends[at - 1], self.starts[at]
        if self.text.find("\n", end, start) < 0:
            return False
        is_short = end < WRAPPED_LINE or self.text.find("\n", end - WRAPPED_LINE, end) >= 0
        return is_short or self.text.count("\n", end, start) > 1

    def begins_line(self, at: int) -> bool:
        start = self.starts[at]
        before = self.text[max(0, start - LONGEST_GAP) : start].rstrip(" \t")
        return before[-1:] in ("", "\n")

    def ends_line(self, at: int) -> bool:
        """Return True when a comma, the end of the line or the end of the text follows word `at`."""
        rest = self.text[self.ends[at] : self.ends[at] + LONGEST_GAP].lstrip(" \t")
        return not rest or rest[0] in ",\n\r"

    def is_capitalised(self, at: int) -> bool:
        """Scripts without case count as capitals."""
        first = self.text[self.starts[at]]
        return first.isalpha() and not first.islower()

    def has_capitals(self, at: int) -> bool:
        """Return True for a word that is not all lower case: eBay, KPMG, Müller."""
        return not self._word(at).islower() and not self.is_number(at)

    def is_upper(self, at: int) -> bool:
        return self._word(at).isupper()

    def _word(self, at: int) -> str:
        return self.text[self.starts[at] : self.ends[at]]

    def is_number(self, at: int) -> bool:
        return self.folded[at].isdigit()

    def span(self, first: int, last: int, kind: Kind, key: str = "") -> Span:
        return Span(self.starts[first], self.ends[last - 1], kind, key)

    def key(self, first: int, last: int) -> str:
        """Return the words from `first` to before `last` as one key: Acme Ltd is Acme Limited."""
        return " ".join(SHORTER.get(word, word) for word in self.folded[first:last])


# --- Known phrases ---


class Leaf(NamedTuple):
    """The meaning of a phrase. `capital`: only where it is capitalised, since in lower case it may be a plain word.

    `upper`: only where all its letters are.
    """

    kind: Kind
    key: str
    capital: bool = False
    upper: bool = False

    def fits(self, reading: "Reading", at: int) -> bool:
        return (not self.capital or reading.is_capitalised(at)) and (not self.upper or reading.is_upper(at))


class Found(NamedTuple):
    first: int
    last: int
    leaf: Leaf


class Node:
    __slots__ = ("leaf", "next")

    def __init__(self) -> None:
        self.leaf: Leaf | None = None
        self.next: dict[tuple[str, str], Node] = {}


class Known:
    """Phrases to find in a text: listed by the caller, or found earlier in the call.

    A tree of words, so that a text is read once however many phrases there are. Whole words only; case, accents and
    the width of blanks do not matter. The longest phrase wins; places do not overlap.
    """

    __slots__ = ("_first",)

    def __init__(self) -> None:
        self._first: dict[str, Node] = {}

    def add(self, reading: Reading, first: int, last: int, leaf: Leaf, *, is_short: bool = False) -> None:
        """Add words `first` up to `last` as a phrase. One that is always hidden stays so.

        When two names share a short form, it gets a key of its own.
        """
        node = self._node(reading, first, last)
        if node.leaf is None:
            node.leaf = leaf
        elif node.leaf.capital and is_short and node.leaf.key != leaf.key:
            node.leaf = leaf._replace(key=reading.key(first, last))
        elif node.leaf.capital and not leaf.capital:
            node.leaf = leaf

    def _node(self, reading: Reading, first: int, last: int) -> Node:
        node = self._first.setdefault(reading.folded[first], Node())
        for at in range(first + 1, last):
            node = node.next.setdefault((reading.gap(at), reading.folded[at]), Node())
        return node

    def find(self, reading: Reading) -> Iterator[Found]:
        end = 0
        for at in reading.places_of(self._first):
            found = self._longest(reading, at) if at >= end else None
            if found is not None:
                yield found
                end = found.last

    def _longest(self, reading: Reading, first: int) -> Found | None:
        words = reading.folded
        node: Node | None = self._first[words[first]]
        best = None
        at = first + 1
        while node is not None:
            if node.leaf is not None and node.leaf.fits(reading, first):
                best = Found(first, at, node.leaf)
            if at == len(words) or not node.next:
                break
            node = node.next.get((reading.gap(at), words[at]))
            at += 1
        return best


def read_phrases(table: str, kind: Kind, *, longest_acronym: int) -> Known:
    """Read a table. An acronym counts in capitals only: EIN, not the German "ein"; AG and SE, not Se."""
    known = Known()
    for phrase in table.split(";"):
        reading = Reading(phrase.strip())
        upper = reading.is_upper(0) and 1 < len(reading.folded[0]) <= longest_acronym
        known.add(reading, 0, len(reading.folded), Leaf(kind, "", capital=reading.is_capitalised(0), upper=upper))
    return known


# The words that names and numbers are known by: titles, legal forms, account words, and words that are no name.
#
# Data only, in lower case without accents, as `reading.fold` gives them, except where a comment says otherwise.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before the name of a person. Written with a capital in the text, with or without a dot.
TITLES = _words("""
    mr mrs ms mx miss dr prof professor sir dame lord lady hon honourable honorable judge justice attorney rev
    reverend herr herrn frau hr rechtsanwalt rechtsanwaltin m mme mlle mm monsieur madame mademoiselle maitre sr sra
    srta senor senora senorita dona sig signor signora signorina dott dottoressa dottore avv dhr mevr mevrouw mw
    meneer fru pani doctor
""")
# Titles that mean something else in capitals (MS Office, DR plan, MX record), unless the name shouts as well.
QUIET_TITLES = frozenset({"ms", "mx", "dr", "sr", "hr", "mm", "m", "hon", "rev", "mw"})
# Between a title and the name: Dr. med. Anna Weber, Sig.ra Rossi, Dott.ssa Bianchi.
DEGREES = _words("""
    med jur iur phil rer nat hc h c dent vet ing habil mult oec pol theol ra ssa dipl
""")
# After a title these make an office or a thing, not a name: Attorney General, Sr. Partner, Judge President.
NO_NAME = _words("""
    general fees costs partner partners manager engineer developer analyst consultant secretary director president
    chairman advocate chancellor counsel district federal supreme high or and client vice
""")
# Small words inside a name, always followed by a capital: Ludwig van der Rohe, María de la Cruz.
PARTICLES = _words("""
    van von der den de del della di da dos das do du la le les ten ter te zu zum zur vom al el bin ibn ben y af av
""")

# After the name of a firm; here as written, and only those that begin in lower case may do so in a text.
LEGAL_FORMS = """Ltd; Limited; LLC; L.L.C; LLP; L.L.P; LP; L.P; Inc; Incorporated; Corp; Corporation; PLC; plc; P.L.C;
GmbH; gGmbH; mbH; G.m.b.H; Ges.m.b.H; AG; A.G; KG; K.G; KGaA; OHG; UG; GbR; e.V; e.K; e.U; SE; S.E; SA; S.A; SAS;
S.A.S; SARL; S.A.R.L; S.à r.l; Sàrl; SCA; SNC; EURL; SpA; S.p.A; Srl; S.r.l; S.n.c; SL; S.L; S.L.U; S.A.U; Lda; Ltda;
S.A. de C.V; B.V; BV; N.V; NV; V.O.F; C.V; BVBA; Oy; Oyj; AB; A/S; ApS; ASA; I/S; ehf; UAB; SIA; Pty; Pte; Pvt;
Proprietary; Bhd; Sdn; Sp. z o.o; sp. z o.o; Sp. j; S.K.A; s.r.o; a.s; S.R.O; A.S; Kft; Zrt; Nyrt; Bt; d.o.o; D.O.O;
d.d; j.d.o.o; K.K; KK; G.K; A.Ş; Ltd. Şti; Co; Cie; Holdings; Holding; Public Limited Company; Private Limited; EOOD;
OOD; EAD"""
# Between two legal forms of one firm: GmbH & Co. KG, Holdings Pty Ltd, Co., Ltd.
FORM_GAPS = frozenset({" ", ", ", " & ", ". ", "., ", ".& ", ". & ", " + "})
# Small words inside the name of a firm: Bank of Scotland plc, Marks and Spencer plc, Banco de Chile S.A.
FIRM_PARTICLES = PARTICLES | _words("""
    of and the for et und e i og och en fur pour per d l s
""")
JOINING = _words("""
    and et und y e i og och en
""")

# Not the beginning of a firm's name, though a sentence begins with it.
LEADING = _words("""
    the a an this that these those in on at by between among with for from to of and or but as if when while where
    whereas since after before under pursuant subject our your their its his her my we you it he she they dear both
    neither either each every all any no not per via re also yesterday today tomorrow meanwhile however therefore
    der die das den dem des ein eine zwischen mit fur bei von und oder sowie die le la les un une des entre avec par
    pour chez et ou el los las una con por para y o il lo gli tra fra e con een het de tussen met en
""")
# What a contract calls its parties and its parts: a name ends here.
TERMS = _words("""
    supplier customer client buyer seller purchaser vendor licensor licensee landlord tenant lessor lessee lender
    borrower employer employee contractor subcontractor consultant agent principal guarantor company parties party
    agreement contract section sections clause clauses schedule schedules annex article articles part exhibit
    appendix table figure page paragraph chapter recital recitals definition definitions term terms payment payments
    services products product notice notices invoice invoices director directors chairman chairwoman chief president
    secretary treasurer partner partners manager officer counsel solicitor barrister engineer developer shareholder
    shareholders board court tribunal fees costs or monday tuesday wednesday thursday friday saturday sunday january
    february march april june july august september october november december vertrag kunde kundin lieferant
    auftragnehmer auftraggeber mieter vermieter verkaufer kaufer geschaftsfuhrer vorstand client fournisseur
    acheteur vendeur gerant cliente proveedor comprador vendedor signed witness executed dated date name title
    address attn attention tel phone fax email
""")
# Of these, the ones that people are called as well.
ALSO_NAMES = _words("""page march april june august court may""")
# A run of nothing but these is a description, not a firm: a Private Limited Company.
GENERIC = _words("""
    private public company general liability partnership joint stock unlimited type group
""")
# A listed name that holds one of these names a firm or a body, not a person.
FIRM_WORDS = _words("""
    group bank university college council institute institution trust fund foundation partners partnership services
    solutions systems technologies technology traders trading industries international global consulting insurance
    company ministry department agency authority association society club church hospital school union federation
    networks network media studio studios labs laboratories software capital ventures bros brothers sons stiftung
    verein gesellschaft banque banco banca groupe grupo gruppo werke stadtwerke
""")
# Surnames and short names of firms that are also words: alone they are hidden only after a title, or as listed.
COMMON = TERMS | _words("""
    may will mark bill grant price law young long court judge bishop cook baker carpenter mason miller hunter fisher
    walker king queen prince knight white black brown green gray grey gold silver rose stone wood woods field fields
    hill hills lake rivers banks marsh moore park parks church temple hall house street lane west north south east
    summer winter spring day days weeks frost snow rain storm power best good bright sharp strong swift wise rich
    poor small little short high low major minor case cases page pages bond bonds cash money penny pound mills ford
    bridge gates wall bell ball cross love joy hope faith grace chance chase dean chancellor pope abbot page reed
    rice lamb wolf fox bird fish bush branch root berry apple orange target shell gap visa next first second third
    national united american british german french european global general standard universal central royal premier
    advanced digital smart new old big data open free sun star moon world home family people group trade market
    capital union trust fund bank insurance energy health care food water air land sea systems services solutions
    international legal english welsh irish scott french german holland israel jordan paris london
""")

# The length of an IBAN by country; a country that is not here has none.
IBAN_LENGTHS = {
    entry[:2]: int(entry[2:])
    for entry in _words("""
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29
    ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20
    LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29
    PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20
    YE30
""")
}

# What a number is called that is hidden on that word alone; acronyms count in capitals only.
ACCOUNT_WORDS = """account; accounts; acct; a/c; bank details; konto; kontonummer; kontonr; konto-nr; ktonr; kto;
compte; cuenta; conto; rekening; rekeningnummer; iban; sort code; bankleitzahl; blz; routing; ssn; social security;
sozialversicherungsnummer; securite sociale; seguridad social; national insurance; nino; tax id; tax identification;
tax no; tax number; tax reference; tax file; taxpayer; vat; ust-id; ust-idnr; ustid; ustidnr; steuernummer; steuer-nr;
steuernr; steuer-id; steuer-idnr; steuerid; steueridentifikationsnummer; passport; reisepass; reisepassnummer;
passeport; pasaporte; passaporto; ausweis; ausweisnummer; personalausweis; id card; identity card; driving licence;
driving license; driver's license; driver's licence; drivers license; fuhrerschein; medicare; customer no;
customer number; customer id; client no; client number; client id; kundennummer; policy no; policy number;
personnummer; codice fiscale; partita iva; company no; company number; registration no; registration number;
registered number; handelsregister; kvk; TIN; EIN; ITIN; NHS; DNI; NIF; NIE; CIF; CPF; CNPJ; SIREN; SIRET; BSN; PESEL;
NIP; REGON; AHV; HRB"""
PHONE_WORDS = """tel; telephone; telefon; telefono; telefoon; telf; telefonnummer; phone; mobile; mob; cell;
cellphone; fax; telefax; handy; mobil; mobilnummer; whatsapp; portable; movil; movel; cellulare; puhelin"""
