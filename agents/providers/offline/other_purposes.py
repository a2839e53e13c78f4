"""The offline provider's other purposes: judging a quote, gating a turn, scoring a reading, and saying what it is.

Each is a small documented rule over the request's own text (docs/offline-analyst.md); none pretends to understand.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agents.enums import Purpose
from agents.providers.offline.matcher import CONFLICTS, MET, Matcher, requirements_of
from agents.providers.offline.quantities import figure
from agents.providers.offline.replies import DESCRIPTION, cut_to_fit, first_that_fits, shortened
from agents.providers.offline.sentences import Document, split_sentences
from agents.providers.offline.words import meanings_of
from agents.text.blocks import END, parse_blocks

MATERIAL_CHANGE = 0.05  # a number that changes by a smaller share is unchanged
FULL_SCORE_CHANGE = 0.5
ARGUMENT_CHARS = 80
MAX_ARGUMENTS = 6
MAX_WARNING_WORDS = 6
NO_FORECAST = "No prediction: the offline analyst reads the call by rule, and foresees nothing."
CHAT = (
    f"I am the offline analyst of lqops: {DESCRIPTION}. I cannot hold a conversation. Send a document together with a "
    "playbook or a skill with rules, and I report, with exact quotes, where the document departs from them. "
    "For anything else, configure a language model."
)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*")
_THRESHOLD = re.compile(
    r"(above|over|more than|greater than|exceed\w{0,20}|at least|>=?|below|under|less than|fewer than|at most|<=?)"
    r"\s*+(?:by\s++)?(?:[^\d\s%-]\s*+)?"
    r"(-?\d++(?:[.,]\d++)*+)\s*+(%|percent)?",
    re.IGNORECASE,
)
_UPWARD = ("above", "over", "more", "greater", "exceed", "at least", ">")
_CALL = re.compile(r"^Skill: ([\w.-]{1,64})\((.*)\)$", re.MULTILINE)  # as agents.engine.skills asks
_HARD_TO_UNDO = re.compile(
    r"\b(delet\w*|remov\w*|drop\w*|overwrit\w*|send\w*|publish\w*|pay\w*|transfer\w*|cancel\w*|revok\w*|purg\w*|execut\w*)",
    re.IGNORECASE,
)

Reply = tuple[str, bool]  # the text, and whether it is whole


def judge(texts: list[str], max_tokens: int) -> Reply:
    """Whether the quote supports the claim: it says each sentence of the claim, with the same figures."""
    blocks = {block.kind: block.text for text in texts for block in parse_blocks(text)}
    claims = requirements_of(blocks.get("claim", ""))
    wanted = [one.with_quantities(lambda quantity: replace(quantity, bound="")) for one in claims]
    matcher = Matcher(Document(blocks.get("quote", "")))
    outcomes = [matcher.look_up(one) for one in wanted]
    scores = [0.0 if one.kind == CONFLICTS else one.coverage / (1 if one.kind == MET else 2) for one in outcomes]
    is_supported = bool(outcomes) and all(one.kind == MET for one in outcomes)
    why = next((one.why for one in outcomes if one.why), "")
    if not why:
        why = "the quote says it in like words" if is_supported else "the quote does not say it"
    score = round(min(1.0, sum(scores) / max(1, len(scores))), 2)
    answer: dict[str, Any] = {"supported": is_supported, "score": score}
    full = json.dumps({**answer, "why": f"{why} ({DESCRIPTION})"}, ensure_ascii=False)
    return first_that_fits([full, json.dumps(answer)], max_tokens)


def precheck(texts: list[str], max_tokens: int) -> Reply:
    """`yes` if something material changed in lines `name: old -> new`: any text, or a number by at least 5 %."""
    changes = [line.partition("->") for line in _data(texts).splitlines() if "->" in line]
    is_material = any(_is_material(old.partition(":")[2], new) for old, _, new in changes)
    return first_that_fits(["yes" if is_material else "no"], max_tokens)


def _is_material(old: str, new: str) -> bool:
    one, other = _NUMBER.search(old), _NUMBER.search(new)
    if one and other and _NUMBER.sub("", old).strip() == _NUMBER.sub("", new).strip():
        return _change(_number(one[0]), _number(other[0])) >= MATERIAL_CHANGE
    return old.split() != new.split()


def signal(texts: list[str], max_tokens: int) -> Reply:
    """A score from 0 to 1: by the prompt's own threshold, else by how far the numbers moved, else by shared words."""
    data, prompt = _data(texts), "\n".join(_outside_blocks(text) for text in texts)
    numbers = [_number(found[0]) for found in _NUMBER.finditer(data)]
    threshold = _THRESHOLD.search(prompt)
    if threshold and numbers:
        score = float(_is_passed(threshold, numbers))
    elif len(numbers) > 1:
        score = min(1.0, _change(numbers[0], numbers[-1]) / FULL_SCORE_CHANGE)
    else:
        asked = meanings_of(prompt)
        score = len(asked & meanings_of(data)) / max(1, len(asked))
    return first_that_fits([f"{score:.2f}"], max_tokens)


