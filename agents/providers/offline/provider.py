"""The built-in model provider: rule-based text matching that says so. Deterministic; no network, no clock, no chance.

It reads the marked blocks of a request: `document` is what to check, `playbook` and `skill` what to check it against.
A `goal` is beyond it, and it says so; documents that come with one are still looked over for markings of privilege.
Text outside of a playbook or skill block instructs it in nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agents.definitions.playbooks import Position, Rule, parse_playbook, parse_rules
from agents.enums import Purpose
from agents.policy.guardrails import YIELD
from agents.providers.base import ProviderError
from agents.providers.offline.matching import (
    CONFLICTS,
    DEVIATES,
    MET,
    MISSING,
    Matcher,
    Verdict,
    check_position,
    check_rule,
    demands,
    is_checkable,
)
from agents.providers.offline.text import Document, figure, looks_english, split, stems_of, words_of
from agents.text.blocks import END, Block, parse_blocks
from agents.types import ModelReply, ModelRequest, RequestedCall, Usage

# --- Turns verdicts into the JSON of an analysis, and fits it into the tokens that were asked for ---
#
# A token is counted as four bytes of UTF-8, rounded up. What does not fit is left out finding by finding, the least
# severe first, so that the text stays whole JSON.


BYTES_PER_TOKEN = 4
QUOTED_IN_CONTENT = 240
MARKINGS = 10
WHAT_IT_IS = "rule-based text matching; not a language model; finds only what its rules describe"
PATTERN = "playbook_deviation"

_RANK = {
    word: rank
    for rank, words in enumerate(("critical high severe blocker", "warn warning medium major"))
    for word in words.split()
}
_TITLES = {DEVIATES: "deviates from the standard", MISSING: "not found in the document"}
_MARKING = re.compile(
    r"(?:attorney|lawyer|solicitor)[ -]client (?:privileged?|communication)"
    r"|attorney work[ -]product|work[ -]product (?:privilege|doctrine)"
    r"|legal(?:ly)? (?:advice )?privileged?|privileged (?:and|&) confidential|confidential (?:and|&) privileged"
    r"|(?:strictly|highly) (?:private and )?confidential"
    r"|without prejudice(?! to)|subject to (?:legal |attorney-client )?privilege",
    re.IGNORECASE,
)
_STAMP = re.compile(
    r"^[^\w\n]{0,20}(?:STRICTLY |HIGHLY )?(?:CONFIDENTIAL|PRIVILEGED|RESTRICTED|SECRET)\b[^\n]{0,60}$", re.MULTILINE
)


@dataclass(frozen=True)
class Finding:
    """One thing to tell, with its exact place in the document that it is about."""

    title: str
    severity: str
    content: str
    document_id: str
    quote: str = ""
    start: int = 0
    end: int = 0
    position: str = ""
    verdict: str = ""

    def shown(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass
class Analysis:
    findings: list[Finding] = field(default_factory=list)
    privilege: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def finding_of(verdict: Verdict, *, document_id: str, text: str) -> Finding:
    content = f"Rule-based check: {verdict.why}. Asked for: {_cut(verdict.wanted)}"
    return Finding(
        title=f"{verdict.label}: {_TITLES[verdict.kind]}",
        severity=verdict.severity,
        content=content,
        document_id=document_id,
        quote=text[verdict.start : verdict.end],
        start=verdict.start,
        end=verdict.end,
        position=verdict.label,
        verdict=verdict.kind,
    )


def markings(text: str) -> list[str]:
    """Markings of privilege or secrecy, as they stand in the text; each once, the first few."""
    found = sorted(
        (match.start(), match[0].strip()) for sought in (_STAMP, _MARKING) for match in sought.finditer(text)
    )
    return list(dict.fromkeys(shown for _, shown in found))[:MARKINGS]


def rendered(analysis: Analysis, *, max_tokens: int) -> tuple[str, bool]:
    """The reply, and whether it is whole. The most severe findings come first and are the last to be left out."""
    findings = sorted(analysis.findings, key=lambda one: _RANK.get(one.severity.lower(), 2))
    whole = _json(analysis, findings)
    if tokens(whole) <= max_tokens:
        return whole, True
    fits, beyond = -1, len(findings)
    while beyond - fits > 1:
        middle = (fits + beyond) // 2
        fits, beyond = (middle, beyond) if _fits(analysis, findings[:middle], max_tokens) else (fits, middle)
    if fits >= 0:
        return _json(analysis, findings[:fits]), False
    return next((text for text in ('{"findings": []}', "{}", "") if tokens(text) <= max_tokens), ""), False


def _fits(analysis: Analysis, findings: Sequence[Finding], max_tokens: int) -> bool:
    return tokens(_json(analysis, findings)) <= max_tokens


def _json(analysis: Analysis, findings: Sequence[Finding]) -> str:
    told: Mapping[str, Any] = {
        "findings": [finding.shown() for finding in findings],
        "suggested_memories": [],
        "suggested_precedents": _precedents(findings),
        "privilege_concerns": analysis.privilege,
        "scope_concerns": [],
        "analyst": {"name": "offline", "what_it_is": WHAT_IT_IS, "verdicts": analysis.counts, "notes": analysis.notes},
    }
    return json.dumps(told, ensure_ascii=False)


def _precedents(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """One for each position that was deviated from, worded alike in every document, so that recurrences add up."""
    positions = dict.fromkeys(finding.position for finding in findings if finding.verdict == DEVIATES)
    return [{"pattern_kind": PATTERN, "summary": f"{position}: {_TITLES[DEVIATES]}"} for position in positions]


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= QUOTED_IN_CONTENT else f"{text[:QUOTED_IN_CONTENT]}…"


# The offline provider's other answers: judging a quote, gating a turn, scoring a reading, and saying what it is.
#
# Each is a small documented rule over the request's own text (docs/offline-analyst.md); none pretends to understand.


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
_CALLED = re.compile(r"^Skill: ([\w.-]{1,64})\((.*)\)$", re.MULTILINE)  # as agents.engine.skills asks
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
    shown = ", ".join(
        f"{key} \u201c{_cut_argument(value)}\u201d" for key, value in list(given.items())[:MOST_ARGUMENTS]
    )
    return f"{shown} and {len(given) - MOST_ARGUMENTS} more" if len(given) > MOST_ARGUMENTS else shown


def _cut_argument(value: object) -> str:
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


# The offline provider in the turns of a loop: it passes alerts on to the owner, and sleeps. By rules, and it says so.
#
# It understands neither the alerts nor the hot state. What it does follows from how the request is built: are there
# alerts, is the skill for telling offered, and how long does the agent's own instruction say to sleep ("sleep 60
# seconds", "wake for `spike`"). What stands in marked blocks picks no call: it is passed on as text.


TELL: Final = "tell_owner"
SLEEP: Final = 300
MOST_SECONDS: Final = 86_400
TEXT_CHARS: Final = 3_000
MOST_NAMES: Final = 10
_SLEEP: Final = re.compile(r"\bsleep (?:for )?([0-9]{1,6}) seconds\b", re.IGNORECASE)
_WAKE: Final = re.compile(r"\bwake (?:early )?for ((?:`[\w.-]{1,64}`(?:, | and )?)+)", re.IGNORECASE)
_NAME: Final = re.compile(r"`([\w.-]{1,64})`")


def takes_turn(request: ModelRequest) -> bool:
    """True in a turn of a loop: only there is yield offered."""
    return YIELD in _offered(request)


def turn(request: ModelRequest) -> tuple[str, tuple[RequestedCall, ...]]:
    """What it says, and the calls that it asks for: the last one ends the turn. It keeps to the tokens it was given."""
    rules = "\n".join(_text(message) for message in request.messages if message.get("role") == "system")
    alerts = [] if _has_acted(request.messages) else _alerts(request.messages)
    told = f"{len(alerts)} alerts" if len(alerts) != 1 else "1 alert"
    sleep = min(int(found[1]), MOST_SECONDS) if (found := _SLEEP.search(rules)) and int(found[1]) else SLEEP
    wakes = [name for part in _WAKE.findall(rules) for name in _NAME.findall(part)][:MOST_NAMES]
    reason = f"{told}; by rule, without understanding them"
    ending = _call(YIELD, mode="sleep", sleep=sleep, wake_early_if=wakes, reason=reason)
    said = f"{told.capitalize()}. The rules say: sleep {sleep} seconds. ({WHAT_IT_IS})"
    if not alerts or TELL not in _offered(request):
        return said, (ending,)
    shown = "\n".join(alerts)[:TEXT_CHARS]
    while True:
        telling = _call(TELL, title=f"{told} for the agent", text=f"{shown}\n\nPassed on by rule ({WHAT_IT_IS}).")
        if not shown or spent(said, (telling, ending)) <= request.max_tokens:
            return said, (telling, ending)
        shown = shown[: len(shown) // 2]


def spent(said: str, calls: Sequence[RequestedCall]) -> int:
    """The tokens of an answer."""
    return tokens(said) + sum(tokens(call.name) + tokens(call.arguments) for call in calls)


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
    """True when this turn has made calls already, and something went wrong: then it only ends."""
    shown = [place for place, message in enumerate(messages) if _alerts([message])]
    return bool(shown) and any(message.get("role") == "tool" for message in messages[shown[-1] :])


UNDECIDED = "undecided"
NO_GOALS = (
    "That takes a language model: the offline analyst compares texts with rules, and does nothing else. Configure a "
    "model, or ask for a playbook or a skill over a document or a collection."
)
NO_DOCUMENT = "No document was sent in a marked block: nothing was checked."
NO_RULES = "No playbook position and no checkable rule was sent in a marked block: nothing was checked."
EMPTY = "The document holds no words: nothing could be checked."
FOREIGN = "The document does not look like English, which is all that the rules can read: silence here means nothing."
CUT_OFF = "The document was cut off before its end: what follows was not checked."
MOST_CHARS = 1_000_000  # of one document


class OfflineProvider:
    """Answers every purpose but embeddings by rules. What it answers depends on the request alone."""

    name = "offline"

    def complete(self, request: ModelRequest) -> ModelReply:
        if request.purpose == Purpose.EMBEDDING:
            raise ProviderError("The offline provider makes no embeddings: configure a model.", contacted=False)
        texts = list(texts_of(request))
        if takes_turn(request):
            said, calls = turn(request)
            usage = Usage(sum(map(tokens, texts)), spent(said, calls))
            return ModelReply(said, usage, "tool_use", self.name, calls=calls)
        aside = _ASIDES.get(request.purpose)
        text, whole = aside(texts, request.max_tokens) if aside else _analysis(texts, request.max_tokens)
        usage = Usage(sum(map(tokens, texts)), tokens(text))
        return ModelReply(text, usage, "end_turn" if whole else "max_tokens", self.name)


_ASIDES: dict[str, Callable[[list[str], int], tuple[str, bool]]] = {
    Purpose.JUDGE: judge,
    Purpose.PRECHECK: precheck,
    Purpose.SIGNAL: signal,
    Purpose.SIMULATION: simulation,
    Purpose.COMPACTION: compaction,
    Purpose.CHAT: chat,
}


def _analysis(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    blocks = [block for text in texts for block in parse_blocks(text)]
    documents = [block for block in blocks if block.kind == "document"]
    analysis = Analysis()
    goal = any(block.kind == "goal" for block in blocks)
    if goal:
        analysis.findings.append(Finding("The goal was not worked towards", "warn", NO_GOALS, "", verdict=UNDECIDED))
    positions = [one for block in blocks if block.kind == "playbook" for one in parse_playbook(block.text).positions]
    rules: list[Rule] = []
    for block in blocks:
        if block.kind == "skill":
            read = parse_rules(block.text)
            rules += filter(is_checkable, read.rules)
            unread = [*read.ignored, *(f"{rule.form} {rule.text}" for rule in read.rules if not is_checkable(rule))]
            analysis.notes += [f"Rule not understood, and not checked: {line}" for line in unread]
    if documents or positions or rules or not goal:  # with a goal alone nothing was to be checked
        analysis.notes += [NO_DOCUMENT] * (not documents) + [NO_RULES] * (not positions and not rules)
    analysis.privilege = list(dict.fromkeys(shown for block in documents for shown in markings(block.text)))
    if documents and (positions or rules):
        counts: Counter[str] = Counter()
        for number, block in enumerate(documents, 1):
            name = block.attributes.get("id", f"document-{number}")
            for finding, kind in _document(block, name, positions, rules):
                counts[kind] += 1
                analysis.findings += [finding] if finding else []
        analysis.counts = dict(sorted(counts.items()))
    return rendered(analysis, max_tokens=max_tokens)


def _document(
    block: Block, name: str, positions: list[Position], rules: list[Rule]
) -> Iterator[tuple[Finding | None, str]]:
    """Each decision on one document, with the finding that it gives rise to, if any."""
    document = Document(block.text[:MOST_CHARS])
    if not document.words:
        yield _undecided(name, "Empty document", EMPTY), UNDECIDED
        return
    if block.truncated or len(block.text) > MOST_CHARS:
        yield _undecided(name, "Document cut off", CUT_OFF), UNDECIDED
    foreign = not document.is_english
    if foreign:
        yield _undecided(name, "Document not in English", FOREIGN), UNDECIDED
    for verdict, english in _verdicts(Matcher(document), positions, rules):
        if foreign and english and not (verdict.kind == DEVIATES and verdict.start < verdict.end):
            yield None, UNDECIDED
        elif verdict.kind in {DEVIATES, MISSING}:
            yield finding_of(verdict, document_id=name, text=block.text), verdict.kind
        else:
            yield None, verdict.kind


def _verdicts(matcher: Matcher, positions: list[Position], rules: list[Rule]) -> Iterator[tuple[Verdict, bool]]:
    """Verdicts, each with whether what was asked for is worded in English."""
    for position in positions:
        wanted = f"{position.issue} {position.standard}"
        only_phrases = not position.standard and (position.must_contain or position.must_not_contain)
        english = not only_phrases and looks_english([word.text for word in words_of(wanted)])
        yield check_position(matcher, position), english
    for rule in rules:
        yield check_rule(matcher, rule), not rule.phrases and looks_english([word.text for word in words_of(rule.text)])


def _undecided(name: str, title: str, content: str) -> Finding:
    return Finding(title, "info", content, name, verdict=UNDECIDED)
