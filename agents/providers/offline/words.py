"""The words of the offline analyst: which carry no meaning, which mean the same, and which are opposites.

The tables hold general business and legal English only. What a document is about comes from the playbook, never from
here. Each word keeps its offsets, so that every quote is exact.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import snowballstemmer

_STOP_WORDS = """
    a about above accordance according across after again against ago all also although always am among an and
    another any apply applicable are as at available be because become been before being between both but by can
    cannot case could did do does doing done down during each either else etc ever every everything for forth
    from further get give given had has have having he her here hereby herein hereof hereto hereunder him his
    how however i if in into is it its itself just lie made make may me might more most must my namely neither
    no nor not notwithstanding now of off on once one only onto or other otherwise our out over own per please
    regard regarding relating respect said same set shall she should since so some such take than that the their
    them themselves then there thereby therefor therefore therein thereof thereto these they thing this those through
    thus to together too toward towards under until unto up upon us use used using very via was we were what
    whatever when where whereas whereby wherein whether which while who whom whose will with within without
    would yes yet you your yours don't doesn't isn't aren't won't can't shan't didn't ensure happen kind least
    relevant respective state states provide provides provided good order full extent purpose way event respectively
    reasonable reasonably appropriate necessary accept accepted acceptable fallback net maximum minimum mean means
    following follow include including
"""
STOP = frozenset(_STOP_WORDS.split())

# Numbers and bounds are compared as quantities; as words they would only blur what a sentence is about.
_FIGURE_WORDS = """
    zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion exceed exceeding
    exceeds excess later earlier longer shorter fewer less greater higher lower
"""
_WITHOUT_MEANING = STOP.union(_FIGURE_WORDS.split())

# Each line is one meaning; its first word names it.
_SYNONYMS = """
agreement contract deed
supplier vendor provider seller contractor
customer client buyer
landlord lessor
tenant lessee renter occupant
employee worker staff personnel workforce
terminate cancel rescind
notify notification inform advise alert notice report communicate tell
pay settle remit payable paid payment
begin commence start
receive receipt
invoice bill
fee charge
keep maintain retain preserve store retention hold kept
delete erase destroy purge erasure destruction
breach violation infringement incident compromise
law legislation statute
permit allow
consent approval permission authorisation authorization
written writing
limit cap ceiling
confidential secret nondisclosure secrecy
buy purchase acquire procure
help assist support
damage loss
holiday vacation
salary wage remuneration compensation
repair fix remedy rectify
renew extend extension
late overdue delayed
prior advance beforehand preceding previous
transfer assign
dispute controversy disagreement
warrant guarantee warranty
defect fault error flaw
review audit inspect examine assess evaluate
return refund reimburse repay
disclose reveal divulge disclosure
indemnify indemnity indemnification
liable liability
accident mishap
meeting session assembly
document record
train educate
password passphrase
immediate prompt
obtain get secure
deliver delivery ship shipment
insurance coverage
require need demand
unlimited uncapped
person individual
subcontract subcontractor
quote quotation
proof evidence
price cost
tax vat
penalty fine
remove eliminate
sublet sublease underlet
rent rental
jurisdiction court venue
noncompete noncompetition
probation probationary
"""

# Words that say little about the subject of a clause: the parties, the parts of a document, and units.
_GENERIC = """
    agreement party document service company customer supplier landlord tenant employee employer person clause
    section term condition right obligation organization organisation business firm entity affiliate team time
    date item part system policy process procedure information matter work basis member user staff undersigned
    herewith hour day week month year minute working calendar consecutive percent usd eur gbp chf dollar euro
    pound period monthly annually annual yearly weekly daily quarterly hourly
"""

_OPPOSITE_ROLES = """
    customer/supplier landlord/tenant employee/employer licensor/licensee discloser/recipient controller/processor
    borrower/lender
"""

_OPPOSITES = """
    mutual/unilateral mutual/onesided limited/unlimited increase/decrease increase/reduce approve/reject
    approve/decline enable/disable public/private mandatory/optional mandatory/voluntary required/optional
    obligatory/optional advance/arrears present/absent pass/fail complete/incomplete encrypt/plaintext
    encrypt/cleartext permanent/temporary perpetual/temporary paid/unpaid internal/external revocable/irrevocable
    refundable/nonrefundable exclusive/nonexclusive automatic/manual
"""

# The stemmer would read these as forms of "inform" and "person".
_OWN_MEANING = frozenset({"information", "personal"})

_LETTERS = r"[^\W\d_]"
_INVISIBLE = "\u00ad\u200b-\u200d\u2060"
_MARKS = _INVISIBLE + "\u0300-\u036f"
WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"  # scripts without spaces: each character is a word
    r"|\d+(?:[.,]\d+)*"
    rf"|(?:\b[Nn][Oo][Nn][-\u2010\u2011][ \t]*(?:\r?\n[ \t]*)?)?{_LETTERS}+"
    rf"(?:(?:[{_MARKS}]+|-[ \t]*\r?\n[ \t]*(?=[a-z])){_LETTERS}*)*(?:['\u2019]{_LETTERS}+)?"
)
_DROPPED = re.compile(rf"[{_INVISIBLE}]|[-\u2010\u2011]\s*")

_stemmer = snowballstemmer.stemmer("english")


class Word(NamedTuple):
    """A normalised word with its place in the text."""

    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    return [Word(normalised(found[0]), found.start(), found.end()) for found in WORD.finditer(text)]


@lru_cache(maxsize=65_536)
def normalised(word: str) -> str:
    """Lower case, without possessives, ligatures, invisible characters and hyphens at line ends."""
    word = word.casefold()
    if word.isascii() and word.isalnum():
        return word
    word = unicodedata.normalize("NFKC", _DROPPED.sub("", word)).replace("\u2019", "'")
    return word.removesuffix("'s") or word


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    return str(_stemmer.stemWord(word))


_NAMED_BY = {stem(word): stem(line.split()[0]) for line in _SYNONYMS.splitlines() for word in line.split()}


@lru_cache(maxsize=65_536)
def meaning(word: str) -> str:
    """Return the stem that stands for a word and its synonyms; empty for a word without meaning."""
    if word in _WITHOUT_MEANING or word[0].isdigit():
        return ""
    if word in _OWN_MEANING:
        return word
    return _NAMED_BY.get(stem(word), stem(word))


def meanings_of(text: str) -> frozenset[str]:
    return frozenset(found for match in WORD.finditer(text) if (found := meaning(normalised(match[0]))))


def _pairs(table: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pair in table.split():
        one, other = map(meaning, pair.split("/"))
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


GENERIC = frozenset(map(meaning, _GENERIC.split())) - {""}
OPPOSITE_ROLES = _pairs(_OPPOSITE_ROLES)
OPPOSITES = _pairs(_OPPOSITES)

FEW_WORDS = 12


def looks_english(words: Iterable[str]) -> bool:
    """Return False for a text of some length in which the small words of English are rare."""
    letters = [word for word in words if not word[0].isdigit()]
    small = sum(word in STOP for word in letters)
    foreign = sum(not word.isascii() for word in letters)
    if len(letters) < FEW_WORDS:
        return foreign * 2 <= len(letters)
    return small * 8 >= len(letters) and foreign * 4 <= len(letters)
