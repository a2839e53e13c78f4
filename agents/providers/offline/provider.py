"""The built-in model provider: rule-based text matching that says so. Deterministic; no network, no clock, no chance.

It reads the marked blocks of a request: `document` is what to check, `playbook` and `skill` what to check it against.
A `goal` is beyond it, and it says so; documents that come with one are still searched for markings of privilege.
Text outside of a playbook or skill block gives it no instructions.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agents.definitions.playbooks import Position, Rule, parse_playbook, parse_rules
from agents.enums import Purpose
from agents.providers.base import ProviderError
from agents.providers.offline.other_purposes import (
    DESCRIPTION,
    OTHER_PURPOSES,
    answer_turn,
    count_tokens,
    first_that_fits,
    is_loop_turn,
    shortened,
    turn_tokens,
)
from agents.providers.offline.text import Document, looks_english, words_of
from agents.providers.offline.verdicts import (
    DEVIATES,
    MISSING,
    Matcher,
    Verdict,
    check_position,
    check_rule,
    is_checkable,
)
from agents.text.blocks import Block, parse_blocks
from agents.types import ModelReply, ModelRequest, Usage

UNDECIDED = "undecided"
NO_GOALS = (
    "That takes a language model: the offline analyst compares texts with rules, and does nothing else. Configure a "
    "model, or ask for a playbook or a skill over a document or a collection."
)
NO_DOCUMENT = "No document was sent in a marked block: nothing was checked."
NO_RULES = "No playbook position and no checkable rule was sent in a marked block: nothing was checked."
EMPTY = "The document holds no words: nothing could be checked."
FOREIGN = "The document does not look like English, the only language that the rules read: silence here means nothing."
CUT_OFF = "The document was cut off before its end: what follows was not checked."
MAX_DOCUMENT_CHARS = 1_000_000
_WANTED_CHARS = 240
_MAX_MARKINGS = 10
_PATTERN_KIND = "playbook_deviation"
_TITLES = {DEVIATES: "deviates from the standard", MISSING: "not found in the document"}
_MOST_SEVERE = {"critical", "high", "severe", "blocker"}
_SEVERE = {"warn", "warning", "medium", "major"}

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
    """One finding, with its exact place in its document."""

    title: str
    severity: str
    content: str
    document_id: str
    quote: str = ""
    start: int = 0
    end: int = 0
    position: str = ""
    verdict: str = UNDECIDED


@dataclass
class Analysis:
    findings: list[Finding] = field(default_factory=list)
    privilege: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class OfflineProvider:
    """Answers every purpose but embeddings by rules. The answer depends on the request alone."""

    name = "offline"

    def complete(self, request: ModelRequest) -> ModelReply:
        if request.purpose == Purpose.EMBEDDING:
            raise ProviderError("The offline provider makes no embeddings: configure a model.", contacted=False)
        texts = list(_texts(request))
        sent_tokens = sum(map(count_tokens, texts))
        if is_loop_turn(request):
            text, calls = answer_turn(request)
            return ModelReply(text, Usage(sent_tokens, turn_tokens(text, calls)), "tool_use", self.name, calls=calls)
        answer = OTHER_PURPOSES.get(request.purpose, _answer_analysis)
        text, is_whole = answer(texts, request.max_tokens)
        usage = Usage(sent_tokens, count_tokens(text))
        return ModelReply(text, usage, "end_turn" if is_whole else "max_tokens", self.name)


def _texts(request: ModelRequest) -> Iterator[str]:
    """The texts of a request's messages, whether a content is one text or a list of parts."""
    for message in request.messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else [content]:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text


# --- Checking documents ---


def _answer_analysis(texts: list[str], max_tokens: int) -> tuple[str, bool]:
    blocks = [block for text in texts for block in parse_blocks(text)]
    documents = [block for block in blocks if block.kind == "document"]
    has_goal = any(block.kind == "goal" for block in blocks)
    positions = [one for block in blocks if block.kind == "playbook" for one in parse_playbook(block.text).positions]
    rule_sets = [parse_rules(block.text) for block in blocks if block.kind == "skill"]
    rules = [rule for read in rule_sets for rule in read.rules if is_checkable(rule)]
    analysis = Analysis()
    if has_goal:
        analysis.findings.append(Finding("The goal was not worked towards", "warn", NO_GOALS, ""))
    for read in rule_sets:
        unread = [*read.ignored, *(f"{rule.form} {rule.text}" for rule in read.rules if not is_checkable(rule))]
        analysis.notes += [f"Rule not understood, and not checked: {line}" for line in unread]
    if documents or positions or rules or not has_goal:  # with a goal alone nothing was to be checked
        analysis.notes += [NO_DOCUMENT] * (not documents) + [NO_RULES] * (not positions and not rules)
    analysis.privilege = list(dict.fromkeys(marking for block in documents for marking in markings(block.text)))
    if positions or rules:
        for number, block in enumerate(documents, 1):
            name = block.attributes.get("id", f"document-{number}")
            for finding, kind in _check_document(block, name, positions, rules):
                analysis.counts[kind] += 1
                analysis.findings += [finding] if finding else []
    return render_analysis(analysis, max_tokens=max_tokens)


