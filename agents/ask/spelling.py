"""Slips of a finger in requests that only look: `list trigers`, `pendng approvals`. Pure.

Only what is listed or shown may be misspelt, by one letter, and from its second letter on. Nothing here is asked about
an order: a lever is pulled by words that are spelt as they should be, or not at all.
"""

from dataclasses import replace
from typing import Final

from agents.ask.intents import LEVERS
from agents.ask.language import Request, Word, words

SHORTEST: Final = 5
MOST_SLIPS: Final = 2
_HELP: Final = dict.fromkeys(words("hlep hepl helpp hellp heelp halp"), "help")  # too short to be judged by the rule
_MEANT: Final = words(
    "triggers trigger schedules schedule automations sessions session receipt receipts approvals approval precedents "
    "precedent patterns pattern costs spending expenses budget status health commands agents agent summary overview "
    "pending running failed active waiting queued scheduled paused completed yesterday approve available"
)
# Words of their own that one letter parts from one of those.
_OTHERS: Final = words(
    "casts coasts coats costa cysts statue states sending ruining writing wanting wafting filed foiled passed pauses "
    "queues penning budged heath healths healthy commends command summery patters scheduler competed completes trigged "
    "approved approver approves"
)


def mended(request: Request) -> Request | None:
    """The request with what was misspelt as it was meant; None if nothing was, or too much."""
    found = tuple(_mended(word) for word in request.words)
    slips = sum(one is not word for one, word in zip(found, request.words, strict=True))
    return replace(request, words=found) if 0 < slips <= MOST_SLIPS else None


def _mended(word: Word) -> Word:
    if not word.quoted and word.said in _HELP:
        return replace(word, said=_HELP[word.said])
    if word.quoted or len(word.said) < SHORTEST or not word.said.isalpha() or word.said in _MEANT | _OTHERS | LEVERS:
        return word
    meant = [one for one in sorted(_MEANT) if _is_slip(word.said, one)]
    return replace(word, said=meant[0]) if len(meant) == 1 else word


def _is_slip(said: str, meant: str) -> bool:
    """One letter too many, too few, another one, or two in the wrong order; never the first."""
    if said[:1] != meant[:1] or abs(len(said) - len(meant)) > 1:
        return False
    same = next((place for place, (one, other) in enumerate(zip(said, meant, strict=False)) if one != other), None)
    if same is None:
        return len(said) != len(meant)
    here, there = said[same:], meant[same:]
    swapped = here[:2] == there[1::-1] and here[2:] == there[2:]
    return swapped or here[1:] == there[1:] or here[1:] == there or here == there[1:]
