"""Playbooks and rules as text: Markdown for people, models and the offline analyst, and YAML files. Pure.

Rendering is deterministic, and reading a rendered text gives the same values. The Markdown readers accept what people
write by hand and never raise. A YAML error names key and line: `positions[2].severity: expected text, found list
(line 14)`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import yaml

from agents.exceptions import Invalid
from agents.text.strict_yaml import Node, read_yaml

UNNAMED = "(unnamed)"
DEFAULT_SEVERITY = "warn"


@dataclass(frozen=True)
class Position:
    """What a document should say about one issue, and the acceptable fallbacks."""

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
    ignored: tuple[str, ...] = field(default=())


# --- Forms and patterns ---

# Longest first, because most start with `must`.
FORMS = {
    "must mention one of": "any of the phrases",
    "must not mention": "none of the phrases",
    "must mention": "each of the phrases",
    "must not": "the document does not say this",
    "must": "the document says this",
    "should": "as must, but only worth a note",
    "at least": "the quantity is no smaller, and is stated",
    "at most": "the quantity is no greater where it is stated",
}
_SYNONYMS = {
    "must not mention": ("must not contain", "must not include", "never mention", "do not mention"),
    "must mention": ("must contain", "must include", "mention"),
    "must mention one of": ("must contain one of", "must mention any of", "must mention either"),
    "must not": ("must never", "shall not", "may not", "never"),
    "must": ("shall",),
    "at least": ("no less than", "not less than", "minimum", "no fewer than"),
    "at most": ("no more than", "not more than", "maximum", "up to"),
}
_FORM_OF = {form: form for form in FORMS} | {other: form for form, others in _SYNONYMS.items() for other in others}
_ANY_FORM = "|".join(sorted(map(re.escape, _FORM_OF), key=len, reverse=True))

_TITLE = re.compile(r"(?:Playbook: )?(.*?) ?(?:\(version (\d{1,9})\))?")
_HEADING = re.compile(r"(#{1,6})\s+(.*)")
_NUMBER = re.compile(r"\A\d+\.\s+")
_LABEL = re.compile(
    r"\s*(?:[-*]\s+)?\**(severity|standard(?: position| language| clause)?|fallback(?: position| tier)?(?: ?\d+)?"
    r"|guidance|notes?|must not contain|must contain)\**\s*:\**(.*)",
    re.IGNORECASE,
)
_FIELDS = {"standard": "standard", "note": "guidance"}
_BULLET = re.compile(r"\s*(?:[-*+•]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)")
_QUOTES = "\"'“”„‟«»\u2018\u2019"
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
    """Parse a playbook text, rendered or written by hand."""
    name, version = UNNAMED, 1
    positions: list[_Draft] = []
    for line in _lines(text):
        heading = _HEADING.fullmatch(line)
        if heading and len(heading[1]) > 1:
            positions.append(_Draft(_line(_NUMBER.sub("", heading[2], count=1)) or UNNAMED))
        elif heading and (title := _TITLE.fullmatch(_line(heading[2]))):
            name, version = title[1] or UNNAMED, int(title[2] or 1)
        elif positions:
            positions[-1].read(line)
    return PlaybookText(name, version, tuple(draft.position() for draft in positions))


def render_rules(rules: Iterable[Rule]) -> str:
    """Return the rules as a Markdown list under a heading."""
    return "\n".join(["## Rules", "", *(f"- {_rule_line(rule)}" for rule in rules)]) + "\n"


def parse_rules(text: str) -> RuleSet:
    """Return the rules of a skill text: list items under a heading about rules, or anywhere if they have a colon.

    List items under such a heading without a known form are returned as ignored; all other text is skipped.
    """
    rules: list[Rule] = []
    ignored: list[str] = []
    inside = False
    for line in _lines(text):
        heading = _HEADING.fullmatch(line)
        if heading:
            inside = bool(_RULES_HEADING.search(heading[2]))
        elif item := _BULLET.fullmatch(line):
            rule = _read_rule(item[1].strip(), colon_needed=not inside)
            if rule:
                rules.append(rule)
            elif inside:
                ignored.append(_line(item[1]))
    return RuleSet(tuple(rules), tuple(ignored))


class _Draft:
    """A position while its lines are read."""

    def __init__(self, issue: str) -> None:
        self.issue = issue
        self.field = ""
        self.lines: dict[str, list[str]] = {}
        self.tiers = 0

    def read(self, line: str) -> None:
        label = _LABEL.fullmatch(line)
        if label:
            self.field = self._name(label[1].lower())
            text = label[2].strip()
        else:
            text = line[2:] if line.startswith("> ") else line.removeprefix(">")
        self.lines.setdefault(self.field, []).append(text)

    def _name(self, label: str) -> str:
        if label.startswith("fallback"):
            self.tiers += 1
            return f"fallback {self.tiers}"
        return next((name for start, name in _FIELDS.items() if label.startswith(start)), label)

    def position(self) -> Position:
        texts = {name: _prose("\n".join(lines)) for name, lines in self.lines.items()}
        tiers = (texts.get(f"fallback {tier}", "") for tier in range(1, self.tiers + 1))
        return Position(
            issue=self.issue,
            severity=_line(texts.get("severity", "")) or DEFAULT_SEVERITY,
            standard=texts.get("standard", ""),
            fallbacks=tuple(filter(None, tiers)),
            guidance=texts.get("guidance", ""),
            must_contain=_listed(texts.get("must contain", "")),
            must_not_contain=_listed(texts.get("must not contain", "")),
        )


def _listed(text: str) -> tuple[str, ...]:
    """Return phrases: one per list item, or several on one line, quoted or separated by `;`."""
    found: list[str] = []
    for line in text.split("\n"):
        item = _BULLET.fullmatch(line)
        found += [_unquoted(item[1])] if item else _phrases(line)
    return tuple(filter(None, found))


def _phrases(text: str) -> list[str]:
    quoted = [_line("".join(groups)) for groups in _PHRASE.findall(text)]
    return quoted or [_unquoted(part) for part in text.split(";") if part.strip()]


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        text = text[1:-1]
    return _line(text)


def _read_rule(text: str, *, colon_needed: bool) -> Rule | None:
    found = _RULE.fullmatch(text.replace("**", ""))
    if not found or not found[4].strip() or (colon_needed and ":" not in found[3] + found[4]):
        return None
    form = _FORM_OF[found[2].lower()]
    severity = _line(found[1] or "") or ("info" if form == "should" else DEFAULT_SEVERITY)
    rest = _line(found[4])
    phrases = tuple(_line("".join(groups)) for groups in _PHRASE.findall(rest)) if "mention" in form else ()
    return Rule(form, "" if phrases else rest, tuple(filter(None, phrases)), severity)


def _rule_line(rule: Rule) -> str:
    phrases = (_line(phrase).replace('"', "'") for phrase in rule.phrases)
    what = ", ".join(f'"{phrase}"' for phrase in phrases) or _line(rule.text)
    severity = _line(rule.severity).replace("]", ")") or DEFAULT_SEVERITY
    colon = "" if rule.form.startswith("at ") else ":"
    return f"[{severity}] {rule.form}{colon} {what}"


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


# --- YAML ---


KEYS: Final = ("name", "positions")
POSITION_KEYS: Final = tuple(field.name for field in fields(Position))
LISTS: Final = frozenset({"fallbacks", "must_contain", "must_not_contain"})
LINE_CHARS: Final = 100
_OTHER_BREAKS: Final = frozenset("\r\x85\u2028\u2029")


def read_playbook(text: str) -> tuple[str, tuple[Position, ...]]:
    """Read the name and the positions. Only their shape is checked here."""
    root = read_yaml(text)
    _require_map(root, "", KEYS)
    name = _required_text(root, "name", "name")
    listed = root.entries.get("positions")
    if listed is None or listed.is_nothing:
        raise _refusal("positions", "is missing", root if listed is None else listed)
    if listed.kind != "list":
        raise _expected("positions", "list", listed)
    return name, tuple(_position(node, f"positions[{number}]") for number, node in enumerate(listed.items))


def write_playbook(name: str, positions: Sequence[Position]) -> str:
    """Return a playbook as YAML, without empty values."""
    content = {"name": name, "positions": [_entries(position) for position in positions]}
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)


def _position(node: Node, path: str) -> Position:
    _require_map(node, path, POSITION_KEYS)
    values: dict[str, Any] = {"issue": _required_text(node, "issue", f"{path}.issue")}
    for key in POSITION_KEYS[1:]:
        given = node.entries.get(key)
        if given is None or given.is_nothing:
            continue
        values[key] = _texts(given, f"{path}.{key}") if key in LISTS else _node_text(given, f"{path}.{key}")
    return Position(**values)


def _require_map(node: Node, path: str, known: tuple[str, ...]) -> None:
    if node.kind != "map":
        raise _expected(path or "the playbook", f"map of {', '.join(known)}", node)
    for key, value in node.entries.items():
        if key not in known:
            raise _refusal(f"{path}.{key}" if path else key, f"unknown key; known keys: {', '.join(known)}", value)


def _required_text(node: Node, key: str, path: str) -> str:
    given = node.entries.get(key)
    if given is None or given.is_nothing or not (text := _node_text(given, path)).strip():
        raise _refusal(path, "is missing", given or node)
    return text


def _texts(node: Node, path: str) -> tuple[str, ...]:
    if node.kind != "list":
        raise _expected(path, "list of texts", node)
    return tuple(_node_text(item, f"{path}[{number}]") for number, item in enumerate(node.items))


def _node_text(node: Node, path: str) -> str:
    if node.kind == "text":
        return node.text
    raise _expected(path, "text", node, "; put it in quotes" if node.is_single and not node.is_nothing else "")


def _expected(path: str, expected: str, node: Node, hint: str = "") -> Invalid:
    return _refusal(path, f"expected {expected}, found {node.kind}{hint}", node)


def _refusal(path: str, problem: str, node: Node) -> Invalid:
    return Invalid(f"{path}: {problem} (line {node.line})")


def _entries(position: Position) -> dict[str, Any]:
    values = {key: getattr(position, key) for key in POSITION_KEYS}
    values["severity"] = position.severity or DEFAULT_SEVERITY
    return {key: list(value) if key in LISTS else value for key, value in values.items() if value}


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, which people can read and edit."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Other line breaks would be read as \\n, so they are escaped in double quotes.
    style = '"' if _OTHER_BREAKS & set(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