def _is_passed(threshold: re.Match[str], numbers: Sequence[float]) -> bool:
    """The last number against the threshold; against a percentage, its change from the first one if there are two."""
    limit, value = _number(threshold[2]), numbers[-1]
    if threshold[3] and len(numbers) > 1:
        value = 100 * _change(numbers[0], numbers[-1])
    words = threshold[1].lower()
    if value == limit:
        return words.startswith(("at ", ">=", "<="))
    return value > limit if words.startswith(_UPWARD) else value < limit


def _data(texts: list[str]) -> str:
    return "\n".join(block.text for text in texts for block in parse_blocks(text))


def _outside_blocks(text: str) -> str:
    """A message without what its blocks hold: instructions come from there only."""
    kept, place = [], 0
    for block in parse_blocks(text):
        kept.append(text[place : text.rindex("<<<", 0, block.start)])
        place = block.end + len(f"\n<<<{END} {block.nonce}>>>")
    return "".join([*kept, text[place:]])


def _change(before: float, after: float) -> float:
    return abs(after - before) / max(abs(before), 1e-9)


def _number(digits: str) -> float:
    return -figure(digits[1:]) if digits.startswith("-") else figure(digits)


def simulation(texts: list[str], max_tokens: int) -> Reply:
    """The call itself, in a sentence, and which of its words are hard to undo. It foresees nothing, and says so."""
    call = next((found for text in texts for found in _CALL.finditer(text)), None)
    if call is None:
        return cut_to_fit(NO_FORECAST, max_tokens)
    name, arguments = call[1], call[2]
    words = sorted({found.lower() for found in _HARD_TO_UNDO.findall(f"{name.replace('_', ' ')} {arguments}")})
    warning = f" Words for what may not be undone: {', '.join(words[:MAX_WARNING_WORDS])}." if words else ""
    return cut_to_fit(f"{NO_FORECAST} It would run {name} with {_arguments(arguments)}.{warning}", max_tokens)


def _arguments(text: str) -> str:
    try:
        arguments = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):  # the question had no room for all of them
        return "arguments that are too long to show"
    if not arguments:
        return "no arguments"
    shown = []
    for key, value in list(arguments.items())[:MAX_ARGUMENTS]:
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown.append(f"{key} \u201c{shortened(written, ARGUMENT_CHARS)}\u201d")
    more = f" and {len(arguments) - MAX_ARGUMENTS} more" if len(arguments) > MAX_ARGUMENTS else ""
    return ", ".join(shown) + more


def compaction(texts: list[str], max_tokens: int) -> Reply:
    """The first sentence of each message, in order: an extract, not a summary."""
    firsts = ((text, split_sentences(text)[0]) for text in texts if text.strip())
    extract = (text[first.start : first.end] for text, first in firsts)
    return cut_to_fit("\n".join(["Extract by rule (first sentence of each message):", *extract]), max_tokens)


def chat(texts: list[str], max_tokens: int) -> Reply:
    return cut_to_fit(CHAT, max_tokens)


OTHER_PURPOSES: dict[str, Callable[[list[str], int], Reply]] = {
    Purpose.JUDGE: judge,
    Purpose.PRECHECK: precheck,
    Purpose.SIGNAL: signal,
    Purpose.SIMULATION: simulation,
    Purpose.COMPACTION: compaction,
    Purpose.CHAT: chat,
}
