"""Which texts, carried out as they stand, destroy something that may not come back. Pure, in linear time.

It knows commands of the shell and statements of SQL by their form, and nothing of what they are about: it is a warning,
and what is disguised on purpose (encoded, put together from variables) is beyond it.
"""

import re
import unicodedata
from typing import Final

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
