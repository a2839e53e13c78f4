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
from agents.providers.offline.text import Document, figure, split_sentences, stems_of
from agents.providers.offline.verdicts import CONFLICTS, MET, Matcher, requirements_of
from agents.text.blocks import parse_blocks
from agents.types import ModelRequest, RequestedCall
from audit.repetition import possessive

DESCRIPTION: Final = "rule-based text matching; not a language model; finds only what its rules describe"
_BYTES_PER_TOKEN: Final = 4

Reply = tuple[str, bool]  # the text, and whether it is whole


# --- Tokens: four bytes of UTF-8, rounded up ---


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def cut_to_fit(text: str, max_tokens: int) -> Reply:
    """Return the text, cut at the last token that fits, and whether it is whole."""
    if count_tokens(text) <= max_tokens:
        return text, True
    raw = text.encode("utf-8", "surrogatepass")
    return raw[: max(0, max_tokens) * _BYTES_PER_TOKEN].decode("utf-8", "ignore"), False


def first_that_fits(texts: list[str], max_tokens: int) -> Reply:
    """Return the fullest form that fits, and whether it is the first; part of an answer would be another answer."""
    return next(((text, text == texts[0]) for text in texts if count_tokens(text) <= max_tokens), ("", False))


# --- A turn of a loop: alerts are passed on to the owner, and the agent sleeps ---
#
# The reply follows from how the request is built: whether there are alerts, whether `tell_owner` is offered, and how
# long the agent's own instructions say to sleep ("sleep 60 seconds", "wake for `spike`"). Text in marked blocks picks
# no call: it is passed on as text.

_TELL: Final = "tell_owner"
_SLEEP_SECONDS: Final = 300
_MAX_SLEEP_SECONDS: Final = 86_400
_TEXT_CHARS: Final = 3_000
_MAX_WAKE_NAMES: Final = 10
_SLEEP: Final = re.compile(r"\bsleep (?:for )?([0-9]{1,6}) seconds\b", re.IGNORECASE)
_WAKE: Final = re.compile(r"\bwake (?:early )?for ((?:`[\w.-]{1,64}`(?:, | and )?)+)", re.IGNORECASE)


def is_loop_turn(request: ModelRequest) -> bool:
    """Only in a turn of a loop is yield offered."""
    return YIELD in _offered(request)


