"""The built-in model provider: rule-based text matching that says so. Deterministic; no network, no clock, no chance.

It reads the marked blocks of a request: `document` is what to check, `playbook` and `skill` what to check it against.
A `goal` is beyond it, and it says so; documents that come with one are still searched for markings of privilege.
Text outside of a playbook or skill block gives it no instructions.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agents.definitions.playbooks import PlaybookText, Position, Rule, parse_playbook, parse_rules
from agents.enums import Purpose
from agents.providers.base import Chunk, ProviderError, ended_once
from agents.providers.offline.document_kind import Shared, foreign_to, with_forbidden_phrase
from agents.providers.offline.other_purposes import (
    DESCRIPTION,
    OTHER_PURPOSES,
    answer_turn,
    count_tokens,
    first_that_fits,
    is_loop_turn,
    turn_tokens,
)
from agents.providers.offline.text import Document
from agents.providers.offline.verdicts import (
    DEVIATES,
    MISSING,
    Matcher,
    Verdict,
    check_position,
    check_rule,
    is_checkable,
    is_phrases_only,
)
from agents.text.blocks import Block, parse_blocks
from agents.text.clean import one_line
from agents.types import ModelReply, ModelRequest, Usage

Finding = dict[str, Any]  # as it stands in the reply

UNDECIDED: Final = "undecided"
UNCHECKED: Final = "unchecked"
NO_GOALS: Final = (
    "That takes a language model: the offline analyst compares texts with rules, and does nothing else. Configure a "
    "model, or ask for a playbook or a skill over a document or a collection."
)
NO_DOCUMENT: Final = "No document was sent in a marked block: nothing was checked."
NO_RULES: Final = "No playbook position and no checkable rule was sent in a marked block: nothing was checked."
EMPTY: Final = "The document holds no words: nothing could be checked."
FOREIGN: Final = (
    "The document does not look like English, the only language that the rules read: silence here means nothing."
)
OTHER_KIND: Final = "Not the kind of document that the playbook is for"
CUT_OFF: Final = "The document was cut off before its end: what follows was not checked."
MAX_DOCUMENT_CHARS = 1_000_000
_WANTED_CHARS: Final = 240
_NAME_CHARS: Final = 120
_MAX_MARKINGS: Final = 10
_TITLES: Final = {DEVIATES: "deviates from the standard", MISSING: "not found in the document"}
_RANKS: Final = {"critical": 0, "warn": 1}  # all others come last

_MARKING: Final = re.compile(
    r"attorney[ -]client (?:privileged?|communication)|attorney work[ -]product|privileged (?:and|&) confidential"
    r"|legal(?:ly)? privileged?|strictly (?:private and )?confidential|without prejudice(?! to)"
    r"|^\W{0,20}(?:CONFIDENTIAL|PRIVILEGED|RESTRICTED|SECRET)\W{0,20}$",
    re.IGNORECASE | re.MULTILINE,
)


class OfflineProvider:
    """Answers every purpose but embeddings by rules. The answer depends on the request alone."""

    name = "offline"

    def stream(self, request: ModelRequest, on_chunk: Callable[[Chunk], None]) -> ModelReply:
        """Reply with the whole text as one chunk."""
        with ended_once(on_chunk) as on_text:
            reply = self._reply(request)
            on_text(reply.text)
            return reply

    def _reply(self, request: ModelRequest) -> ModelReply:
        if request.purpose == Purpose.EMBEDDING:
            raise ProviderError("The offline provider makes no embeddings: configure a model.", contacted=False)
        texts = list(_texts(request))
        sent_tokens = sum(map(count_tokens, texts))
        if is_loop_turn(request):
            text, calls = answer_turn(request)
            return ModelReply(text, Usage(sent_tokens, turn_tokens(text, calls)), "tool_use", calls=calls)
        answer = OTHER_PURPOSES.get(request.purpose, _answer_analysis)
        text, is_whole = answer(texts, request.max_tokens)
        usage = Usage(sent_tokens, count_tokens(text))
        return ModelReply(text, usage, "end_turn" if is_whole else "max_tokens")


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
    playbooks = [parse_playbook(block.text) for block in blocks if block.kind == "playbook"]
    positions = [one for read in playbooks for one in read.positions]
    rule_sets = [parse_rules(block.text) for block in blocks if block.kind == "skill"]
    rules = [rule for read in rule_sets for rule in read.rules if is_checkable(rule)]
    findings = [_remark("The goal was not worked towards", NO_GOALS, "", severity="warn")] if has_goal else []
    is_section = any(block.kind == "section" for block in blocks)
    for number, block in enumerate(documents if positions or rules else (), 1):
        name = block.attributes.get("id", f"document-{number}")
        findings += _check_document(block, name, playbooks, rules, is_section=is_section)
    if closing := [block for block in blocks if block.kind == "sections"]:
        return _render(list(_missing_from(closing[0], positions, rules)), [], [], max_tokens)
    notes = []
    for read in rule_sets:
        unread = [*read.ignored, *(f"{rule.form} {rule.text}" for rule in read.rules if not is_checkable(rule))]
        notes += [f"Rule not understood, and not checked: {line}" for line in unread]
    if documents or positions or rules or not has_goal:  # with a goal alone nothing was to be checked
        notes += [NO_DOCUMENT] * (not documents) + [NO_RULES] * (not positions and not rules)
    privilege = list(dict.fromkeys(marking for block in documents for marking in markings(block.text)))
    if not is_section:
        return _render(findings, privilege, notes, max_tokens)
    seen = list(dict.fromkeys(one["position"] for one in findings if one["verdict"] not in {MISSING, UNDECIDED}))
    return _render([one for one in findings if one["verdict"] != MISSING], privilege, notes, max_tokens, seen=seen)


def _missing_from(block: Block, positions: list[Position], rules: list[Rule]) -> Iterator[Finding]:
    """What no section of a long document deals with: each line names what one of them does."""
    lines = [line.partition(": ")[2] for line in block.text.splitlines()]
    seen = {name.strip() for line in lines for name in line.split("; ")}
    nothing = Matcher(Document(""))
    for verdict in [*(check_position(nothing, one) for one in positions), *(check_rule(nothing, one) for one in rules)]:
        if verdict.kind == MISSING and verdict.label not in seen:
            yield _finding(verdict, block.attributes.get("id", ""), "")


def _check_document(
    block: Block, name: str, playbooks: list[PlaybookText], rules: list[Rule], *, is_section: bool
) -> Iterator[Finding]:
    """Each verdict on one document, or on a section of it. In other languages than English only phrases are decided."""
    document = Document(block.text[:MAX_DOCUMENT_CHARS])
    if not document.words:
        yield _remark("Empty document", EMPTY, name)
        return
    if block.truncated or len(block.text) > MAX_DOCUMENT_CHARS:
        yield _remark("Document cut off", CUT_OFF, name)
    matcher = Matcher(document)
    positions: list[Position] = []
    for playbook in playbooks:
        is_whole = document.is_english and not block.truncated and not is_section
        shared = foreign_to(matcher, playbook.positions) if is_whole else None
        if not shared:
            positions += playbook.positions
            continue
        verdicts = [check_position(matcher, one) for one in playbook.positions]
        unmet = [verdict.label for verdict in verdicts if verdict.kind in _TITLES]
        yield _remark(OTHER_KIND, _other_kind(playbook, shared, unmet), name, severity="warn")
        positions += with_forbidden_phrase(matcher, playbook.positions)
    if not document.is_english:
        yield _remark("Document not in English", FOREIGN, name)
        if is_section:  # what nobody has looked for is not missing
            worded = [check_position(matcher, one) for one in positions if not is_phrases_only(one)]
            yield from ({**_finding(verdict, name, ""), "verdict": UNCHECKED} for verdict in worded)
        positions = [one for one in positions if is_phrases_only(one)]
        rules = [rule for rule in rules if rule.phrases]
    for verdict in [*(check_position(matcher, one) for one in positions), *(check_rule(matcher, one) for one in rules)]:
        yield _finding(verdict, name, block.text)


def _finding(verdict: Verdict, document_id: str, text: str) -> Finding:
    return {
        "title": f"{verdict.label}: {_TITLES.get(verdict.kind, verdict.kind)}",
        "severity": verdict.severity,
        "content": f"Rule-based check: {verdict.why}. Asked for: {one_line(verdict.wanted, _WANTED_CHARS)}",
        "document_id": document_id,
        "quote": text[verdict.start : verdict.end],
        "start": verdict.start,
        "end": verdict.end,
        "position": verdict.label,
        "verdict": verdict.kind,
    }


def _other_kind(playbook: PlaybookText, shared: Shared, unmet: Sequence[str]) -> str:
    """Say why it looks so, and name the positions that it does not meet: the playbook may be the right one."""
    name = one_line(playbook.name, _NAME_CHARS)
    spoken = f"{shared.touched} of the {shared.positions} positions" if shared.touched else "no position"
    return (
        f"Rule-based check: this does not look like a document for the playbook “{name}”. "
        f"It speaks of {spoken}, and holds {shared.found} of the {shared.words} words that the positions are about. "
        f"Check that this is the right playbook for it. If it is, these positions are missing or not met: "
        f"{'; '.join(unmet)}."
    )


def _remark(title: str, content: str, document_id: str, *, severity: str = "info") -> Finding:
    """A finding that decides nothing."""
    place = {"quote": "", "start": 0, "end": 0, "position": "", "verdict": UNDECIDED}
    return {"title": title, "severity": severity, "content": content, "document_id": document_id, **place}


def markings(text: str) -> list[str]:
    """Return the markings of privilege or secrecy in a text; each once, the first ten."""
    found = dict.fromkeys(match[0].strip() for match in _MARKING.finditer(text))
    return list(found)[:_MAX_MARKINGS]


# --- The reply ---


def _render(
    verdicts: Sequence[Finding],
    privilege: list[str],
    notes: list[str],
    max_tokens: int,
    *,
    seen: list[str] | None = None,
) -> tuple[str, bool]:
    """Return the reply as whole JSON, and whether it is complete. A section names what was seen in it.

    The most severe findings come first and are the last to be left out.
    """
    reported = [one for one in verdicts if one["verdict"] in {*_TITLES, UNDECIDED}]
    findings = sorted(reported, key=lambda one: _RANKS.get(one["severity"].lower(), len(_RANKS)))
    counts = dict(sorted(Counter(one["verdict"] for one in verdicts if one["document_id"]).items()))

    def with_first(number: int) -> str:
        answer = {
            "findings": findings[:number],
            **({"seen": seen} if seen is not None else {}),
            "suggested_memories": [],
            "suggested_precedents": _precedents(findings[:number]),
            "privilege_concerns": privilege,
            "scope_concerns": [],
            "analyst": {"name": "offline", "what_it_is": DESCRIPTION, "verdicts": counts, "notes": notes},
        }
        return json.dumps(answer, ensure_ascii=False)

    sizes = range(len(findings) + 1)
    fitting = bisect_right(sizes, max_tokens, key=lambda number: count_tokens(with_first(number)))
    if fitting:
        return with_first(fitting - 1), fitting == len(sizes)
    return first_that_fits(['{"findings": []}', "{}"], max_tokens)[0], False


def _precedents(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """One for each position that was deviated from, worded alike in every document, so that recurrences add up."""
    titles = dict.fromkeys(finding["title"] for finding in findings if finding["verdict"] == DEVIATES)
    return [{"pattern_kind": "playbook_deviation", "summary": title} for title in titles]
