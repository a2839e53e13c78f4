"""How risky a call is, by its arguments: low, medium or high. Pure, in linear time; it warns and refuses nothing.

What counts depends on where it stands. In a command (`command`, `script`, `sql`, `args` …) something destructive counts
wherever it is. In prose (`text`, `body`, `subject` …) it never does: people write about deleting things. Under another
name a line, or a statement of SQL, counts that is such a command as it stands. What is too much to judge is medium.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.enums import Risk
from agents.skills.addresses import host_of
from agents.skills.destruction import command_destroys, folded, reads_as_destruction
from agents.skills.skill import Skill

MOST_CHARS: Final = 250_000
MOST_VALUES: Final = 10_000
DEEPEST: Final = 16
NAME_CHARS: Final = 200
LARGE_AMOUNT: Final = 10_000  # in a text, beside a currency
LARGE_ARGUMENT: Final = 1_000  # as a number, under a name that speaks of money
MANY_RECIPIENTS: Final = 5

COMMAND, PROSE, OTHER = "command", "prose", "other"
_COMMANDS: Final = frozenset({
    "argv", "args", "bash", "cmd", "cmdline", "code", "command", "commands", "exec", "powershell", "program", "script",
    "shell", "sql", "statement", "statements",
})  # fmt: skip
_PROSE: Final = frozenset({
    "body", "caption", "comment", "content", "contents", "description", "draft", "explanation", "heading", "html",
    "letter", "markdown", "message", "note", "notes", "paragraph", "prompt", "question", "reason", "subject", "summary",
    "text", "title",
})  # fmt: skip
_PLACES: Final = dict.fromkeys(_COMMANDS, COMMAND) | dict.fromkeys(_PROSE, PROSE)
_METHODS: Final = frozenset({"method", "verb"})
_ACTIONS: Final = frozenset({"action", "op", "operation"})
_RECIPIENTS: Final = frozenset({"bcc", "cc", "recipient", "recipients", "to"})
_MONEY: Final = frozenset({"amount", "chf", "cost", "eur", "gbp", "price", "sum", "total", "usd"})
_SWITCHES: Final = frozenset({"force", "overwrite", "permanent", "purge", "recursive"})
_ENDING: Final = frozenset({
    "delete", "destroy", "drop", "erase", "purge", "shutdown", "terminate", "truncate", "uninstall", "wipe",
})  # fmt: skip
_CHANGING: Final = frozenset({"disable", "format", "remove", "reset", "revoke"})
_PAYING: Final = frozenset({
    "buy", "charge", "order", "pay", "payment", "payout", "purchase", "refund", "sell", "trade", "transfer", "wire",
    "withdraw",
})  # fmt: skip

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PATH: Final = re.compile(
    r"(?<![\w./-])/(?:etc|root|boot|sys|proc|dev(?!/null)|var/(?:lib|run))(?![\w.-])|(?<!\w)c:[\\/]windows"
    r"|(?<![\w.])~/\.|(?<![\w.-])\.(?:env|ssh|aws|kube|netrc|pgpass|git|gnupg)(?![a-z])|\bid_(?:rsa|ed25519|ecdsa)\b"
    r"|(?:^|[\\/\s])\.\.[\\/]"
)
_ADDRESS: Final = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,15})://([^\s\"'<>/?#]{0,300})")
_CREDENTIAL: Final = re.compile(
    r"(?<![a-z])(?:passwords?|passwd|passphrases?|credentials?|credit card|cvv|social security number|bearer"
    r"|(?:api|private|secret|ssh|encryption)[ _-]?keys?|(?:access|auth|refresh)[ _-]?tokens?|client[ _-]?secrets?)"
    r"(?![a-z])"
)
_FIGURE: Final = r"(\d[\d.,' ]{0,20})(k|m|million|billion)?"
_AMOUNT: Final = re.compile(
    rf"(?:[$€£¥]|(?<![a-z])(?:usd|eur|gbp|chf)) ?{_FIGURE}(?![a-z])"
    rf"|(?<![\d.,]){_FIGURE} ?(?:[$€£¥]|(?:usd|eur|gbp|chf|dollars?|euros?|pounds)(?![a-z]))"
)
_DECIMALS: Final = re.compile(r"[.,]\d{1,2}$")
_TIMES: Final = {"k": 1_000, "m": 1_000_000, "million": 1_000_000, "billion": 1_000_000_000}
_EVERYONE: Final = re.compile(r"(?<![\w.-])(?:all|all-staff|allstaff|company|everybody|everyone|staff)@")


class RiskAssessor:
    """Grades calls. It keeps nothing between them."""

    def assess(self, skill: Skill, arguments: Mapping[str, Any]) -> Risk:
        """High for what may not be undone, medium for what deserves a second look, else low."""
        read = _read(arguments)
        if _destroys(skill, read.leaves):
            return Risk.HIGH
        delicate = read.is_too_much or _is_delicate(skill, arguments) or any(map(_deserves_a_look, read.leaves))
        return Risk.MEDIUM if delicate or _is_for_many(read.leaves) else Risk.LOW

    def escalates(self, skill: Skill, arguments: Mapping[str, Any]) -> bool:
        """Whether a call is to be thought through first whatever its level, because it holds something destructive."""
        return _destroys(skill, _read(arguments).leaves)


# --- Reading the arguments ---


@dataclass(frozen=True)
class _Leaf:
    """A value, what it is called there, and the value as text in its plainest form."""

    words: tuple[str, ...]
    value: Any
    text: str

    @property
    def place(self) -> str:
        """By the last word of its name, else by any: `sql_text` is prose, `text_sql` a command."""
        return next((_PLACES[word] for word in reversed(self.words) if word in _PLACES), OTHER)

    @property
    def called(self) -> str:
        return self.words[-1] if self.words else ""


@dataclass(frozen=True)
class _Read:
    leaves: Sequence[_Leaf]
    is_too_much: bool


def _read(arguments: Mapping[str, Any]) -> _Read:
    leaves: list[_Leaf] = []
    room = MOST_CHARS
    for name, value in _values(arguments, "", 0):
        text = folded(value[:room]) if isinstance(value, str) else ""
        if len(leaves) == MOST_VALUES or value is _TOO_DEEP or (isinstance(value, str) and len(value) > room):
            return _Read([*leaves, _Leaf(_words(name), value, text)], is_too_much=True)
        room -= len(value) if isinstance(value, str) else 0
        leaves.append(_Leaf(_words(name), value, text))
    return _Read(leaves, is_too_much=False)


_TOO_DEEP: Final = object()


def _values(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every value with its name. The parts of a command are one command; a text that is JSON is what it holds."""
    if depth > DEEPEST:
        yield name, _TOO_DEEP
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, str(key), depth + 1)
    elif isinstance(value, list | tuple):
        if _Leaf(_words(name), None, "").place == COMMAND and all(isinstance(part, str) for part in value):
            yield name, " ".join(value)
            return
        for item in value:
            yield from _values(item, name, depth + 1)
    elif isinstance(value, str) and (held := _json(value)) is not None:
        yield from _values(held, name, depth + 1)
    else:
        yield name, value


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in {"{", "["} or len(text) > MOST_CHARS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name[:NAME_CHARS]))


