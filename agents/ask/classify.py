"""Which of five strategies fits a request: rules over its words, in one pass and without a model. Pure.

The order of the rules is the order of priority: SCHEDULED_TASK, SUB_AGENT, SCRIPT, GOAL, and DIRECT_RESPONSE for all
the rest. A text is only read here, never changed. Whatever goes wrong, the answer is DIRECT_RESPONSE.
"""

import logging
import re
from enum import StrEnum
from typing import Final

from agents.ask import forms, whens
from agents.ask.orders import asks_for_something

logger = logging.getLogger(__name__)

SHORTEST: Final = 7
LONGEST: Final = 400
_MOST_PIECES: Final = 20
_PIECE_CHARS: Final = 120
_SPACE: Final = re.compile(r"[^\S\n]+")


class Strategy(StrEnum):
    DIRECT_RESPONSE = "DIRECT_RESPONSE"
    GOAL = "GOAL"
    SCHEDULED_TASK = "SCHEDULED_TASK"
    SUB_AGENT = "SUB_AGENT"
    SCRIPT = "SCRIPT"


_TIMED: Final = Strategy.SCHEDULED_TASK
_RULES: Final = (
    (Strategy.SCHEDULED_TASK, forms.TIMES),
    (Strategy.SUB_AGENT, forms.SUB_AGENTS),
    (Strategy.SCRIPT, forms.SCRIPTS),
    (Strategy.GOAL, forms.GOALS),
)


def classify(text: str) -> Strategy:
    """The strategy for a request. It raises nothing."""
    try:
        return _judged(text)
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE


def _judged(text: str) -> Strategy:
    said = _SPACE.sub(" ", text).strip().replace("\u2019", "'")
    if len(said) < SHORTEST:
        return Strategy.DIRECT_RESPONSE
    looked_at = reduced(said)
    if forms.ASKS.search(looked_at) or forms.REFUSES.search(looked_at):
        return Strategy.DIRECT_RESPONSE
    for strategy, known in _RULES:
        if any(form.search(looked_at) for form in known) and (strategy != _TIMED or _is_task(looked_at)):
            return strategy
    return Strategy.DIRECT_RESPONSE


def _is_task(text: str) -> bool:
    """A time alone makes no schedule: there has to be something to do then. It is looked for in what is left."""
    without = text
    for form in (*forms.MOMENTS, whens.AT):
        without = form.sub(" ", without)
    return asks_for_something(_SPACE.sub(" ", without).strip(" ,.;:"))


def reduced(text: str) -> str:
    """What is looked at of a long text: its first sentence, and the times, entities and addresses of the rest."""
    if len(text) <= LONGEST:
        return text
    end = forms.SENTENCE_END.search(text)
    first = text[: min(end.end() if end else LONGEST, LONGEST)]
    rest = text[len(first) :]
    kept = [piece for form in (*forms.TIMES, forms.ENTITY, forms.URL) for piece in _pieces(form, rest)]
    return " ".join([first, *kept])


def _pieces(form: re.Pattern[str], text: str) -> list[str]:
    found = []
    for match in form.finditer(text):
        found.append(match[0][:_PIECE_CHARS])
        if len(found) == _MOST_PIECES:
            break
    return found