def answer_turn(request: ModelRequest) -> tuple[str, tuple[RequestedCall, ...]]:
    """Return the text and the calls of a reply within `max_tokens`; the last call ends the turn."""
    rules = "\n".join(_text(message) for message in request.messages if message.get("role") == "system")
    alerts = _new_alerts(request.messages)
    count = f"{len(alerts)} alerts" if len(alerts) != 1 else "1 alert"
    found = _SLEEP.search(rules)
    sleep = min(int(found[1]), _MAX_SLEEP_SECONDS) if found else 0
    wakes = [name for names in _WAKE.findall(rules) for name in re.findall(r"[\w.-]+(?=`)", names)]
    ending = _call(
        YIELD,
        mode="sleep",
        sleep=sleep or _SLEEP_SECONDS,
        wake_early_if=wakes[:_MAX_WAKE_NAMES],
        reason=f"{count}; by rule, without understanding them",
    )
    text = f"{count.capitalize()}. The rules say: sleep {sleep or _SLEEP_SECONDS} seconds. ({DESCRIPTION})"
    if not alerts or _TELL not in _offered(request):
        return text, (ending,)
    listed = "\n".join(alerts)[:_TEXT_CHARS]
    while True:
        message = _call(_TELL, title=f"{count} for the agent", text=f"{listed}\n\nPassed on by rule ({DESCRIPTION}).")
        if not listed or turn_tokens(text, (message, ending)) <= request.max_tokens:
            return text, (message, ending)
        listed = listed[: len(listed) // 2]


def turn_tokens(text: str, calls: Sequence[RequestedCall]) -> int:
    return count_tokens(text) + sum(count_tokens(call.name) + count_tokens(call.arguments) for call in calls)


def _call(name: str, **arguments: Any) -> RequestedCall:
    return RequestedCall(f"offline_{name}", name, json.dumps(arguments, ensure_ascii=False))


def _offered(request: ModelRequest) -> set[str]:
    return {str((tool.get("function") or {}).get("name")) for tool in request.tools}


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _new_alerts(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of the alerts that this turn shows; none if it has made calls since, so that it only ends."""
    alerts: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            alerts = []
        elif message.get("role") == "user":
            blocks = parse_blocks(_text(message))
            lines = [line for one in blocks if one.kind == "alerts" for line in one.text.splitlines()]
            alerts += [_readable(line) for line in lines if line.strip()]
    return alerts


def _readable(line: str) -> str:
    """The line of an alert with its text as it was before it became JSON; a line that was cut stays as it is."""
    name, colon, text = line.partition(": ")
    try:
        return " ".join(f"{name}{colon}{json.loads(text)}".split())
    except ValueError:
        return line


# --- One question, one text ---

MATERIAL_CHANGE: Final = 0.05  # a number that changes by a smaller share is unchanged
FULL_SCORE_CHANGE: Final = 0.5
NO_FORECAST: Final = "No prediction: the offline analyst reads the call by rule, and foresees nothing."
CHAT: Final = (
    f"I am the offline analyst of lqops: {DESCRIPTION}. I cannot hold a conversation. Send a document together with a "
    "playbook or a skill with rules, and I report, with exact quotes, where the document departs from them. "
    "For anything else, configure a language model."
)
_NUMBER: Final = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*")
_THRESHOLD: Final = re.compile(
    r"(?:(?P<up>above|over|more than|greater than|exceed\w{0,20}|at least|>=?)"
    r"|below|under|less than|fewer than|at most|<=?)\s*+"
    r"(?P<limit>-?\d++" + possessive(r"[.,]\d++") + r")\s*+(?P<percent>%|percent)?",
    re.IGNORECASE,
)
_CALL: Final = re.compile(r"^Skill: ([\w.-]{1,64}\(.*\))$", re.MULTILINE)  # as agents.engine.skills asks
_CALL_CHARS: Final = 400


def judge(texts: list[str], max_tokens: int) -> Reply:
    """Whether the quote supports the claim: it says each sentence of the claim, with the same figures."""
    blocks = {block.kind: block.text for text in texts for block in parse_blocks(text)}
    matcher = Matcher(Document(blocks.get("quote", "")))
    outcomes = []
    for claim in requirements_of(blocks.get("claim", "")):
        exact = tuple(replace(quantity, bound="") for quantity in claim.quantities)
        outcomes.append(matcher.look_up(replace(claim, quantities=exact)))
    scores = [0.0 if one.kind == CONFLICTS else one.coverage / (1 if one.kind == MET else 2) for one in outcomes]
    is_supported = bool(outcomes) and all(one.kind == MET for one in outcomes)
    why = "the quote says it in like words" if is_supported else "the quote does not say it"
    why = next((one.why for one in outcomes if one.why), why)
    answer: dict[str, Any] = {"supported": is_supported, "score": round(sum(scores) / max(1, len(scores)), 2)}
    full = json.dumps({**answer, "why": f"{why} ({DESCRIPTION})"}, ensure_ascii=False)
    return first_that_fits([full, json.dumps(answer)], max_tokens)


def precheck(texts: list[str], max_tokens: int) -> Reply:
    """`yes` if something material changed in lines `name: old -> new`: any text, or a number by at least 5 %."""
    changes = [line.partition("->") for line in _data(texts).splitlines() if "->" in line]
    is_material = any(_is_material(old.partition(":")[2], new) for old, _, new in changes)
    return first_that_fits(["yes" if is_material else "no"], max_tokens)


def _is_material(old: str, new: str) -> bool:
    before = _numbers(old)
    after = _numbers(new)
    if before and after and _NUMBER.sub("", old).strip() == _NUMBER.sub("", new).strip():
        return _change(before[0], after[0]) >= MATERIAL_CHANGE
    return old.split() != new.split()


def signal(texts: list[str], max_tokens: int) -> Reply:
    """A score from 0 to 1: by the prompt's own threshold, else by how far the numbers moved, else by shared words."""
    data = _data(texts)
    prompt = "\n".join(text.partition("<<<")[0] for text in texts)
    numbers = _numbers(data)
    threshold = _THRESHOLD.search(prompt)
    if threshold and numbers:
        score = float(_is_passed(threshold, numbers))
    elif len(numbers) > 1:
        score = min(1.0, _change(numbers[0], numbers[-1]) / FULL_SCORE_CHANGE)
    else:
        asked = stems_of(prompt)
        score = len(asked & stems_of(data)) / max(1, len(asked))
    return first_that_fits([f"{score:.2f}"], max_tokens)


def _is_passed(threshold: re.Match[str], numbers: Sequence[float]) -> bool:
    """The last number against the threshold; against a percentage, its change from the first one if there are two."""
    limit, value = _number(threshold["limit"]), numbers[-1]
    if threshold["percent"] and len(numbers) > 1:
        value = 100 * _change(numbers[0], numbers[-1])
    if value == limit:
        return threshold[0].lower().startswith(("at ", ">=", "<="))
    return (value > limit) == bool(threshold["up"])


def _data(texts: list[str]) -> str:
    return "\n".join(block.text for text in texts for block in parse_blocks(text))


def _change(before: float, after: float) -> float:
    return abs(after - before) / max(abs(before), 1e-9)


def _numbers(text: str) -> list[float]:
    return [_number(found) for found in _NUMBER.findall(text)]


def _number(digits: str) -> float:
    return -figure(digits[1:]) if digits.startswith("-") else figure(digits)


def simulation(texts: list[str], max_tokens: int) -> Reply:
    """The beginning of the call itself. It foresees nothing, and says so."""
    call = next((found[1] for text in texts for found in _CALL.finditer(text)), "")
    would = f" It would run {call[:_CALL_CHARS]}{'…' if len(call) > _CALL_CHARS else ''}" if call else ""
    return cut_to_fit(f"{NO_FORECAST}{would}", max_tokens)


def compaction(texts: list[str], max_tokens: int) -> Reply:
    """The first sentence of each message, in order: an extract, not a summary."""
    firsts = ((text, split_sentences(text)[0]) for text in texts if text.strip())
    extract = (text[first.start : first.end] for text, first in firsts)
    return cut_to_fit("\n".join(["Extract by rule (first sentence of each message):", *extract]), max_tokens)


def chat(texts: list[str], max_tokens: int) -> Reply:
    return cut_to_fit(CHAT, max_tokens)


OTHER_PURPOSES: Final[Mapping[str, Callable[[list[str], int], Reply]]] = {
    Purpose.JUDGE: judge,
    Purpose.PRECHECK: precheck,
    Purpose.SIGNAL: signal,
    Purpose.SIMULATION: simulation,
    Purpose.COMPACTION: compaction,
    Purpose.CHAT: chat,
}
