"""Whether a clause requires, allows or forbids, whom it binds, and when two clauses contradict each other."""

import re
from dataclasses import dataclass

from agents.providers.offline.words import OPPOSITE_ROLES, meaning, normalised, words_of

AFFIRMS, FORBIDS, RESTRICTS = "affirms", "forbids", "restricts"

# Idioms whose "not" or "without" denies nothing, and bounds, which are compared as quantities.
_IDIOMS = re.compile(
    r"\b(?:neither|no|in\s+no\s+\w+)\b(?:\W+\w+){0,8}?\W+exceed\w*|\bnot\s+(?:be\s+)?limited\s+to|\bwhether\s+or\s+not"
    r"|\bnot\s+only|\bwithout\s+(?:limitation|prejudice|undue\s+delay|delay|limiting)"
    r"|\b(?:not|never|no|nor)\s+(?:to\s+)?(?:be\s+)?(?:in\s+)?(?:exceed\w*|excess|more|less|fewer|later|longer|greater"
    r"|higher|lower|earlier|sooner|shorter)\b"
    r"|\bunless\s+(?:otherwise|required\s+by)\b|\bno\.\s*\d|(?:\[ \]|\u2610)\s*\w+|\bno\s+doubt\b"
    r"|(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)(?<!\bwere\s)(?<!\bbe\s)\bnot\s+(?:yet\s+)?"
    r"(?:paid|received|used|covered|listed|included)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|where|when|whenever|in\s+case|in\s+the\s+event|to\s+the\s+extent|provided\s+that|as)\b[^,;]*",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|no|never|neither|nor|none|cannot|nobody|nothing)\b|n['\u2019]t\b", re.IGNORECASE)
_EXCLUSION = re.compile(
    r"\b(?:is|are|be|been|being)\s+(?:not\s+)?(?:\w+ly\s+)?"
    r"(?:prohibited|forbidden|excluded|waived|banned|barred|denied|precluded|disabled)\b"
    r"|\b(?:waives?|disclaims?|excludes?|declines?|refuses?|prohibits?|forbids?|refrains?|lacks?)\b",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"\b(?:without|unless|except|other\s+than|until|save)\b", re.IGNORECASE)
_ONLY = re.compile(
    r"\b(?:only|solely|exclusively)\s+(?:\w+\s+){0,3}?(?:with|upon|on|after|if|where|when|following|subject|by)\b"
    r"|\b(?:requires?|subject\s+to|conditional\s+on)\b(?:\W+\w+){0,8}?\W+"
    r"(?:consent|approval|permission|authori[sz]ation|agreement)\b",
    re.IGNORECASE,
)
_DUTY = re.compile(
    r"\b(?:shall|must|will|(?:is|are|be)\s+(?:\w+ly\s+)?(?:required|obliged|obligated|bound|responsible)|agrees?\s+to"
    r"|undertakes?|has\s+to|have\s+to|needs?\s+to|ensures?|mandatory)\b",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"\b(?<!\d\s)(?:may|can|could|might|should)\b(?!\s+\d)"
    r"|\b(?:entitled|permitted|allowed|optional(?:ly)?|discretion|voluntar(?:y|ily))\b"
    r"|\bright\s+to\b|\b(?:encouraged|recommended|advised|advisable)\b",
    re.IGNORECASE,
)
_MODAL = re.compile(rf"{_DUTY.pattern}|{_OPTION.pattern}", re.IGNORECASE)
_EFFORTS = re.compile(
    r"\b(?:efforts?|endeavou?rs?|where\s+(?:possible|practicable|feasible)|aims?\s+to|tr(?:y|ies)\s+to|intends?\s+to"
    r"|if\s+possible)\b",
    re.IGNORECASE,
)
# What follows a question mark is optional, so that a run of them is passed over once and not from each of its marks.
_ANSWER = re.compile(r"\?\W*+(?:(?:\w++\s*+[:.]\s*+)?(?:(?P<yes>yes)|(?P<no>no|none|not|n/a))\b)?", re.IGNORECASE)
_SOLELY = re.compile(r"\b(?:solely|exclusively|only)\b", re.IGNORECASE)  # "may be used solely as" allows nothing else
_AGENT = re.compile(r"\bby\s+(?:the\s+|its\s+)?([A-Za-z]+)", re.IGNORECASE)
_BOTH_PARTIES = re.compile(
    r"\b(?:either|each|both|any|neither|no)\s+part(?:y|ies)\b|\bthe\s+parties\b|\bmutual", re.IGNORECASE
)


@dataclass(frozen=True)
class Commitment:
    """What a clause commits to. `role` is the party that it binds or entitles, if it names one."""

    polarity: str = AFFIRMS
    is_optional: bool = False
    is_efforts_only: bool = False
    role: str = ""


def commitment_of(clause: str) -> Commitment:
    plain = _IDIOMS.sub(" ", clause)
    is_optional = bool(_OPTION.search(plain)) and not _DUTY.search(plain) and not _SOLELY.search(plain)
    return Commitment(_polarity(plain), is_optional, bool(_EFFORTS.search(plain)), _role(plain))


def _polarity(plain: str) -> str:
    answers = {found.lastgroup for found in _ANSWER.finditer(plain)}
    if answers - {None}:
        return AFFIRMS if "yes" in answers else FORBIDS
    denial = _DENIAL.search(plain)
    if (denial and _EXCEPTION.search(plain, denial.end())) or _ONLY.search(plain):
        return RESTRICTS
    bare = _CONDITION.sub(" ", plain)
    return FORBIDS if bool(_DENIAL.search(bare)) != bool(_EXCLUSION.search(bare)) else AFFIRMS


def _role(plain: str) -> str:
    """The role after "by", else the last one before the modal verb; none if the clause binds both parties."""
    if is_mutual(plain):
        return ""
    agent = _AGENT.search(plain)
    if agent and (role := meaning(normalised(agent[1]))) in OPPOSITE_ROLES:
        return role
    modal = _MODAL.search(plain)
    before = words_of(plain[: modal.start()])[-12:] if modal else words_of(plain)[:3]
    roles = [meaning(word.text) for word in before]
    return next((role for role in reversed(roles) if role in OPPOSITE_ROLES), "")


def is_mutual(text: str) -> bool:
    return _BOTH_PARTIES.search(text) is not None


_CONTRADICTIONS = {
    (AFFIRMS, FORBIDS): "it says the opposite (negated)",
    (FORBIDS, AFFIRMS): "it says the opposite (not negated)",
    (FORBIDS, RESTRICTS): "it makes an exception",
    (RESTRICTS, AFFIRMS): "it lacks the condition",
}


def contradiction(found: Commitment, wanted: Commitment) -> str:
    """Say why the found clause contradicts the wanted one; empty when it does not."""
    if reason := _CONTRADICTIONS.get((wanted.polarity, found.polarity)):
        return reason
    if wanted.is_optional and (wanted.polarity, found.polarity) == (AFFIRMS, RESTRICTS):
        return "it sets a condition"  # a duty that arises on a condition is still a duty
    if found.role in OPPOSITE_ROLES.get(wanted.role, ()):
        return "it binds or entitles the other side"
    if found.is_efforts_only and not wanted.is_efforts_only:
        return "it promises efforts only"
    if found.is_optional and not wanted.is_optional and found.polarity == wanted.polarity == AFFIRMS:
        return "it allows what the standard requires"
    return ""
