"""Turns verdicts into the JSON of an analysis, and fits it into the tokens that were asked for.

A token is counted as four bytes of UTF-8, rounded up. What does not fit is left out finding by finding, the least
severe first, so that the text stays whole JSON.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.providers.offline.offline_checks import DEVIATES, MISSING, Verdict

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