def _check_document(
    block: Block, name: str, positions: list[Position], rules: list[Rule]
) -> Iterator[tuple[Finding | None, str]]:
    """Each verdict on one document, with its finding, if any."""
    document = Document(block.text[:MAX_DOCUMENT_CHARS])
    if not document.words:
        yield Finding("Empty document", "info", EMPTY, name), UNDECIDED
        return
    if block.truncated or len(block.text) > MAX_DOCUMENT_CHARS:
        yield Finding("Document cut off", "info", CUT_OFF, name), UNDECIDED
    if not document.is_english:
        yield Finding("Document not in English", "info", FOREIGN, name), UNDECIDED
    for verdict, needs_english in _verdicts(Matcher(document), positions, rules):
        is_shown = verdict.kind == DEVIATES and verdict.start < verdict.end
        if needs_english and not document.is_english and not is_shown:
            yield None, UNDECIDED
        else:
            finding = _finding(verdict, name, block.text) if verdict.kind in _TITLES else None
            yield finding, verdict.kind


def _verdicts(matcher: Matcher, positions: list[Position], rules: list[Rule]) -> Iterator[tuple[Verdict, bool]]:
    """Verdicts, each with whether it takes a document in English: phrases are found in any language."""
    for position in positions:
        only_phrases = not position.standard and (position.must_contain or position.must_not_contain)
        yield (
            check_position(matcher, position),
            not only_phrases and _is_english(f"{position.issue} {position.standard}"),
        )
    for rule in rules:
        yield check_rule(matcher, rule), not rule.phrases and _is_english(rule.text)


def _is_english(text: str) -> bool:
    return looks_english(word.text for word in words_of(text))


def _finding(verdict: Verdict, document_id: str, text: str) -> Finding:
    return Finding(
        title=f"{verdict.label}: {_TITLES[verdict.kind]}",
        severity=verdict.severity,
        content=f"Rule-based check: {verdict.why}. Asked for: {shortened(verdict.wanted, _WANTED_CHARS)}",
        document_id=document_id,
        quote=text[verdict.start : verdict.end],
        start=verdict.start,
        end=verdict.end,
        position=verdict.label,
        verdict=verdict.kind,
    )


def markings(text: str) -> list[str]:
    """Return the markings of privilege or secrecy in a text; each once, the first ten."""
    found = sorted(
        (match.start(), match[0].strip()) for pattern in (_STAMP, _MARKING) for match in pattern.finditer(text)
    )
    return list(dict.fromkeys(marking for _, marking in found))[:_MAX_MARKINGS]


# --- The reply ---


def render_analysis(analysis: Analysis, *, max_tokens: int) -> tuple[str, bool]:
    """Return the reply as whole JSON, and whether it is complete.

    The most severe findings come first and are the last to be left out.
    """
    findings = sorted(analysis.findings, key=_rank)
    whole = _json(analysis, findings)
    if count_tokens(whole) <= max_tokens:
        return whole, True
    sizes = range(len(findings))
    fitting = bisect_right(sizes, max_tokens, key=lambda number: count_tokens(_json(analysis, findings[:number])))
    if fitting:
        return _json(analysis, findings[: fitting - 1]), False
    return first_that_fits(['{"findings": []}', "{}"], max_tokens)[0], False


def _rank(finding: Finding) -> int:
    severity = finding.severity.lower()
    return 0 if severity in _MOST_SEVERE else 1 if severity in _SEVERE else 2


def _json(analysis: Analysis, findings: Sequence[Finding]) -> str:
    counts = dict(sorted(analysis.counts.items()))
    answer: dict[str, Any] = {
        "findings": [asdict(finding) for finding in findings],
        "suggested_memories": [],
        "suggested_precedents": _precedents(findings),
        "privilege_concerns": analysis.privilege,
        "scope_concerns": [],
        "analyst": {"name": "offline", "what_it_is": DESCRIPTION, "verdicts": counts, "notes": analysis.notes},
    }
    return json.dumps(answer, ensure_ascii=False)


def _precedents(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """One for each position that was deviated from, worded alike in every document, so that recurrences add up."""
    positions = dict.fromkeys(finding.position for finding in findings if finding.verdict == DEVIATES)
    return [{"pattern_kind": _PATTERN_KIND, "summary": f"{position}: {_TITLES[DEVIATES]}"} for position in positions]
