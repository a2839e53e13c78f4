"""The words of the offline analyst: which carry no meaning, which mean the same, and the light stemmer.

Tables of general business and legal English only; what a document is about comes from the playbook, never from here.
"""

from functools import lru_cache

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
    relevant respective state provide provided good order full extent purpose way event respectively reasonable
    reasonably appropriate necessary accept accepted acceptable fallback net least maximum minimum mean means
    following follow include including
"""
STOP = frozenset(_STOP_WORDS.split())

# Numbers and the words of bounds are read as quantities; as words they would only blur what a sentence is about.
_FIGURE_WORDS = """
    zero two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion exceed exceeding
    exceeds excess later earlier longer shorter fewer less greater higher lower
"""
FIGURE_WORDS = frozenset(_FIGURE_WORDS.split())

# Each line is one meaning; the first word names it. A word stands on one line only.
_SAME = """
agreement contract deed
supplier vendor provider seller contractor
customer client buyer purchaser
landlord lessor
tenant lessee renter occupant
employee worker staff personnel workforce
employer
terminate cancel rescind
notify inform advise alert notice report communicate tell
pay settle remit payable paid payment
begin commence start
receive receipt received
invoice bill billing
fee charge
keep maintain retain preserve store retention hold kept
delete erase destroy purge erasure destruction deletion
breach violation infringement incident compromise
law legislation statute
permit allow authorise authorize
consent approval permission approve authorisation authorization sign-off
written writing
limit cap ceiling limitation
confidential secret nondisclosure confidentiality secrecy
buy purchase acquire procure
help assist support assistance
damage loss losses
holiday vacation
salary wage remuneration compensation
repair fix remedy rectify remediate
renew extend renewal extension
late overdue delayed
prior advance beforehand preceding previous
transfer assign assignment
dispute controversy disagreement
warrant guarantee warranty
defect fault error flaw
review audit inspect examine inspection assess assessment evaluate
return refund reimburse repay reimbursement
disclose reveal divulge disclosure
indemnify indemnity indemnification
liable liability
accident mishap
meeting session assembly
minutes
document record documentation
train training educate
password passphrase
premises
immediate prompt promptly immediately
automatic automatically
annual
obtain get secure
deliver delivery ship shipment
insurance insure coverage
require need demand requirement
begin
unlimited uncapped
third-party
restrict restriction
person individual
subcontract subcontractor
access
quote quotation
proof evidence
price cost
tax vat
penalty fine
remove removal eliminate
request
sublet sublease underlet
govern govern governed
rent rental
jurisdiction court venue
"""

# Words that say little about what a clause is about: whom it binds, what it is part of, and units.
_GENERIC = """
    agreement party document service company customer supplier landlord tenant employee employer person clause
    section term condition right obligation organization organisation business firm entity affiliate team time
    date item part system policy process procedure information matter work basis member user staff undersigned
    herewith hour day week month year minute working calendar consecutive percent usd eur gbp chf dollar euro
    pound period monthly annually annual yearly weekly daily quarterly hourly
"""

OPPOSITE_ROLES = {
    "customer": {"supplier"},
    "supplier": {"customer"},
    "landlord": {"tenant"},
    "tenant": {"landlord"},
    "employee": {"employer"},
    "employer": {"employee"},
    "licensor": {"licensee"},
    "licensee": {"licensor"},
    "discloser": {"recipient"},
    "recipient": {"discloser"},
    "controller": {"processor"},
    "processor": {"controller"},
    "borrower": {"lender"},
    "lender": {"borrower"},
}

_OPPOSITES = """mutual unilateral
mutual one-sided
limited unlimited
increase decrease
increase reduce
accept reject
approve reject
approve decline
enable disable
public private
mandatory optional
mandatory voluntary
required optional
obligatory optional
advance arrears
present absent
pass fail
complete incomplete
encrypt plaintext
encrypt cleartext
permanent temporary
perpetual temporary
paid unpaid
internal external
revocable irrevocable
refundable nonrefundable
exclusive nonexclusive
automatic manual
"""

# Ending → what takes its place; the first that fits and leaves a stem of at least the given length is applied.
_ENDINGS = (
    ("ationary", "", 4), ("etition", "et", 3), ("ifications", "if", 2), ("ification", "if", 2),
    ("ifying", "if", 2), ("ified", "if", 2), ("ifies", "if", 2), ("ify", "if", 2), ("izations", "iz", 3),
    ("isations", "iz", 3), ("ization", "iz", 3), ("isation", "iz", 3), ("izing", "iz", 3), ("ising", "iz", 4),
    ("ized", "iz", 3), ("ised", "iz", 4), ("izes", "iz", 3), ("ises", "iz", 4), ("ize", "iz", 3),
    ("ise", "iz", 4), ("abilities", "abl", 2), ("ability", "abl", 2), ("ibility", "ibl", 2), ("able", "abl", 2),
    ("ible", "ibl", 2), ("alities", "al", 3), ("ality", "al", 3), ("ations", "", 4), ("ation", "", 4),
    ("ating", "", 4), ("ated", "", 4), ("ates", "", 4), ("ators", "", 4), ("ator", "", 4), ("ate", "", 4),
    ("ments", "", 3), ("ment", "", 3), ("ances", "", 4), ("ance", "", 4), ("ences", "", 4), ("ence", "", 4),
    ("ically", "", 4), ("ally", "", 4), ("ily", "i", 3), ("ly", "", 4), ("ives", "", 4), ("ive", "", 4),
    ("tions", "t", 3), ("tion", "t", 3), ("sions", "s", 3), ("sion", "s", 3), ("ies", "i", 2), ("ied", "i", 2),
    ("als", "", 4), ("al", "", 4), ("sses", "ss", 2), ("xes", "x", 2), ("ches", "ch", 2), ("shes", "sh", 2),
    ("ings", "", 3), ("ing", "", 3), ("eed", "eed", 1), ("ed", "", 3), ("ss", "ss", 1), ("us", "us", 1),
    ("is", "is", 1), ("es", "", 3), ("s", "", 3), ("ay", "ay", 1), ("ey", "ey", 1), ("oy", "oy", 1),
    ("y", "i", 2), ("e", "", 3),
)  # fmt: skip
# What the stemmer would take for a form of another word: information is not notice, and personal data not a person.
OWN_MEANING = frozenset({"information", "personal"})
_DOUBLED = frozenset("bdgmnprt")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without its ending: `terminates`, `terminated` and `termination` give the same."""
    for ending, instead, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: len(word) - len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in _DOUBLED:  # noqa: PLR2004
        return word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word  # noqa: PLR2004


_MEANING = {stem(word): stem(line.split()[0]) for line in reversed(_SAME.split("\n")) for word in line.split()}


@lru_cache(maxsize=65_536)
def meaning(word: str) -> str:
    """The stem that stands for the word and for its synonyms; empty for a word that carries none."""
    if word in STOP or word in FIGURE_WORDS or word[0].isdigit():
        return ""
    if word in OWN_MEANING:
        return word
    found = stem(word)
    return _MEANING.get(found, found)


GENERIC = frozenset(map(meaning, _GENERIC.split())) - {""}
OPPOSITE_ROLE = {meaning(role): frozenset(map(meaning, others)) for role, others in OPPOSITE_ROLES.items()}
OPPOSITES: dict[str, set[str]] = {}
for _pair in _OPPOSITES.split("\n")[:-1]:
    _one, _other = (stem(word.replace("-", "")) for word in _pair.split())
    for _left, _right in ((_one, _other), (_other, _one)):
        OPPOSITES.setdefault(_MEANING.get(_left, _left), set()).add(_MEANING.get(_right, _right))
