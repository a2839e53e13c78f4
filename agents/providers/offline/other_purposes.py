"""The offline provider's other purposes: judging a quote, gating a turn, scoring a reading, and saying what it is.

Each is a small documented rule over the request's own text (docs/offline-analyst.md); none pretends to understand.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agents.enums import Purpose
from agents.policy.guardrails import YIELD
from agents.providers.offline.text import Document, figure, meanings_of, split_sentences
from agents.providers.offline.verdicts import CONFLICTS, MET, Matcher, requirements_of
from agents.text.blocks import END, parse_blocks
from agents.types import ModelRequest, RequestedCall

# Replies of the offline provider: what it says of itself, and how a text is fitted into the tokens of a request.
#
# A token is counted as four bytes of UTF-8, rounded up.


DESCRIPTION = "rule-based text matching; not a language model; finds only what its rules describe"
_BYTES_PER_TOKEN = 4


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def cut_to_fit(text: str, max_tokens: int) -> tuple[str, bool]:
    """Return the text, cut at the last token that fits, and whether it is whole."""
    if count_tokens(text) <= max_tokens:
        return text, True
    raw = text.encode("utf-8", "surrogatepass")
    return raw[: max(0, max_tokens) * _BYTES_PER_TOKEN].decode("utf-8", "ignore"), False


def first_that_fits(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """Return the fullest form that fits, and whether it is the first; part of an answer would be another answer."""
    return next(((text, text == texts[0]) for text in texts if count_tokens(text) <= max_tokens), ("", False))


def shortened(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"


# The offline provider in a turn of a loop: it passes alerts on to the owner, and sleeps. By rule, and it says so.
#
# It understands neither the alerts nor the hot state. What it does follows from how the request is built: whether
# there are alerts, whether `tell_owner` is offered, and how long the agent's own instructions say to sleep ("sleep 60
# seconds", "wake for `spike`"). Text in marked blocks picks no call: it is passed on as text.


_TELL: Final = "tell_owner"
_SLEEP_SECONDS: Final = 300
_MAX_SLEEP_SECONDS: Final = 86_400
_TEXT_CHARS: Final = 3_000
_MAX_WAKE_NAMES: Final = 10
_SLEEP: Final = re.compile(r"\bsleep (?:for )?([0-9]{1,6}) seconds\b", re.IGNORECASE)
_WAKE: Final = re.compile(r"\bwake (?:early )?for ((?:`[\w.-]{1,64}`(?:, | and )?)+)", re.IGNORECASE)
_NAME: Final = re.compile(r"`([\w.-]{1,64})`")


def is_loop_turn(request: ModelRequest) -> bool:
    """Only in a turn of a loop is yield offered."""
    return YIELD in _offered(request)


def answer_turn(request: ModelRequest) -> tuple[str, tuple[RequestedCall, ...]]:
    """Return the text and the calls of a reply within `max_tokens`; the last call ends the turn."""
    rules = "\n".join(_text(message) for message in request.messages if message.get("role") == "system")
    alerts = [] if _has_acted(request.messages) else _alerts(request.messages)
    count = f"{len(alerts)} alerts" if len(alerts) != 1 else "1 alert"
    sleep = (
        min(int(found[1]), _MAX_SLEEP_SECONDS) if (found := _SLEEP.search(rules)) and int(found[1]) else _SLEEP_SECONDS
    )
    wakes = [name for part in _WAKE.findall(rules) for name in _NAME.findall(part)][:_MAX_WAKE_NAMES]
    reason = f"{count}; by rule, without understanding them"
    ending = _call(YIELD, mode="sleep", sleep=sleep, wake_early_if=wakes, reason=reason)
    text = f"{count.capitalize()}. The rules say: sleep {sleep} seconds. ({DESCRIPTION})"
    if not alerts or _TELL not in _offered(request):
        return text, (ending,)
    shown = "\n".join(alerts)[:_TEXT_CHARS]
    while True:
        telling = _call(_TELL, title=f"{count} for the agent", text=f"{shown}\n\nPassed on by rule ({DESCRIPTION}).")
        if not shown or turn_tokens(text, (telling, ending)) <= request.max_tokens:
            return text, (telling, ending)
        shown = shown[: len(shown) // 2]


def turn_tokens(text: str, calls: Sequence[RequestedCall]) -> int:
    return count_tokens(text) + sum(count_tokens(call.name) + count_tokens(call.arguments) for call in calls)


def _call(name: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(f"offline_{name}", name, json.dumps(arguments, ensure_ascii=False))


def _offered(request: ModelRequest) -> set[str]:
    return {str((tool.get("function") or {}).get("name")) for tool in request.tools}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _alerts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the alerts that this turn is shown."""
    blocks = [block for message in messages if message.get("role") == "user" for block in parse_blocks(_text(message))]
    return [line for block in blocks if block.kind == "alerts" for line in block.text.splitlines() if line.strip()]


def _has_acted(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this turn has made calls already, so that it only ends."""
    shown = [place for place, message in enumerate(messages) if _alerts([message])]
    return bool(shown) and any(message.get("role") == "tool" for message in messages[shown[-1] :])


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
