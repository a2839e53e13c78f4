"""Playbooks and rules as text: Markdown for people, models and the offline analyst, and YAML files. Pure.

Rendering is deterministic, and reading a rendered text gives the same values. The Markdown readers never raise. Errors
in YAML name key and line: `positions[2].severity: expected text; got a list (line 14)`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final

import yaml
from pydantic import AfterValidator

from agents.definitions import values
from agents.definitions.loader import lines_of, plain_values, require_valid
from agents.definitions.schema import Section
from agents.definitions.values import expected, listed
from agents.text.strict_yaml import read_yaml
from audit.redaction import redact

UNNAMED = "(unnamed)"
DEFAULT_SEVERITY = "warn"


@dataclass(frozen=True)
class Position:
    """The wanted text on one issue, and the acceptable fallbacks."""

    issue: str
    severity: str = DEFAULT_SEVERITY
    standard: str = ""
    fallbacks: tuple[str, ...] = ()
    guidance: str = ""
    must_contain: tuple[str, ...] = ()
    must_not_contain: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlaybookText:
    """A playbook as it is rendered and parsed."""

    name: str
    version: int
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One checkable line of a skill. `form` is a key of FORMS; `phrases` are the quoted phrases of a `mention` form."""

    form: str
    text: str = ""
    phrases: tuple[str, ...] = ()
    severity: str = DEFAULT_SEVERITY


@dataclass(frozen=True)
class RuleSet:
    """The rules of a skill text, and the list items that are no known rule."""

    rules: tuple[Rule, ...] = ()
    ignored: tuple[str, ...] = ()


# --- Forms and patterns ---

# Each form of a rule with its synonyms.
FORMS: Final = {
    "must not mention": ("must not contain", "must not include", "never mention", "do not mention"),
    "must mention": ("must contain", "must include", "mention"),
    "must mention one of": ("must contain one of", "must mention any of", "must mention either"),
    "must not": ("must never", "shall not", "may not", "never"),
    "must": ("shall",),
    "should": (),
    "at least": ("no less than", "not less than", "minimum", "no fewer than"),
    "at most": ("no more than", "not more than", "maximum", "up to"),
}
_FORM_OF = {words: form for form, others in FORMS.items() for words in (form, *others)}
_ANY_FORM = "|".join(sorted(map(re.escape, _FORM_OF), key=len, reverse=True))

_TITLE = re.compile(r"# Playbook: (.*) \(version (\d{1,9})\)")
_ISSUE = re.compile(r"## \d+\. (.*)")
_LABELS: Final = ("Severity", "Standard", "Fallback", "Guidance", "Must contain", "Must not contain")
_LABEL = re.compile(rf"({'|'.join(_LABELS)})(?: \d+)?:(.*)")
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_BULLET = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)")
_PHRASE = re.compile(r"\"([^\"]{1,500})\"|“([^”]{1,500})”|«([^»]{1,500})»")  # bounded, for linear time
_RULES_HEADING = re.compile(r"\b(?:rules?|checks?|checklist|requirements?)\b", re.IGNORECASE)
_RULE = re.compile(rf"(?:\[([^\]]*)\]\s*)?({_ANY_FORM})\b\s*(:?)\s*(.*)", re.IGNORECASE)


# --- Markdown ---


def render_playbook(playbook: PlaybookText) -> str:
    """Return the playbook as Markdown: one section per position, in order."""
    lines = [f"# Playbook: {_line(playbook.name) or UNNAMED} (version {playbook.version})"]
    for number, position in enumerate(playbook.positions, 1):
        lines += ["", f"## {number}. {_line(position.issue) or UNNAMED}", ""]
        lines += [f"Severity: {_line(position.severity) or DEFAULT_SEVERITY}"]
        lines += _prose_lines("Standard", position.standard)
        tiers = [text for text in position.fallbacks if _prose(text)]
        for tier, text in enumerate(tiers, 1):
            lines += _prose_lines(f"Fallback {tier}", text)
        lines += _prose_lines("Guidance", position.guidance)
        lines += _phrase_lines("Must contain", position.must_contain)
        lines += _phrase_lines("Must not contain", position.must_not_contain)
    return "\n".join(lines) + "\n"


def parse_playbook(text: str) -> PlaybookText:
    """Parse a rendered playbook."""
    name, version = UNNAMED, 1
    issues: list[tuple[str, list[str]]] = []
    for line in _lines(text):
        if title := _TITLE.fullmatch(line):
            name, version = title[1], int(title[2])
        elif issue := _ISSUE.fullmatch(line):
            issues.append((issue[1], []))
        elif issues:
            issues[-1][1].append(line)
    return PlaybookText(name, version, tuple(_position(issue, lines) for issue, lines in issues))


