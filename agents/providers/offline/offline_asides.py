"""The offline provider's other answers: judging a quote, gating a turn, scoring a reading, and saying what it is.

Each is a small documented rule over the request's own text (docs/offline-analyst.md); none pretends to understand.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agents.providers.offline.matching import CONFLICTS, MET, Matcher
from agents.providers.offline.offline_demands import demands
from agents.providers.offline.offline_document import Document
from agents.providers.offline.offline_quantities import figure
from agents.providers.offline.offline_reply import BYTES_PER_TOKEN, WHAT_IT_IS, tokens
from agents.providers.offline.text import split, stems_of
from agents.text.blocks import END, Block, parse_blocks
from agents.types import ModelRequest

MATERIAL = 0.05  # a change of a number by less than this share is none
FULL_SCORE_CHANGE = 0.5
SHOWN = 80  # characters of an argument
MOST_ARGUMENTS = 6
NO_FORECAST = "No prediction: the offline analyst reads the call by rule, and foresees nothing."
CHAT = (
    f"I am the offline analyst of lqops: {WHAT_IT_IS}. I cannot hold a conversation. Send a document together with a "
    "playbook or a skill with rules, and I report, with exact quotes, where the document departs from them. "
    "For anything else, configure a language model."
)
_EVIDENCE = ("quote", "source", "evidence", "passage", "document")
_CLAIMED = re.compile(
    r"^[^\w\n]{0,8}(claim|statement|quote|source|evidence|passage)[^\w\n]{0,8}:"
    r"(.+(?:\n(?![^\w\n]{0,8}\w{1,20}[^\w\n]{0,8}:).+)*)",
    re.IGNORECASE | re.MULTILINE,
)
_FIGURE = re.compile(r"(?<![\w.])-?\d+(?:[.,]\d+)*")
_CONDITION = re.compile(
    r"(above|over|more than|greater than|exceed\w{0,20}|at least|>=?|below|under|less than|fewer than|at most|<=?)"
    r"\s*+(?:by\s++)?(?:[^\d\s%-]\s*+)?"
    r"(-?\d++(?:[.,]\d++)*+)\s*+(%|percent)?",
    re.IGNORECASE,
)
_UPWARD = ("above", "over", "more", "greater", "exceed", "at least", ">")
_ARROW = re.compile(r"->|\u2192|=>")
_FROM_TO = re.compile(r"\bfrom ((?:\S+ ){1,4}?)to (.+)", re.IGNORECASE)
_PAIRS = (("old", "new"), ("before", "after"), ("from", "to"))
_GRAVE = re.compile(
    r"\b(delet\w*|remov\w*|drop\w*|overwrit\w*|send\w*|publish\w*|pay\w*|transfer\w*|cancel\w*|revok\w*|purg\w*|execut\w*)",
    re.IGNORECASE,
)
_CALLED = re.compile(r"^Skill: ([\w.-]{1,64})\((.*)\)$", re.MULTILINE)  # as agents.engine.simulation asks
_NOTHING = re.compile(
    r"\s*+(?:no(?:thing|ne)?(?: has)?(?: changed| changes?| difference)?|unchanged|\{\}|\[\])?[\s.]*+", re.IGNORECASE
)


def texts_of(request: ModelRequest) -> Iterator[str]:
    """The texts of a request's messages, whether a content is one text or a list of parts."""
    for message in request.messages:
        content = message.get("content")
        parts = content if isinstance(content, list | tuple) else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text


