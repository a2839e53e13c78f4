"""Judges values: is this text a credential, or a placeholder, a reference, a piece of code or a word of prose?

Owns the tables of what is left alone. Must not look for values in a text; callers hand one over.
"""

import re
from functools import cache

from audit.redaction.names import Strength
from audit.redaction.words import PLAIN_WORDS, SENTENCE_WORDS, STAND_INS

# How much of a value is read to judge it; the rest is masked along with it.
JUDGED = 256
_SHORTEST = 3
_PIN = 4
_CHOSEN = 6
_RANDOM = 16

_PLACEHOLDERS = r"""
      \$\{.*                                      # ${TOKEN}
    | \$\(.* | \$\[.*                             # $(command)
    | \$[A-Z_][A-Z0-9_]*+ | \$[a-z_]++ | \$\d     # $TOKEN, $password, $1
    | \$env:.* | \$_.* | \$this.* | \$[a-z][A-Za-z]*(?:->|\[|\.).*
    | %\(\w+\)[sdr] | %[sdrvqxf]\W* | %[A-Za-z_]{2,}% | %\{.*
    | \#\{.* | @\w+@ | @\{.*
    | \{\{.* | \{%.* | \{[\w.:!]*+(?:\}.*)? | \{[a-z_]+\(.* | <%.*
    | <[^<>]*>?.* | \[[A-Za-z][\w -]*\]? | \[\W*
    | [*x•·.?_#+=~-]{2,}+ | X{2,}+ | [*•]+.*      # masks
    | (?:\w{0,4}[*•]{3,}|\w{0,4}\.{3}|[^\s]{0,12}…).*
    | !(?:vault|Ref|Sub|GetAtt|secret|env|var|ImportValue|Join|reference)\b.* | ENC\[.* | AQICAH.*
    | (?:vault|secret|op|ssm|aws-sm|gcp-sm|azure-kv|keyring|file|env|ref|secretsmanager|awssm|https?|kms|sm)://?.*
    | (?:vault|ref|env|secretref|valueFrom|keychain|keyring|file|ssm|secret):[\w/.{@-].*
    | arn:aws.* | projects/.*/secrets/.* | @?(?:~|\.{1,2})/.*
    | @?/(?:run|etc|var|home|tmp|opt|usr|mnt|app|data|root|Users|srv|secrets|proc|dev|vault|path|api|v\d)/.*
    | [A-Z]:\\.* | /(?:[a-z][a-z0-9_.-]*+/)*+[a-z0-9_.-]*+
    | (?:os|process|settings|config|self|cls|this|request|args|kwargs|opts|options|params|env|environ|secrets|vars|var
        |local|data|conf|cfg|ctx|context|props|state|user|account|client|session|response|resp|req|body|payload|event
        |form|app|import\.meta|System|Deno|Bun|ENV|window|document|module|random|uuid|faker|fake|crypto|hashlib|github
        |inputs|steps|Environment|Configuration|builder|credentials|creds)
        (?:\[.*|(?:\.|->|::|\?\.)[A-Za-z_]++\d{0,2}+[A-Za-z_]*+(?:\W.*)?)
    | (?:new|await|return|lambda|function|async|yield|raise|not|if|else)(?:\ .*)?
    | [A-Za-z_][A-Za-z_.:]*+\d{0,2}+[A-Za-z_.:]*+!?\(.*  # call()
    | [A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++\(.*
    | \S{0,40}?\[\^?(?:a-z|A-Z|0-9|\\[wd]).*      # an expression for values
    | [A-Za-z_]\w*+\[.*                            # index[...], Optional[str]
    | [A-Za-z_]\w*+(?:->|::)[A-Za-z_].*
    | (?:Optional|Union|List|Dict|SecretStr|Annotated|Literal|Final)\b.*
    """
