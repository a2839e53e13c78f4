"""Grades calls by their arguments: the level that applies, and the risk: low, medium or high.

Pure, in linear time. It knows commands and SQL by their form only, so it warns and refuses nothing; what is disguised
on purpose (encoded, built from variables) is beyond it. Under a name such as `command` or `sql` something destructive
counts anywhere in the value. Under a name such as `text` or `body` it never does: people write about deleting things.
Under any other name, a line or SQL statement counts if it is such a command as a whole. Too much to check is medium.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.enums import Level, Risk
from agents.skills.skill import Skill

MAX_CHARS: Final = 250_000
MAX_VALUES: Final = 10_000
MAX_DEPTH: Final = 16
NAME_CHARS: Final = 200
ACTION_WORDS: Final = 4  # as in delete_all_old_files; more words are a sentence
LARGE_AMOUNT: Final = 10_000  # in a text, with a currency
LARGE_ARGUMENT: Final = 1_000  # as a number, under a name of money
MANY_RECIPIENTS: Final = 5

# --- Words in the names of arguments, by what they say about the value ---

COMMAND, PROSE, METHOD, ACTION = "command", "prose", "method", "action"
RECIPIENT, MONEY, SWITCH = "recipient", "money", "switch"
_NAMES: Final = {
    COMMAND: frozenset({
        "argv", "args", "bash", "cmd", "cmdline", "code", "command", "commands", "exec", "powershell", "program",
        "script", "shell", "sql", "statement", "statements",
    }),
    PROSE: frozenset({
        "body", "caption", "comment", "content", "contents", "description", "draft", "explanation", "heading", "html",
        "letter", "markdown", "message", "note", "notes", "paragraph", "prompt", "question", "reason", "subject",
        "summary", "text", "title",
    }),
    METHOD: frozenset({"method", "verb"}),
    ACTION: frozenset({"action", "op", "operation"}),
    RECIPIENT: frozenset({"bcc", "cc", "recipient", "recipients", "to"}),
    MONEY: frozenset({"amount", "chf", "cost", "eur", "gbp", "price", "sum", "total", "usd"}),
    SWITCH: frozenset({"force", "overwrite", "permanent", "purge", "recursive"}),
}  # fmt: skip

# --- Verbs in the names of skills and in actions ---

_DESTROYING: Final = frozenset({
    "delete", "destroy", "drop", "erase", "purge", "shutdown", "terminate", "truncate", "uninstall", "wipe",
})  # fmt: skip
_CHANGING: Final = frozenset({"disable", "format", "remove", "reset", "revoke"})
_PAYING: Final = frozenset({
    "buy", "charge", "order", "pay", "payment", "payout", "purchase", "refund", "sell", "trade", "transfer", "wire",
    "withdraw",
})  # fmt: skip

# --- Shell commands: in lower case, with single spaces, without quotes; `;` also ends a line ---

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
# A single word is a command only where commands are expected.
_BARE: Final = re.compile(rf"{_START}(?:shutdown|reboot|poweroff|halt|init [06])(?= ?(?:[;&|]|$))")
_PROMPT: Final = re.compile(r" ?(?:[$#] )?(?:sudo )?(?:(?:/\w+){1,4}/)?")
_NEXT_COMMAND: Final = re.compile(r";|&&|\|\|")
_LINE_CONTINUATION: Final = re.compile(r"\\\n")
_SHELL_QUOTES: Final = re.compile(r"[\"'`\\^]")
_SHELL_SPACE: Final = re.compile(r"\$\{?ifs\}?")  # makes a shell see a space where none is written
_SPACE: Final = re.compile(r"[^\S\n]+")

# --- SQL: statement by statement, in lower case, without quotes and brackets ---

_NO_TABLE: Final = r"(?!(?:a|all|an|any|each|every|her|his|it|its|my|our|that|the|their|these|this|those|your)\b)"
_NAME: Final = rf"{_NO_TABLE}[\w.]{{1,120}}"
_THINGS: Final = r"(?:table|database|schema|index|view|user|role)"
_DROPS: Final = re.compile(
    rf"\bdrop {_THINGS} (?:if exists )?{_NAME}|\balter table {_NAME} drop\b|\btruncate table {_NAME}"
)
_CHANGES: Final = re.compile(rf"\bdelete from {_NAME}|\bupdate {_NAME} (?:(?:as )?\w{{1,40}} )?set \w")
_BOUND: Final = re.compile(r"\bwhere (?!(?:1 ?= ?1|true)(?!\w))")
_WHOLE: Final = re.compile(
    rf" ?(?:drop {_THINGS} (?:if exists )?{_NAME}"  # noqa: S608 a pattern, not a query
    r"(?: ?, ?[\w.]{1,120}){0,20}(?: cascade| restrict)?"
    rf"|alter table {_NAME} drop .*|truncate (?:table )?{_NAME}(?: cascade)?"
    rf"|delete from {_NAME}(?: (?:as )?\w{{1,40}})?(?: (?:where|using|returning|limit) .*)?"
    rf"|update {_NAME} (?:(?:as )?\w{{1,40}} )?set [\w.]{{1,120}} ?=.*) ?"
)
_SQL_COMMENT: Final = re.compile(r"--[^\n]*|/\*|\*/")
_SQL_NOISE: Final = re.compile(r"[\s\"'`\[\]()]+")

# --- Other patterns ---

# Only addresses that every program reads alike; any other is a host that nobody has allowed.
_ADDRESS: Final = re.compile(
    r"(?:https?://(?P<url>[a-z0-9.-]+)(?::\d{1,5})?(?:[/?#][\w/?#.:=&%+~,;!$'()*-]*)?|[\w.+-]+@(?P<mail>[a-z0-9.-]+))",
    re.ASCII | re.IGNORECASE,
)
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PATH: Final = re.compile(
    r"(?<![\w./-])/(?:etc|root|boot|sys|proc|dev(?!/null)|var/(?:lib|run))(?![\w.-])|(?<!\w)c:[\\/]windows"
    r"|(?<![\w.])~/\.|(?<![\w.-])\.(?:env|ssh|aws|kube|netrc|pgpass|git|gnupg)(?![a-z])|\bid_(?:rsa|ed25519|ecdsa)\b"
    r"|(?:^|[\\/\s])\.\.[\\/]"
)
_URL: Final = re.compile(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,15})://([^\s\"'<>/?#]{0,300})")
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


# --- Addresses ---


def level_for(skill: Skill, level: Level, arguments: Mapping[str, Any], allowed: Iterable[str]) -> Level:
    """Return RESTRICTED at least if an argument names a host that is not allowed: reading can carry data out."""
    if level.rank >= Level.RESTRICTED.rank:
        return level
    return Level.RESTRICTED if has_unlisted_address(skill, arguments, allowed) else level


def has_unlisted_address(skill: Skill, arguments: Mapping[str, Any], allowed: Iterable[str]) -> bool:
    """Return whether an address argument names a host that is not allowed, or the skill declares one."""
    hosts = frozenset(host.lower() for host in allowed)
    return any(not is_at(arguments.get(name), hosts) for name in skill.addresses) or any(
        host not in hosts and not is_at(f"https://{host}", hosts) for host in skill.hosts
    )


def host_of(address: str) -> str:
    """Return the host of a plain URL or e-mail address; "" if there is none, or two ways to read it."""
    found = _ADDRESS.fullmatch(address)
    return ((found["url"] or found["mail"]).lower().rstrip(".")) if found else ""


def is_at(address: object, hosts: frozenset[str]) -> bool:
    """Return whether an address is at one of the hosts; `*.example.org` stands for those below."""
    host = host_of(address) if isinstance(address, str) else ""
    return bool(host) and any(
        host == name or (name.startswith("*.") and host.endswith(name[1:]) and host != name[2:]) for name in hosts
    )


def _is_public_name(host: str) -> bool:
    """Return whether a host is an ordinary public name: no number, no local name, no punycode."""
    last = host.rpartition(".")[2]
    return "." in host and last.isalpha() and not any(label.startswith("xn--") for label in host.split("."))


# --- Grading ---


class RiskAssessor:
    """Grades calls. It keeps no state."""

    def assess(self, skill: Skill, arguments: Mapping[str, Any]) -> Risk:
        """Return high for what may be irreversible, medium for what deserves a second look, else low."""
        leaves, is_complete = _read(arguments)
        if _destroys(skill, leaves):
            return Risk.HIGH
        sensitive = _is_sensitive_skill(skill, arguments) or any(map(_is_sensitive, leaves))
        return Risk.LOW if is_complete and not sensitive and not _has_many_recipients(leaves) else Risk.MEDIUM

    def escalates(self, skill: Skill, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call contains something destructive, so that it counts as dangerous at any level."""
        return _destroys(skill, _read(arguments)[0])

    def grade(self, skill: Skill, level: Level, arguments: Mapping[str, Any]) -> Risk | None:
        """Return the risk of a dangerous call: RESTRICTED and above, or destructive. None: it is harmless."""
        is_dangerous = level.rank >= Level.RESTRICTED.rank or self.escalates(skill, arguments)
        return self.assess(skill, arguments) if is_dangerous else None