def _position(issue: str, lines: Iterable[str]) -> Position:
    """Read the lines of a position: labels, each with its text."""
    texts: dict[str, list[str]] = {label: [] for label in _LABELS}
    label = ""
    for line in lines:
        if found := _LABEL.fullmatch(line):
            label = found[1]
            texts[label].append(found[2].strip())
        elif label:
            texts[label][-1] += "\n" + (line[2:] if line.startswith("> ") else line.removeprefix(">"))
    prose = {label: [_prose(text) for text in found] for label, found in texts.items()}

    def phrases(label: str) -> tuple[str, ...]:
        return tuple(line[3:-1] for text in prose[label] for line in text.split("\n"))

    return Position(
        issue=issue,
        severity="".join(prose["Severity"]) or DEFAULT_SEVERITY,
        standard="".join(prose["Standard"]),
        fallbacks=tuple(prose["Fallback"]),
        guidance="".join(prose["Guidance"]),
        must_contain=phrases("Must contain"),
        must_not_contain=phrases("Must not contain"),
    )


def parse_rules(text: str) -> RuleSet:
    """Return the rules of a skill text: list items under a heading about rules, or anywhere if they have a colon.

    List items under such a heading without a known form are returned as ignored; all other text is skipped.
    """
    rules: list[Rule] = []
    ignored: list[str] = []
    inside = False
    for line in _lines(text):
        if heading := _HEADING.fullmatch(line):
            inside = bool(_RULES_HEADING.search(heading[1]))
        elif item := _BULLET.fullmatch(line):
            rule = _read_rule(item[1].strip(), colon_needed=not inside)
            if rule:
                rules.append(rule)
            elif inside:
                ignored.append(_line(item[1]))
    return RuleSet(tuple(rules), tuple(ignored))


def _read_rule(text: str, *, colon_needed: bool) -> Rule | None:
    found = _RULE.fullmatch(text.replace("**", ""))
    if not found or not found[4].strip() or (colon_needed and ":" not in found[3] + found[4]):
        return None
    form = _FORM_OF[found[2].lower()]
    severity = _line(found[1] or "") or ("info" if form == "should" else DEFAULT_SEVERITY)
    rest = _line(found[4])
    phrases = tuple(_line("".join(groups)) for groups in _PHRASE.findall(rest)) if "mention" in form else ()
    return Rule(form, "" if phrases else rest, tuple(filter(None, phrases)), severity)


def _prose_lines(label: str, text: str) -> list[str]:
    prose = _prose(text)
    return ["", f"{label}:", "", *(f"> {line}" if line else ">" for line in _lines(prose))] if prose else []


def _phrase_lines(label: str, phrases: tuple[str, ...]) -> list[str]:
    named = [_line(phrase) for phrase in phrases if _line(phrase)]
    return ["", f"{label}:", "", *(f'- "{phrase}"' for phrase in named)] if named else []


def _lines(text: str) -> list[str]:
    return re.sub(r"\r\n?", "\n", text).split("\n")


def _prose(text: str) -> str:
    return "\n".join(_lines(text)).strip()


def _line(text: str) -> str:
    return " ".join(text.split())


# --- Limits, for files and for what people enter ---


MAX_POSITIONS: Final = 200
MAX_LISTED: Final = 50
TEXT_CHARS: Final = 20_000


def _without_secret(value: str) -> str:
    """Refuse secrets: masked, a phrase would check for something else."""
    if redact(value) != value:
        raise expected("text without secrets: this looks like one", got="")
    return value


NoSecret: Final = AfterValidator(_without_secret)
Prose = Annotated[str, values.text(TEXT_CHARS, lines=True, needed=False), NoSecret]
Phrases = Annotated[tuple[Prose, ...], listed("texts", MAX_LISTED)]


class PositionKeys(Section):
    """The keys of a position."""

    issue: Annotated[str, values.text(200, lines=True), NoSecret]
    severity: Annotated[str, values.text(32, lines=True, needed=False), NoSecret] = DEFAULT_SEVERITY
    standard: Prose = ""
    fallbacks: Phrases = ()
    guidance: Prose = ""
    must_contain: Phrases = ()
    must_not_contain: Phrases = ()


class PlaybookKeys(Section):
    """The keys of a playbook."""

    name: Annotated[str, values.text(120, lines=True), NoSecret]
    positions: Annotated[tuple[PositionKeys, ...], listed("positions", MAX_POSITIONS, least=1)]


def checked_playbook(given: Any, lines: Mapping[str, int] = MappingProxyType({})) -> tuple[str, tuple[Position, ...]]:
    """Return the name and the positions as a reader of the rendered text reads them back.

    Raises Invalid with every problem, and its line in a file.
    """
    keys = require_valid(PlaybookKeys, given, lines)
    positions = tuple(Position(**dict(position)) for position in keys.positions)
    return _line(keys.name), parse_playbook(render_playbook(PlaybookText("", 1, positions))).positions


# --- YAML ---


LINE_CHARS: Final = 100
_OTHER_BREAKS: Final = frozenset("\r\x85\u2028\u2029")


def read_playbook(text: str) -> tuple[str, tuple[Position, ...]]:
    """Read the name and the positions."""
    root = read_yaml(text)
    return checked_playbook(plain_values(root), lines_of(root))


def write_playbook(name: str, positions: Sequence[Position]) -> str:
    """Return a playbook as YAML, without empty values."""
    content = {"name": name, "positions": [_entries(position) for position in positions]}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


def _entries(position: Position) -> dict[str, Any]:
    values = {**vars(position), "severity": position.severity or DEFAULT_SEVERITY}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, which people can read and edit."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line breaks would be read as \\n, so they are escaped in double quotes.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
