"""Whether a clause demands, allows or forbids: negation, conditions on what is allowed, and modal verbs."""

import re
from dataclasses import dataclass

from agents.providers.offline.offline_words import OPPOSITE_ROLE, meaning
from agents.providers.offline.text import normal, words_of

AFFIRMS, FORBIDS, RESTRICTS = "affirms", "forbids", "restricts"

_I = re.IGNORECASE
# Idioms whose "not" or "without" denies nothing, and bounds, which are compared as quantities.
_IDIOMS = re.compile(
    r"\b(?:neither|no|in\s+no\s+\w+)\b(?:\W+\w+){0,8}?\W+exceed\w*|\bnot\s+(?:be\s+)?limited\s+to|\bwhether\s+or\s+not|\bnot\s+only|\bwithout\s+(?:limitation|prejudice|undue\s+delay|delay|limiting)"
    r"|\b(?:not|never|no|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?(?:exceed\w*|excess|more|less|fewer|later|longer|greater|higher|lower|"
    r"earlier|sooner|shorter)\b"
    r"|\bunless\s+(?:otherwise|required\s+by)\b|\bno\.\s*\d|(?:\[ \]|\u2610)\s*\w+|\bno\s+doubt\b"
    r"|(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)(?<!\bwere\s)(?<!\bbe\s)\bnot\s+(?:yet\s+)?(?:paid|received|used|covered|listed|included)\b",
    _I,
)
_CONDITION = re.compile(
    r"\b(?:if|where|when|whenever|in\s+case|in\s+the\s+event|to\s+the\s+extent|provided\s+that|as)\b[^,;]*", _I
)
_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|none|cannot|nobody|nothing)\b|n['\u2019]t\b", _I)
_EXCLUSION = re.compile(
    r"\b(?:is|are|be|been|being)\s+(?:not\s+)?(?:\w+ly\s+)?(?:prohibited|forbidden|excluded|waived|banned|barred|denied|precluded|disabled)\b"
    r"|\b(?:waives?|disclaims?|excludes?|declines?|refuses?|prohibits?|forbids?|refrains?|lacks?)\b",
    _I,
)
_WITH_EXCEPTION = re.compile(r"\b(?:without|unless|except|other\s+than|until|save)\b", _I)
_ONLY = re.compile(
    r"\b(?:only|solely|exclusively)\s+(?:\w+\s+){0,3}?(?:with|upon|on|after|if|where|when|following|subject|by)\b"
    r"|\b(?:requires?|subject\s+to|conditional\s+on)\b(?:\W+\w+){0,8}?\W+(?:consent|approval|permission|authori[sz]ation|agreement)\b",
    _I,
)
_STRONG = re.compile(
    r"\b(?:shall|must|will|(?:is|are|be)\s+(?:\w+ly\s+)?(?:required|obliged|obligated|bound|responsible)|agrees?\s+to|undertakes?|has\s+to"
    r"|have\s+to|needs?\s+to|ensures?|mandatory)\b",
    _I,
)
_WEAK = re.compile(
    r"\b(?<!\d\s)(?:may|can|could|might|should)\b(?!\s+\d)|\b(?:entitled|permitted|allowed|optional(?:ly)?|discretion|voluntar(?:y|ily))\b"
    r"|\bright\s+to\b|\b(?:encouraged|recommended|advised|advisable)\b",
    _I,
)
_EFFORTS = re.compile(
    r"\b(?:efforts?|endeavou?rs?|where\s+(?:possible|practicable|feasible)|aims?\s+to|tr(?:y|ies)\s+to|intends?\s+to|if\s+possible)\b",
    _I,
)
# What follows a question mark is optional, so that a run of them is passed over once and not from each of its marks.
_ANSWER = re.compile(r"\?\W*+(?:(?:\w++\s*+[:.]\s*+)?(?:(?P<yes>yes)|(?P<no>no|none|not|n/a))\b)?", _I)
_SOLELY = re.compile(r"\b(?:solely|exclusively|only)\b", _I)  # "may be used solely as" allows nothing else
_MODAL = re.compile(rf"{_STRONG.pattern}|{_WEAK.pattern}", _I)
_AGENT = re.compile(r"\bby\s+(?:the\s+|its\s+)?([A-Za-z]+)", _I)
BOTH_PARTIES = re.compile(r"\b(?:either|each|both|any|neither|no)\s+part(?:y|ies)\b|\bthe\s+parties\b|\bmutual", _I)


@dataclass(frozen=True)
class Stance:
    """How a clause stands to what it speaks of. `subject` is the role that it binds or entitles, if it names one."""

    polarity: str = AFFIRMS
    optional: bool = False
    efforts: bool = False
    subject: str = ""


def stance_of(clause: str) -> Stance:
    plain = _IDIOMS.sub(" ", clause)
    optional = bool(_WEAK.search(plain)) and not _STRONG.search(plain) and not _SOLELY.search(plain)
    return Stance(_polarity(plain), optional, bool(_EFFORTS.search(plain)), _subject(plain))


def _polarity(plain: str) -> str:
    answers = {found.lastgroup for found in _ANSWER.finditer(plain)}
    if answers - {None}:
        return AFFIRMS if "yes" in answers else FORBIDS
    denial = _DENIAL.search(plain)
    if (denial and _WITH_EXCEPTION.search(plain, denial.end())) or _ONLY.search(plain):
        return RESTRICTS
    bare = _CONDITION.sub(" ", plain)
    return FORBIDS if bool(_DENIAL.search(bare)) != bool(_EXCLUSION.search(bare)) else AFFIRMS


def _subject(plain: str) -> str:
    """Who acts: the role after "by", else the last one before the modal verb, else the first word; none if both do."""
    if BOTH_PARTIES.search(plain):
        return ""
    agent = _AGENT.search(plain)
    if agent and (role := meaning(normal(agent[1]))) in OPPOSITE_ROLE:
        return role
    modal = _MODAL.search(plain)
    before = words_of(plain[: modal.start()])[-12:] if modal else words_of(plain)[:3]
    roles = [meaning(word.text) for word in before]
    return next((role for role in reversed(roles) if role in OPPOSITE_ROLE), "")


def conflict(found: Stance, wanted: Stance) -> str:
    """Why the two cannot stand side by side, in words; empty when they can."""
    reason = _CONFLICTS.get((wanted.polarity, found.polarity), "")
    if reason == _LIMITS_IT and not wanted.optional:  # a duty that arises on a condition is still a duty
        reason = ""
    if not reason and found.subject in OPPOSITE_ROLE.get(wanted.subject, ()):
        reason = "it binds or entitles the other side"
    if not reason and found.efforts and not wanted.efforts:
        reason = "it promises efforts only"
    if not reason and found.optional and not wanted.optional and found.polarity == wanted.polarity == AFFIRMS:
        reason = "it allows what the text to be met demands"
    return reason


_LIMITS_IT = "it sets a condition"
_CONFLICTS = {
    (AFFIRMS, FORBIDS): "it says the opposite (negated)",
    (FORBIDS, AFFIRMS): "it says the opposite (not negated)",
    (FORBIDS, RESTRICTS): "it makes an exception",
    (RESTRICTS, AFFIRMS): "it lacks the condition",
    (AFFIRMS, RESTRICTS): _LIMITS_IT,
}