# --- Reading the arguments ---


@dataclass(frozen=True)
class _Leaf:
    """A single value, the words of its name, and its text in folded form."""

    words: tuple[str, ...]
    value: Any
    text: str

    def is_called(self, kind: str) -> bool:
        return bool(self.words) and self.words[-1] in _NAMES[kind]

    @property
    def kind(self) -> str:
        """COMMAND or PROSE by the last word that is either: `sql_text` is prose, `text_sql` a command. Else ""."""
        return next((kind for word in reversed(self.words) for kind in (COMMAND, PROSE) if word in _NAMES[kind]), "")


_TOO_DEEP: Final = object()


def _read(arguments: Mapping[str, Any]) -> tuple[Sequence[_Leaf], bool]:
    """Return the single values of the arguments, and whether these are all of them."""
    leaves: list[_Leaf] = []
    room = MAX_CHARS
    for name, value in _values(arguments, "", 0):
        size = len(value) if isinstance(value, str) else 0
        text = folded(value[:room]) if isinstance(value, str) else ""
        is_complete = len(leaves) < MAX_VALUES and value is not _TOO_DEEP and size <= room
        leaves.append(_Leaf(_words(name), value, text))
        if not is_complete:
            return leaves, False
        room -= size
    return leaves, True


def _values(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield single values by name. A list of command parts is one command; text that is JSON is read as such."""
    if depth > MAX_DEPTH:
        yield name, _TOO_DEEP
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _values(item, str(key), depth + 1)
    elif isinstance(value, list | tuple):
        if _Leaf(_words(name), None, "").kind == COMMAND and all(isinstance(part, str) for part in value):
            yield name, " ".join(value)
            return
        for item in value:
            yield from _values(item, name, depth + 1)
    elif isinstance(value, str) and (parsed := _json(value)) is not None:
        yield from _values(parsed, name, depth + 1)
    else:
        yield name, value


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in {"{", "["} or len(text) > MAX_CHARS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name[:NAME_CHARS]))


def folded(text: str) -> str:
    """Return text in lower case, look-alikes as ASCII, without invisible characters; lines stay lines."""
    if not text.isascii():
        normalized = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in normalized if unicodedata.category(char) != "Cf")
    return _SPACE.sub(" ", text.lower())


# --- High ---


def _destroys(skill: Skill, leaves: Sequence[_Leaf]) -> bool:
    """Return whether a value is destructive. A local skill that only reads has nothing to destroy."""
    return not (skill.local and not skill.side_effects) and any(map(_is_destructive, leaves))


def _is_destructive(leaf: _Leaf) -> bool:
    if leaf.is_called(METHOD):
        return leaf.text.strip() in {"delete", "put"}
    if leaf.is_called(ACTION):
        return _verb(leaf.text) in _DESTROYING
    if leaf.kind == COMMAND:
        return command_destroys(leaf.text)
    return leaf.kind != PROSE and reads_as_destruction(leaf.text)


def _verb(text: str) -> str:
    """Return the first word of a short action; "" for a sentence."""
    words = _WORD.findall(text[:NAME_CHARS])
    return words[0] if words and len(words) <= ACTION_WORDS else ""


def command_destroys(text: str) -> bool:
    """Return whether a command, script or SQL (folded) contains something destructive anywhere."""
    shell = _as_shell(text)
    if _SHELL.search(shell) or _BARE.search(shell):
        return True
    return any(_DROPS.search(statement) or _changes_all(statement) for statement in _statements(text))


def reads_as_destruction(text: str) -> bool:
    """Return whether a line of any text (folded) is a destructive command, or a statement is destructive SQL."""
    for line in _NEXT_COMMAND.split(_as_shell(text)):
        prompt = _PROMPT.match(line)
        if _SHELL.match(line[prompt.end() if prompt else 0 :]):
            return True
    return any(
        _WHOLE.fullmatch(statement) and (not _CHANGES.search(statement) or _changes_all(statement))
        for statement in _statements(text)
    )


def _as_shell(text: str) -> str:
    joined = _SHELL_SPACE.sub(" ", _LINE_CONTINUATION.sub(" ", text))
    return _SPACE.sub(" ", _SHELL_QUOTES.sub("", joined).replace("\n", ";"))


def _statements(text: str) -> list[str]:
    return _SQL_NOISE.sub(" ", _SQL_COMMENT.sub(" ", text)).split(";")


def _changes_all(statement: str) -> bool:
    """Return whether rows are deleted or changed without a condition after it."""
    ends = [found.end() for found in _CHANGES.finditer(statement)]
    return bool(ends) and not _BOUND.search(statement, ends[-1])


# --- Medium ---


def _is_sensitive_skill(skill: Skill, arguments: Mapping[str, Any]) -> bool:
    """Judge by the skill's name and the hosts of its address arguments."""
    if skill.side_effects and _verb(skill.name) in _DESTROYING | _CHANGING | _PAYING:
        return True
    return any(not _is_public_name(host_of(str(arguments.get(name)))) for name in skill.addresses)


def _is_sensitive(leaf: _Leaf) -> bool:
    if _CREDENTIAL.search(leaf.text) or _CREDENTIAL.search(" ".join(leaf.words)) or _is_large_amount(leaf):
        return True
    if leaf.is_called(METHOD):
        return leaf.text.strip() == "patch"
    if leaf.is_called(ACTION):
        return _verb(leaf.text) in _CHANGING | _PAYING
    if leaf.value is True:
        return leaf.is_called(SWITCH)
    return leaf.kind != PROSE and (bool(_PATH.search(leaf.text)) or _has_unusual_url(leaf.text))


def _is_large_amount(leaf: _Leaf) -> bool:
    if isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool):
        return bool(_NAMES[MONEY] & set(leaf.words)) and abs(leaf.value) >= LARGE_ARGUMENT
    return any(_amount(*found) >= LARGE_AMOUNT for found in _AMOUNT.findall(leaf.text))


def _amount(after_currency: str, unit: str, before_currency: str, other_unit: str) -> float:
    """Return a figure as people write it: 50,000.00, 50.000,00 and 50 000 are the same."""
    figure = (after_currency or before_currency).strip(" .,'")
    decimals = _DECIMALS.search(figure)
    whole = re.sub(r"\D", "", figure[: decimals.start()] if decimals else figure)
    part = decimals[0][1:] if decimals else "0"
    return float(f"{whole}.{part}") * _TIMES.get(unit or other_unit, 1)


def _has_unusual_url(text: str) -> bool:
    return any(
        scheme not in {"http", "https"} or not _is_public_name(host_of(f"{scheme}://{host.rstrip('.,;:)]}')}"))
        for scheme, host in _URL.findall(text)
    )


def _has_many_recipients(leaves: Sequence[_Leaf]) -> bool:
    recipients = [leaf.text for leaf in leaves if leaf.is_called(RECIPIENT)]
    return sum(text.count("@") for text in recipients) > MANY_RECIPIENTS or any(map(_EVERYONE.search, recipients))