def judge(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """Whether a quote supports a claim: each sentence of the claim has to be found in it, with the same figures."""
    claim, quote = _claim_and_quote(texts)
    wanted = [replace(one, quantities=tuple(replace(q, bound="") for q in one.quantities)) for one in demands(claim)]
    matcher = Matcher(Document(quote))
    outcomes = [matcher.look_up(one) for one in wanted]
    scores = [0.0 if one.kind == CONFLICTS else one.coverage / (1 if one.kind == MET else 2) for one in outcomes]
    supported = bool(outcomes) and all(one.kind == MET for one in outcomes)
    why = next((one.why for one in outcomes if one.why), "") or (
        "the quote says it in like words"
        if supported
        else "the quote does not say it"
        if wanted
        else "no claim and quote were sent"
    )
    score = round(min(1.0, sum(scores) / max(1, len(scores))), 2)
    told: dict[str, Any] = {"supported": supported, "score": score}
    return _first_that_fits(
        [json.dumps({**told, "why": f"{why} ({WHAT_IT_IS})"}, ensure_ascii=False), json.dumps(told)], max_tokens
    )


def _claim_and_quote(texts: list[str]) -> tuple[str, str]:
    """From blocks, else from a JSON object, else from labelled lines; empty texts if there are none."""
    found: dict[str, str] = {}
    for text in texts:
        blocks = parse_blocks(text)
        found |= {block.kind: block.text for block in blocks}
        if not blocks:
            found |= {label.lower(): said.strip() for label, said in _CLAIMED.findall(text)}
            found |= {key: said for key, said in _json_object(text).items() if isinstance(said, str)}
    claim = found.get("claim") or found.get("statement", "")
    return claim, next((found[kind] for kind in _EVIDENCE if kind in found), "")


def _json_object(text: str) -> dict[str, Any]:
    start, end = text.find("{"), text.rfind("}")
    try:
        read = json.loads(text[start : end + 1]) if 0 <= start < end else {}
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def precheck(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """`yes` if something material changed: any text, or a number by at least 5 %."""
    data = _data(texts)
    pairs = list(_json_pairs(_json_object(data))) or list(_line_pairs(data))
    return _first_that_fits(["yes" if any(_is_material(*pair) for pair in pairs) else "no"], max_tokens)


def _data(texts: list[str]) -> str:
    """What the blocks of the request hold, or its last text if it has none."""
    blocks = _blocks(texts)
    return "\n".join(block.text for block in blocks) if blocks else (texts[-1] if texts else "")


def _blocks(texts: list[str]) -> list[Block]:
    return [block for text in texts for block in parse_blocks(text)]


def _json_pairs(read: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for value in read.values():
        if isinstance(value, list) and len(value) == 2:  # noqa: PLR2004
            yield str(value[0]), str(value[1])
        elif isinstance(value, Mapping):
            named = next(((value[one], value[other]) for one, other in _PAIRS if one in value and other in value), None)
            if named:
                yield str(named[0]), str(named[1])
            else:
                yield from _json_pairs(value)
        else:
            yield "", str(value)


def _line_pairs(data: str) -> Iterator[tuple[str, str]]:
    """Before and after, from lines `name: a -> b`, `from a to b`, or `- name: a` and `+ name: b`."""
    sides: dict[str, dict[str, str]] = {"-": {}, "+": {}}
    for raw in data.splitlines():
        line = " ".join(raw.split())
        if line[:1] in sides:
            name, marked, value = re.sub("=", ":", line[1:], count=1).partition(":")
            sides[line[0]][name.strip() if marked else ""] = (value if marked else name).strip()
        elif arrow := _ARROW.search(line):
            yield line[: arrow.start()].rpartition(":")[2].strip(), line[arrow.end() :].strip()
        elif moved := _FROM_TO.search(line):
            yield moved[1].strip(), moved[2].strip()
    for key in dict.fromkeys([*sides["-"], *sides["+"]]):
        yield sides["-"].get(key, ""), sides["+"].get(key, "")


def _is_material(before: str, after: str) -> bool:
    one, other = _FIGURE.search(before), _FIGURE.search(after)
    if one and other and _FIGURE.sub("", before).strip() == _FIGURE.sub("", after).strip():
        return _change(_number(one[0]), _number(other[0])) >= MATERIAL
    before, after = " ".join(before.split()), " ".join(after.split())
    return before != after and not (_NOTHING.fullmatch(before) and _NOTHING.fullmatch(after))


def _change(before: float, after: float) -> float:
    return abs(after - before) / max(abs(before), 1e-9)


def _number(shown: str) -> float:
    return -figure(shown[1:]) if shown.startswith("-") else figure(shown)


def signal(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """A score from 0 to 1: by the prompt's own threshold, else by how far the numbers moved, else by shared words."""
    data = _data(texts)
    prompt = "\n".join(_outside(text) for text in texts) if _blocks(texts) else "\n".join(texts[:-1])
    numbers = [_number(found[0]) for found in _FIGURE.finditer(data)]
    condition = _CONDITION.search(prompt)
    if condition and numbers:
        score = float(_holds(condition, numbers))
    elif len(numbers) > 1:
        score = min(1.0, _change(numbers[0], numbers[-1]) / FULL_SCORE_CHANGE)
    else:
        asked = stems_of(prompt)
        score = len(asked & stems_of(data)) / max(1, len(asked))
    return _first_that_fits([f"{score:.2f}"], max_tokens)


def _outside(text: str) -> str:
    """The text of a message without what its blocks hold: instructions come from there only."""
    kept, place = [], 0
    for block in parse_blocks(text):
        kept.append(text[place : text.rindex("<<<", 0, block.start)])
        place = block.end + len(f"\n<<<{END} {block.nonce}>>>")
    return "".join([*kept, text[place:]])


def _holds(condition: re.Match[str], numbers: Sequence[float]) -> bool:
    """The last number against the threshold; against a percentage, its change from the first one if there are two."""
    limit, value = _number(condition[2]), numbers[-1]
    if condition[3] and len(numbers) > 1:
        value = 100 * _change(numbers[0], numbers[-1])
    words = condition[1].lower()
    same = value == limit and words.startswith(("at ", ">=", "<="))
    return same or (value > limit if words.startswith(_UPWARD) else value < limit)


def simulation(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """The call itself, in a sentence, and which of its words are hard to undo. It foresees nothing, and says so."""
    called = next((found for text in texts for found in _CALLED.finditer(text)), None)
    if called is None:
        return _fit(NO_FORECAST, max_tokens)
    name, arguments = called[1], called[2]
    grave = sorted({found.lower() for found in _GRAVE.findall(f"{name.replace('_', ' ')} {arguments}")})
    undone = f" Words for what may not be undone: {', '.join(grave[:6])}." if grave else ""
    return _fit(f"{NO_FORECAST} It would run {name} with {_given(arguments)}.{undone}", max_tokens)


def _given(arguments: str) -> str:
    given = _json_object(arguments)
    if not given:
        return "nothing" if arguments == "{}" else "more than can be told here"
    shown = ", ".join(f"{key} \u201c{_cut(value)}\u201d" for key, value in list(given.items())[:MOST_ARGUMENTS])
    return f"{shown} and {len(given) - MOST_ARGUMENTS} more" if len(given) > MOST_ARGUMENTS else shown


def _cut(value: object) -> str:
    said = " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split())
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}…"


def compaction(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """The first sentence of each message, in order: an extract, not a summary."""
    firsts = (text[slice(*_first(text))] for text in texts if text.strip())
    return _fit("\n".join(["Extract by rule (first sentence of each message):", *firsts]), max_tokens)


def _first(text: str) -> tuple[int, int]:
    first = split(text)[0]
    return first.start, first.end


def chat(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    return _fit(CHAT, max_tokens)


def _fit(text: str, max_tokens: int) -> tuple[str, bool]:
    raw = text.encode("utf-8", "surrogatepass")
    if tokens(text) <= max_tokens:
        return text, True
    return raw[: max(0, max_tokens) * BYTES_PER_TOKEN].decode("utf-8", "ignore"), False


def _first_that_fits(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    """The fullest form that fits; an answer that is cut in the middle would be another answer."""
    return next(((text, text == texts[0]) for text in texts if tokens(text) <= max_tokens), ("", False))
