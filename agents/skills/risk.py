"""How risky a call is, by its arguments: low, medium or high. Pure, in linear time; it warns and refuses nothing.

What counts depends on where it stands. In a command (`command`, `script`, `sql`, `args` …) something destructive counts
wherever it is. In prose (`text`, `body`, `subject` …) it never does: people write about deleting things. Under another
name a line, or a statement of SQL, counts that is such a command as it stands. What is too much to judge is medium.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.enums import Level, Risk
from agents.skills.skill import Skill

# Where a skill would go, by its arguments: a place that was named beforehand, or one that the model chose. Pure.


# Only addresses that every reader reads alike; whatever else stands in one, it is a place that nobody has allowed.
_PLAIN: Final = re.compile(
    r"(?:https?://(?P<url>[a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\w/?#.:=&%+~,;!$'()*-]*)?|[\w.+-]+@(?P<mail>[a-z0-9.-]+))",
    re.ASCII | re.IGNORECASE,
)


def level_for(skill: Skill, level: Level, arguments: Mapping[str, Any], allowed: Iterable[str]) -> Level:
    """RESTRICTED at least, when an argument names a place that nobody has allowed: reading can carry data out."""
    if level.rank >= Level.RESTRICTED.rank:
        return level
    return Level.RESTRICTED if goes_elsewhere(skill, arguments, allowed) else level


def goes_elsewhere(skill: Skill, arguments: Mapping[str, Any], allowed: Iterable[str]) -> bool:
    """True when an argument names a place that nobody has allowed."""
    hosts = frozenset(host.lower() for host in allowed)
    return any(not _is_allowed(arguments.get(name), hosts) for name in skill.addresses)


def host_of(address: str) -> str:
    """The host of a plain URL or e-mail address; empty when there is none, or more than one way to read it."""
    found = _PLAIN.fullmatch(address)
    return ((found["url"] or found["mail"]).lower().rstrip(".")) if found else ""


def _is_allowed(address: object, hosts: frozenset[str]) -> bool:
    host = host_of(address) if isinstance(address, str) else ""
    return bool(host) and any(
        host == name or (name.startswith("*.") and host.endswith(name[1:]) and host != name[2:]) for name in hosts
    )


# --- Which texts, carried out as they stand, destroy something that may not come back. Pure, in linear time ---
#
# It knows commands of the shell and statements of SQL by their form, and nothing of what they are about: it is a
# warning, and what is disguised on purpose (encoded, put together from variables) is beyond it.


_SPACE: Final = re.compile(r"[^\S\n]+")
_CONTINUED: Final = re.compile(r"\\\n")
_QUOTES: Final = re.compile(r"[\"'`\\^]")
_NO_SPACE: Final = re.compile(r"\$\{?ifs\}?")  # how a shell is made to see a space where none is written
_SQL_COMMENT: Final = re.compile(r"--[^\n]*|/\*|\*/")
_SQL_QUOTES: Final = re.compile(r"[\"'`\[\]()]")
_SPACES: Final = re.compile(r"\s+")

# --- The shell: in lower case, with single spaces, without quotes; `;` ends a line too ---

_GAP: Final = r"[^;|&]{0,80}?"
_START: Final = r"(?:^|[;&|(] ?|\bsudo )(?:/\w+){0,3}/?"
_SHELL: Final = re.compile(
    "|".join(
        [
            rf"(?<![\w.-])(?<!git )(?<!npm )rm\b{_GAP} (?:-\w*[rf]\w*|--(?:recursive|force|no-preserve-root))(?![\w-])",
            r"(?<![\w.-])(?:del|erase|rd|rmdir) /[sqf]\b",
            rf"(?<![\w.-])remove-item\b{_GAP} -(?:recurse|force)\b",
            r"(?<![\w.-])(?:mkfs(?:\.\w+)?|wipefs|shred) [-/\w]",
            r"(?<![\w.-])format [a-z]:(?!\w)",
            rf"(?<![\w.-])dd\b{_GAP} of=/dev/(?!null\b)",
            r">{1,2} ?/dev/(?:sd|hd|vd|nvme|disk)",
            rf"(?<![\w.-])chmod\b{_GAP} (?:0?777|a\+rwx|ugo\+rwx)(?!\w)",
            rf"\bgit push\b{_GAP} (?:--force(?![\w-])|-f(?!\w)|--mirror\b|--delete\b|\+\w)",
            rf"\bgit (?:reset\b{_GAP} --hard\b|clean\b{_GAP} -\w*f)",
            r"\b(?:kubectl delete|terraform destroy|docker (?:system|volume) prune|dropdb|userdel) ?(?=[-\w/;|&]|$)",
            rf"\baws s3 (?:rb|rm\b{_GAP} --recursive)\b",
            r"\bcrontab -r(?!\w)|\biptables (?:-f|--flush)(?!\w)|:\(\) ?\{ ?:",
            r"(?<![\w.-])truncate (?:-s|--size)",
            r"(?<![\w.-])(?:curl|wget)\b[^;]{0,200}?\| ?(?:sudo )?(?:ba|z|da)?sh\b",
            rf"(?<![\w.-])curl\b{_GAP} (?:-x|--request)[ =]?(?:delete|put)\b",
            r"\bsystemctl (?:poweroff|reboot|halt)\b",
            rf"{_START}(?:shutdown|reboot|poweroff|halt) (?:-\w|\+\d|\d\d:\d\d|now(?: ?(?:[;&|]|$)))",
        ]
    )
)
# A single word is a command only where commands stand.
_BARE: Final = re.compile(rf"{_START}(?:shutdown|reboot|poweroff|halt|init [06])(?= ?(?:[;&|]|$))")
_BEFORE: Final = re.compile(r" ?(?:[$#] )?(?:sudo )?(?:(?:/\w+){1,4}/)?")
_NEXT: Final = re.compile(r";|&&|\|\|")

# --- SQL: statement by statement, likewise without brackets ---

_NO_TABLE: Final = r"(?!(?:a|all|an|any|each|every|her|his|it|its|my|our|that|the|their|these|this|those|your)\b)"
_NAME: Final = rf"{_NO_TABLE}[\w.]{{1,120}}"
_THINGS: Final = r"(?:table|database|schema|index|view|user|role)"
_DROPS: Final = re.compile(
    rf"\bdrop {_THINGS} (?:if exists )?{_NAME}|\balter table {_NAME} drop\b|\btruncate table {_NAME}"
)
_CHANGES: Final = re.compile(rf"\bdelete from {_NAME}|\bupdate {_NAME} (?:(?:as )?\w{{1,40}} )?set \w")
_BOUND: Final = re.compile(r"\bwhere (?!(?:1 ?= ?1|true)(?!\w))")
_WHOLE: Final = re.compile(
    rf" ?(?:drop {_THINGS} (?:if exists )?{_NAME}"  # noqa: S608 it reads SQL, and makes none
    r"(?: ?, ?[\w.]{1,120}){0,20}(?: cascade| restrict)?"
    rf"|alter table {_NAME} drop .*|truncate (?:table )?{_NAME}(?: cascade)?"
    rf"|delete from {_NAME}(?: (?:as )?\w{{1,40}})?(?: (?:where|using|returning|limit) .*)?"
    rf"|update {_NAME} (?:(?:as )?\w{{1,40}} )?set [\w.]{{1,120}} ?=.*) ?"
)


def folded(text: str) -> str:
    """With look-alikes of ASCII made ASCII, without what cannot be seen, in lower case; lines stay lines."""
    if not text.isascii():
        shown = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in shown if unicodedata.category(char) != "Cf")
    return _SPACE.sub(" ", text.lower())


def command_destroys(text: str) -> bool:
    """Of a folded text that is a command, a script or SQL: wherever in it something destructive stands."""
    shell = _as_shell(text)
    if _SHELL.search(shell) or _BARE.search(shell):
        return True
    return any(_DROPS.search(statement) or _changes_all(statement) for statement in _statements(text))


def reads_as_destruction(text: str) -> bool:
    """Of a folded text that may be anything: whether a line is such a command, or a whole statement such SQL."""
    lines = (line[_length(_BEFORE.match(line)) :] for line in _NEXT.split(_as_shell(text)))
    if any(_SHELL.match(line) for line in lines):
        return True
    return any(_WHOLE.fullmatch(statement) and _is_unbounded(statement) for statement in _statements(text))


def _as_shell(text: str) -> str:
    joined = _NO_SPACE.sub(" ", _CONTINUED.sub(" ", text))
    return _SPACE.sub(" ", _QUOTES.sub("", joined).replace("\n", ";"))


def _statements(text: str) -> list[str]:
    flat = _SPACES.sub(" ", _SQL_QUOTES.sub(" ", _SQL_COMMENT.sub(" ", text)))
    return flat.split(";")


def _changes_all(statement: str) -> bool:
    """Whether rows are deleted or changed with nothing that says which; what says so stands behind."""
    ends = [found.end() for found in _CHANGES.finditer(statement)]
    return bool(ends) and not _BOUND.search(statement, ends[-1])


def _is_unbounded(statement: str) -> bool:
    return _CHANGES.search(statement) is None or _changes_all(statement)


def _length(found: re.Match[str] | None) -> int:
    return found.end() if found else 0


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