_DOTTED = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+|(?:[a-z_]++\.){2,}+[A-Za-z_]++\d?+[A-Za-z_]*+")
_WORD_BREAK = re.compile(r"[-_. ]")
_IDENTIFIER = re.compile(r"[A-Za-z]*_[A-Za-z_]*")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[-+]?[\d.,_:]+(?:[a-zA-Z%]{1,3})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")
_INNER_SYMBOL = re.compile(r"\w[!@#$%^&*+=~?][\w!@#$%^&*]|[!@#$%^&*]{1,3}\Z")
_CAMEL_WORD = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")


@cache
def _placeholders() -> re.Pattern[str]:
    return re.compile(_PLACEHOLDERS, re.VERBOSE | re.DOTALL)


def is_reference(value: str) -> bool:
    """A placeholder, an environment reference, a template variable, a type or a call."""
    head = value[:JUDGED]
    if _placeholders().fullmatch(head) or _DOTTED.fullmatch(head):
        return True
    words = _WORD_BREAK.split(head.lower())
    return not STAND_INS.isdisjoint(words) and all(word.isalpha() for word in words if word)


def is_camel_case(value: str) -> bool:
    """The name of a class or a variable: `UserModel`, `userModel`."""
    return _CAMEL_WORD.fullmatch(value[:JUDGED]) is not None


def is_prose(value: str) -> bool:
    """Words of a sentence rather than one value."""
    words = value[:JUDGED].split()
    return len(words) > 1 and any(word.strip(".,:;!?()").lower() in SENTENCE_WORDS for word in words)


def looks_mixed(value: str, least: int) -> bool:
    """Long enough, and with letters and digits."""
    head = value[:JUDGED]
    return len(value) >= least and bool(_LETTER.search(head)) and bool(_DIGIT.search(head))


def looks_random(value: str) -> bool:
    """Text that nobody would write by hand: for names that say little."""
    head = value[:JUDGED]
    if len(value) < _RANDOM or _UUID.fullmatch(head) or _DATE.fullmatch(head) or " " in head:
        return False
    return looks_mixed(head, _RANDOM) and not re.search(r"[/:\\]", head[:12])


def looks_chosen(value: str) -> bool:
    """A value as it stands in prose: letters with a digit or an inner symbol, no date, number, address or path."""
    head = value[:JUDGED]
    if len(value) < _CHOSEN or _DATE.fullmatch(head) or _NUMBER.fullmatch(head) or "/" in head[:3] or "://" in head:
        return False
    return bool(_LETTER.search(head)) and bool(_DIGIT.search(head) or _INNER_SYMBOL.search(head))


def _is_plain_word(head: str) -> bool:
    return head.strip(".,;:!?").lower() in PLAIN_WORDS


def _password(value: str, *, bare: bool) -> bool:
    head = value[:JUDGED]
    if len(value) < _SHORTEST or (bare and _IDENTIFIER.fullmatch(head)):
        return False
    if head.isdigit():
        return len(value) >= _PIN
    return not _NUMBER.fullmatch(head) or looks_mixed(head, _CHOSEN)


def _token(value: str) -> bool:
    head = value[:JUDGED]
    if _NUMBER.fullmatch(head) or _DATE.fullmatch(head):
        return False
    if looks_mixed(head, _CHOSEN):
        return True
    letters_only = _CAMEL_WORD.fullmatch(head) or _IDENTIFIER.fullmatch(head)
    return (
        bool(_LETTER.search(head)) and not letters_only and (len(value) >= _RANDOM or bool(_INNER_SYMBOL.search(head)))
    )


def is_credential(value: str, strength: Strength, *, bare: bool) -> bool:
    """Whether `value`, found under a name of that strength, is to be masked; `bare` says it stood without quotes."""
    if not value or not any(map(str.isalnum, value[:JUDGED])):
        return False
    if is_reference(value) or is_prose(value) or _is_plain_word(value[:JUDGED]):
        return False
    if strength is Strength.PASSWORD:
        return _password(value, bare=bare)
    return _token(value) if strength is Strength.TOKEN else looks_random(value)
