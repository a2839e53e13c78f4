"""Whether a user's own words ask for what a skill does. In a chat, a skill that changes the world needs that. Pure.

Words are compared, nothing is understood. A question about how things are asks for nothing, and neither does what is
not to be done. A plain yes accepts what was said before it; a yes with any other word does not.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from agents.skills.skill import Skill

REFUSAL: Final = (
    "{name} changes something, and the user's words do not ask for that. It was not called. Say what you would do, and "
    "ask the user whether to do it."
)

_SEND: Final = ("send", "forward", "mail", "email", "message", "notify", "dispatch", "deliver", "write to", "reply to")
_CHANGE: Final = ("update", "change", "edit", "set", "modify", "rename", "move")
_KEEP: Final = ("save", "store", "keep", "record", "remember", "note", "upload", "write")
_REMOVE: Final = ("delete", "remove", "erase", "drop", "clear", "cancel")
_REQUEST: Final = ("http", "https", "request", "post", "put", "patch", "delete", "submit", "call")
# Parts of a skill's name, and the words that ask for it.
_SYNONYMS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("send", "mail", "email", "message", "notify", "forward", "deliver"), _SEND),
    **dict.fromkeys(("http", "request"), _REQUEST),
    **dict.fromkeys(("post", "publish", "submit"), ("post", "publish", "submit", "send", "upload")),
    **dict.fromkeys(("update", "change", "edit", "set", "modify"), _CHANGE),
    **dict.fromkeys(("save", "store", "keep", "record", "write", "upload"), _KEEP),
    **dict.fromkeys(("delete", "remove", "erase", "drop", "clear", "cancel"), _REMOVE),
    **dict.fromkeys(("create", "add", "make", "open"), ("create", "add", "make", "open", "new", "set up")),
    **dict.fromkeys(("pay", "payment", "transfer"), ("pay", "transfer", "wire", "settle")),
    **dict.fromkeys(("order", "buy", "purchase", "book"), ("order", "buy", "purchase", "book", "reserve")),
}
_LINKS: Final = frozenset({"a", "an", "and", "at", "by", "for", "from", "in", "it", "of", "on", "the", "to", "with"})
_SENTENCE: Final = re.compile(r"[^.!?:;\n]+[.!?:;\n]*")
_WORD: Final = re.compile(r"[a-z][a-z'_-]*")
_QUESTION: Final = re.compile(
    r"(?:what|when|where|who|whom|whose|why|which|how|did|has|have|had|is|are|was|were|does|do|am|any)\b", re.IGNORECASE
)
_POLITE: Final = re.compile(r"\b(?:please|(?:can|could|would|will) you|i (?:want|need|would like))\b", re.IGNORECASE)
_NEGATIONS: Final = frozenset({"not", "never", "without", "don't", "dont", "didn't", "won't", "shouldn't", "no", "nor"})
_NEGATION_WORDS: Final = 3  # how far before a word a negation counts
_CONSENT: Final = (
    "yes|yeah|yep|ok|okay|sure|please do|go ahead|do it|do that|do so|confirmed|correct|right|exactly|of course|agreed"
)
_FILLER: Final = "please|thanks|thank you|and|then|now"
_PAUSE: Final = r"(?:[\s,.;!-]+|\Z)"
_YES: Final = re.compile(
    rf"(?:(?:{_FILLER}){_PAUSE})*(?:{_CONSENT}){_PAUSE}(?:(?:{_CONSENT}|{_FILLER}){_PAUSE})*", re.IGNORECASE
)


def asks_for(text: str, name: str) -> bool:
    """Whether a text asks for what a skill of this name does: by the name, or by a synonym of a part of it."""
    parts = set(name.split("_")) - _LINKS
    words = {*parts, *(synonym for part in parts for synonym in _SYNONYMS.get(part, ()))}
    return any(_mentions(sentence, name, words) for sentence in _SENTENCE.findall(text) if _is_request(sentence))


def is_yes(text: str) -> bool:
    """Words of consent and nothing else: any other word could take the consent back."""
    return _YES.fullmatch(text.strip()) is not None


def relevant_texts(texts: Sequence[str]) -> list[str]:
    """The last text, and after a plain yes also the two before it."""
    *before, last = texts
    return [last, *before[-2:]] if is_yes(last) else [last]


def admission(texts: Callable[[], Iterable[str]]) -> Callable[[str, Skill, Mapping[str, Any]], str]:
    """A check that says why a call may not be made; empty if it may. Skills that only write our own rows pass."""

    def check(key: str, skill: Skill, arguments: Mapping[str, Any]) -> str:
        if not skill.side_effects or skill.local or any(asks_for(text, skill.name) for text in texts()):
            return ""
        return REFUSAL.format(name=skill.name)

    return check


def _is_request(sentence: str) -> bool:
    plain = sentence.strip()
    return not (_QUESTION.match(plain) and plain.endswith("?")) or bool(_POLITE.search(plain))


def _mentions(sentence: str, name: str, words: set[str]) -> bool:
    """Whether one of the words is there without a negation before it."""
    found = _WORD.findall(sentence.lower().replace("e-mail", "email"))
    pairs = [f"{one} {other}" for one, other in pairwise(found)]
    places = [place for place, word in enumerate(found) if word == name or word in words]
    places += [place for place, pair in enumerate(pairs) if pair in words]
    return any(_NEGATIONS.isdisjoint(found[max(0, place - _NEGATION_WORDS) : place]) for place in places)