# --- High ---


def _destroys(skill: Skill, leaves: Sequence[_Leaf]) -> bool:
    """A skill that only reads rows of ours has nothing that it could destroy."""
    return not (skill.local and not skill.side_effects) and any(map(_is_destructive, leaves))


def _is_destructive(leaf: _Leaf) -> bool:
    if leaf.called in _METHODS:
        return leaf.text.strip() in {"delete", "put"}
    if leaf.called in _ACTIONS:
        return _verb(leaf.text) in _ENDING
    if leaf.place == COMMAND:
        return command_destroys(leaf.text)
    return leaf.place == OTHER and reads_as_destruction(leaf.text)


def _verb(text: str) -> str:
    """The word that a short action begins with; a sentence is none."""
    words = _WORD.findall(text[:NAME_CHARS])
    return words[0] if words and len(words) <= 4 else ""  # noqa: PLR2004 as in delete_all_old_files


# --- Medium ---


def _is_delicate(skill: Skill, arguments: Mapping[str, Any]) -> bool:
    """By the skill's own name, and by where it would go."""
    verb = _verb(skill.name)
    if skill.side_effects and verb in _ENDING | _CHANGING | _PAYING:
        return True
    return any(not _is_ordinary(host_of(str(arguments.get(name)))) for name in skill.addresses)


def _deserves_a_look(leaf: _Leaf) -> bool:
    if _CREDENTIAL.search(leaf.text) or _CREDENTIAL.search(" ".join(leaf.words)) or _is_much(leaf):
        return True
    if leaf.called in _METHODS:
        return leaf.text.strip() == "patch"
    if leaf.called in _ACTIONS:
        return _verb(leaf.text) in _CHANGING | _PAYING
    if leaf.value is True:
        return leaf.called in _SWITCHES
    return leaf.place != PROSE and (bool(_PATH.search(leaf.text)) or _goes_somewhere_odd(leaf.text))


def _is_much(leaf: _Leaf) -> bool:
    if isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool):
        return bool(_MONEY & set(leaf.words)) and abs(leaf.value) >= LARGE_ARGUMENT
    return any(_amount(*found) >= LARGE_AMOUNT for found in _AMOUNT.findall(leaf.text))


def _amount(before: str, times: str, behind: str, times_behind: str) -> float:
    """A figure as people write it: 50,000.00 and 50.000,00 and 50 000 are the same."""
    figure = (before or behind).strip(" .,'")
    decimals = _DECIMALS.search(figure)
    whole = re.sub(r"\D", "", figure[: decimals.start()] if decimals else figure)
    part = decimals[0][1:] if decimals else "0"
    return float(f"{whole}.{part}") * _TIMES.get(times or times_behind, 1)


def _goes_somewhere_odd(text: str) -> bool:
    return any(
        scheme not in {"http", "https"} or not _is_ordinary(host_of(f"{scheme}://{place.rstrip('.,;:)]}')}"))
        for scheme, place in _ADDRESS.findall(text)
    )


def _is_ordinary(host: str) -> bool:
    """A name in the public form: no number, no name of a machine, none that is spelt in code."""
    last = host.rpartition(".")[2]
    return "." in host and last.isalpha() and not any(label.startswith("xn--") for label in host.split("."))


def _is_for_many(leaves: Sequence[_Leaf]) -> bool:
    to = [leaf.text for leaf in leaves if leaf.called in _RECIPIENTS]
    return sum(text.count("@") for text in to) > MANY_RECIPIENTS or any(map(_EVERYONE.search, to))
