"""What a user asks for, by their own words. In a chat, a skill that changes the world runs only when they say so.

Pure: words are compared, nothing is understood. A question about how things stand asks for nothing; neither does what
is said not to be done. A plain yes is one to what was said before it; with any word besides it is none.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from agents.skills.skill import Skill

UNASKED: Final = (
    "{name} changes something, and the user's words do not ask for that. It was not called. Say what you would do, and "
    "ask the user whether to do it."
)

_SEND: Final = ("send", "forward", "mail", "email", "message", "notify", "dispatch", "deliver", "write to", "reply to")
_CHANGE: Final = ("update", "change", "edit", "set", "modify", "rename", "move")
_KEEP: Final = ("save", "store", "keep", "record", "remember", "note", "upload", "write")
_REMOVE: Final = ("delete", "remove", "erase", "drop", "clear", "cancel")
_MEANS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(("send", "mail", "email", "message", "notify", "forward", "deliver"), _SEND),
    **dict.fromkeys(
        ("http", "request"), ("http", "https", "request", "post", "put", "patch", "delete", "submit", "call")
    ),
    **dict.fromkeys(("post", "publish", "submit"), ("post", "publish", "submit", "send", "upload")),
    **dict.fromkeys(("update", "change", "edit", "set", "modify"), _CHANGE),
    **dict.fromkeys(("save", "store", "keep", "record", "write", "upload"), _KEEP),
    **dict.fromkeys(("delete", "remove", "erase", "drop", "clear", "cancel"), _REMOVE),
    **dict.fromkeys(("create", "add", "make", "open"), ("create", "add", "make", "open", "new", "set up")),
    **dict.fromkeys(("pay", "payment", "transfer"), ("pay", "transfer", "wire", "settle")),
    **dict.fromkeys(("order", "buy", "purchase", "book"), ("order", "buy", "purchase", "book", "reserve")),
}
_SENTENCES: Final = re.compile(r"[^.!?:;\n]+[.!?:;\n]*")
_WORDS: Final = re.compile(r"[a-z][a-z'_-]*")
_STANDING: Final = re.compile(
    r"(?:what|when|where|who|whom|whose|why|which|how|did|has|have|had|is|are|was|were|does|do|am|any)\b", re.IGNORECASE
)
_ASKING: Final = re.compile(r"\b(?:please|(?:can|could|would|will) you|i (?:want|need|would like))\b", re.IGNORECASE)
_NOT: Final = frozenset({"not", "never", "without", "don't", "dont", "didn't", "won't", "shouldn't", "no", "nor"})
_CONSENT: Final = (
    "yes|yeah|yep|ok|okay|sure|please do|go ahead|do it|do that|do so|confirmed|correct|right|exactly|of course|agreed"
)
_FILLER: Final = "please|thanks|thank you|and|then|now"
_PAUSE: Final = r"(?:[\s,.;!-]+|\Z)"
_YES: Final = re.compile(
    rf"(?:(?:{_FILLER}){_PAUSE})*(?:{_CONSENT}){_PAUSE}(?:(?:{_CONSENT}|{_FILLER}){_PAUSE})*", re.IGNORECASE
)
_EMPTY: Final = frozenset({"a", "an", "and", "at", "by", "for", "from", "in", "it", "of", "on", "the", "to", "with"})
_NEAR: Final = 3


def asks_for(text: str, name: str) -> bool:
    """Whether the words ask for what a skill of this name does: by its name, or by a word for what its name says."""
    parts = set(name.split("_")) - _EMPTY
    words = {*parts, *(meant for part in parts for meant in _MEANS.get(part, ()))}
    return any(_says(sentence, name, words) for sentence in _SENTENCES.findall(text) if _is_request(sentence))


def is_yes(text: str) -> bool:
    """Words of consent, and nothing else: any other word could take the consent back."""
    return bool(_YES.fullmatch(text.strip()))


def requests_in(said: Sequence[str]) -> list[str]:
    """The texts by which the last one is to be judged: itself, or, after a plain yes, what was said just before too."""
    *before, last = said
    return [last, *before[-2:]] if is_yes(last) else [last]


def admission(requests: Callable[[], Iterable[str]]) -> Callable[[str, Skill, Mapping[str, Any]], str]:
    """Says why a call may not be made; nothing when it may. Skills whose whole effect is rows of ours are free."""

    def judge(key: str, skill: Skill, arguments: Mapping[str, Any]) -> str:
        if not skill.side_effects or skill.local or any(asks_for(text, skill.name) for text in requests()):
            return ""
        return UNASKED.format(name=skill.name)

    return judge


def _is_request(sentence: str) -> bool:
    return not (_STANDING.match(sentence.strip()) and sentence.strip().endswith("?")) or bool(_ASKING.search(sentence))


def _says(sentence: str, name: str, words: set[str]) -> bool:
    said = _WORDS.findall(sentence.lower().replace("e-mail", "email"))
    pairs = [f"{one} {other}" for one, other in pairwise(said)]
    places = [place for place, word in enumerate(said) if word == name or word in words]
    places += [place for place, pair in enumerate(pairs) if pair in words]
    return any(_NOT.isdisjoint(said[max(0, place - _NEAR) : place]) for place in places)
