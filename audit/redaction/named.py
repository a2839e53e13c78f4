"""Find credentials by the name in front of them: `name=value`, `name: value`, `--name value`, markup and prose.

Judges the name, cuts the value out of its surroundings, quoted or bare, and judges the value. Works in linear time: a
value is judged by its first characters and read to its end only when it is masked.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cache, lru_cache
from string import ascii_letters, digits

from audit.redaction.patterns import (
    ABOUT_WORDS,
    COUNTED_WORDS,
    FILLER_WORDS,
    KEY_QUALIFIERS,
    PASSWORD_WORDS,
    PLAIN_KEYS,
    PLAIN_WORDS,
    SENTENCE_WORDS,
    STAND_INS,
    TOKEN_WORDS,
    WEAK_WORDS,
    Span,
    most_candidates,
)
from audit.repetition import possessive


class Strength(IntEnum):
    """How strongly a name suggests that its value is a credential."""

    NONE = 0
    WEAK = 1  # the value must look random
    TOKEN = 2  # the value must look like a token
    PASSWORD = 3  # any value that is not a word of prose or code


# --- Values behind a name ---

STEMS = ("pass", "pwd", "pw", "psk", "pswd", "secret", "token", "key", "auth", "cred", "bearer", "jwt", "sid", "sess",
         "csrf", "xsrf", "otp", "dsn", "salt", "pat", "licen")  # fmt: skip
_QUOTE = r"(?:\\{0,8}[\"'`]|&quot;|&\#34;|[“”])"
# For lower-cased text: a case-insensitive search is slow. The stem may stand anywhere in the name. What is clearly no
# value (a number behind `tokens`, a reference, a word in a sentence) is skipped here, where that is cheap.
_NAMED = re.compile(
    rf"""(?:(?P<password>pass|pwd|pw(?![a-z])|psk|pswd|otp(?![a-z]))
        |(?:api|access|secret|private|encryption|signing|license|auth|account|master)[ ]key
        |secret|token|key|auth|cred|bearer|jwt|sid(?![a-z])|sess(?:ion)?id|csrf|xsrf|dsn|salt|pat(?![a-z])|licen[sc]e)
    (?P<rest>[a-z0-9_.\-]{{0,48}}+(?>(?:\[[a-z0-9_]{{0,24}}\])?))
    (?:
        {_QUOTE}?\]?
        (?P<assign>
            [ \t]{{0,20}}+ :[ ]?[a-z][a-z0-9_\[\]|.]{{0,24}}+ [ ]?=[ ]?(?=[\"'`])       # password: str = "..."
          | [ \t]{{0,20}}+ (?: := | => | ={{1,3}} | -> | ::?(?!//|\?) | \?= ) [ \t]{{0,20}}+
            (?>(?:[|>][+-]?[ \t]{{0,4}}\n[ \t]{{1,20}}+                                  # password: |
              | \r?\n[ \t]{{1,20}}+(?=[^\s:]{{6,512}}+[ \t]{{0,4}}(?:\r?\n|\Z)))?)
          | [,;]?\s{{0,24}}+ (?>(?:\\{{0,8}}[\"'])?) value (?>(?:\\{{0,8}}[\"'])?) [ ]?[:=][ ]? # name="pw" value="..."
          | (?<=[\"'])[ \t]{{0,4}},[ \t]{{0,4}}(?=\\{{0,8}}[\"'])                              # ("password", "...")
          | (?>(?:[ \t][^<>\n]{{0,80}}+)?) > \s{{0,40}}+ (?=<!\[cdata\[|[^<]{{1,512}}+</)    # <password>...</password>
        )
        (?!\$[{{(]|\{{\{{|<[^!]|\*\*|(?:none|null|true|false|str|int|string|os\.|self\.|process\.|settings\.)\b|\s|\Z)
        (?(password)|(?!-?[0-9][0-9.,]{{0,11}}+(?:[\s}}\])/&;]|\Z)))
      | (?P<gap>[ \t]{{1,8}}+) (?=[\"'`\\]|[^\s\"'`]{{0,40}}[0-9!@\#$%^&*])
    )""",
    re.VERBOSE,
)
_FLAG = re.compile(
    r"-(?<![a-z0-9-]-)-?(?!-)[a-z0-9.-]{0,32}?(?:pass|pwd|pw|secret|token|key|auth|cred)[a-z0-9.-]{0,24}+"
    r"[ \t]{1,4}+(?=[^\s-]{3})"
)
_PROSE = re.compile(
    r"(?:password|passphrase|passcode|passwd|pwd|secret|token|api[ _-]?key|access[ _-]?key|credential|credentials)\b"
    r"[^\n.:=?!\"]{0,40}?\b(?:(?:is|was|are)(?:[ \t]{1,3}(?:now|set|changed|reset|been|currently|still|to|as)\b)*"
    r"|(?:set|changed|reset|updated|rotated)[ \t]{1,3}to)\b[ \t]{0,3}[:=]?[ \t\"'`“(\[]{0,6}"
)
_OPEN = re.compile(
    rf"(?:[\[(][ \t]{{0,4}})?(?:<!\[CDATA\[)?(?:!!\w{{1,12}} )?(?:[bruf@]{{1,2}}(?=[\"']))?(?P<quote>{_QUOTE})?",
    re.IGNORECASE,
)
# A bare value continues over `,`, `&`, `|` and `\` unless a new pair, an escape or the end of the list follows.
_BARE = (
    r"(?:[^\s\"'`<>\\;,&|\]]{1,128}+|,(?!\s|\Z|[\"']?[\w.-]{1,40}+[\"']?[=:])|\|(?!\s|\Z|\w{1,40}+=)|\](?!\])"
    r"|&(?!(?:amp;)?[\w.\-\[\]%]{1,60}+=|\Z|quot;|\#)|\\(?![nrtux\"'\\/]))"
)
_BARE_HEAD = re.compile(f"(?>{_BARE}{{1,4}})")
_BARE_WHOLE = re.compile(possessive(_BARE, "+"))
_CLOSERS = ")]}.,:!?”…"
_NAME_CHARACTERS = ascii_letters + digits + "_.$-"
# Behind a gap this is the next pair of a log line, not a value.
_PAIR = re.compile(r"[A-Za-z_][\w.-]{0,40}+[=:]")
# How far before its name a tag may begin.
_TAG = 64
QUOTED_MOST = 8192


def assignment_spans(text: str, low: str) -> Iterator[Span]:
    """Yield the values behind the name of a credential."""
    for stem in STEMS:
        if stem in low:
            break
    else:
        return
    done = 0
    left = most_candidates(text)
    for found in _NAMED.finditer(low):
        if found.start() < done:
            continue
        name = _whole_name(text, found.start(), found.end("rest"))
        strength = name_strength(name)
        # places.py reads headers with a scheme.
        if strength is Strength.NONE or name.lower().endswith("authorization"):
            continue
        if found["gap"]:
            span = _gap_span(text, found, name, strength)
        else:
            span = _assigned_span(text, found, strength)
        if span:
            done = span.end
            yield span
        left -= 1
        if left < 0:
            yield Span(0, len(text), "text")
            return
    yield from _flag_spans(text, low)
    yield from _prose_spans(text, low)


def _whole_name(text: str, start: int, end: int) -> str:
    before = text[max(0, start - 48) : start]
    return text[start - len(before) + len(before.rstrip(_NAME_CHARACTERS)) : end]


def _assigned_span(text: str, found: re.Match[str], strength: Strength) -> Span | None:
    separator = found["assign"]
    # `</password>` is a closing tag: what follows is not its value.
    if ">" in separator and "</" in text[max(0, found.start() - _TAG) : found.start()]:
        return None
    span = _value_span(text, found.end(), strength, separator)
    if span and separator.strip() == ",":
        # A list of field names looks like a pair: require more than a word, and no other name.
        value = text[span.start : span.end]
        if strength is Strength.WEAK or not looks_mixed(value, 6) or name_strength(value) >= Strength.TOKEN:
            return None
    return span


def _gap_span(text: str, found: re.Match[str], name: str, strength: Strength) -> Span | None:
    """`PASSWORD 'value'`, `ENV DB_PASSWORD value`, `with password value`."""
    start = found.end()
    # `pass` before a gap is a verb.
    if strength < Strength.TOKEN or name.lower() == "pass":
        return None
    if strength is Strength.PASSWORD and text[start] in "'\"`\\":
        return _value_span(text, start, strength, "=")
    telling = text[start] in "([" or (name.isupper() and "_" in name)
    value = text[start : bare_end(text, start)]
    telling = telling or not value.islower() or any(mark in value for mark in "!@#$%^&*") or looks_mixed(value, 20)
    if telling and looks_mixed(value, 8) and looks_chosen(value) and not _PAIR.match(value):
        return _value_span(text, start, strength, "=")
    return None


def _flag_spans(text: str, low: str) -> Iterator[Span]:
    """`--password value`"""
    for found in _FLAG.finditer(low):
        strength = name_strength(text[found.start() : found.end()].strip())
        span = _value_span(text, found.end(), strength, "=") if strength >= Strength.TOKEN else None
        # `--password is deprecated`: a word with another behind it is prose.
        if span and not (text[span.start : span.end].isalpha() and text[span.end : span.end + 2].strip().isalpha()):
            yield span


def _prose_spans(text: str, low: str) -> Iterator[Span]:
    for found in _PROSE.finditer(low):
        if looks_chosen(text[found.end() : bare_end(text, found.end())]):
            span = _value_span(text, found.end(), Strength.PASSWORD, "=")
            if span:
                yield span


def _value_span(text: str, start: int, strength: Strength, separator: str) -> Span | None:
    opening = _OPEN.match(text, start)
    quote = opening["quote"] if opening else None
    first = opening.end() if opening else start
    quoted = quoted_end(text, first, quote) if quote else None
    end = bare_end(text, first) if quoted is None else quoted
    value = text[first:end]
    if not is_credential(value, strength, bare=quoted is None):
        return None
    if quoted is None and _bare_is_word(text, end, value, separator):
        return None
    if quoted is None:
        end = bare_end(text, first, _BARE_WHOLE)
    return Span(first, end, "password" if strength is Strength.PASSWORD else "secret")


def _bare_is_word(text: str, end: int, value: str, separator: str) -> bool:
    """Whether a bare alphabetic value is code or prose: more of either follows, or it is spelled like a class."""
    if not value.isalpha():
        return False
    spaced = separator != separator.strip()
    if not (value.islower() or value.istitle()):
        return spaced and _CAMEL_WORD.fullmatch(value[:JUDGED]) is not None
    following = text[end : end + 1]
    return following in (")", ",", "(", "[") or (spaced and following == " ")


def quoted_end(text: str, start: int, quote: str) -> int | None:
    """Return where a quoted value ends: the next quote of the same kind and escape level on the line."""
    closing = {"“": "”", "”": "”"}.get(quote, quote)
    limit = start + QUOTED_MOST
    end = text.find(closing, start, limit)
    while end > start and len(closing) == 1 and text[end - 1] == "\\" and _odd_backslashes(text, start, end):
        end = text.find(closing, end + 1, limit)
    if end < 0 or "\n" in text[start:end]:
        return None
    return end


def _odd_backslashes(text: str, start: int, end: int) -> bool:
    run = text[max(start, end - 64) : end]
    return (len(run) - len(run.rstrip("\\"))) % 2 == 1


def bare_end(text: str, start: int, expression: re.Pattern[str] = _BARE_HEAD) -> int:
    """Return where a bare value ends, without the punctuation that closes what surrounds it."""
    found = expression.match(text, start)
    if not found:
        return start
    value = found[0]
    return start + len(value.rstrip(_CLOSERS if "(" not in value[:-1] else ".,:!?"))


def lowered(text: str) -> str:
    """Return lower case with the same offsets; a few letters grow when lowered."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


# --- Names: does `dbPassword`, `X-Api-Key` or `token_budget` denote a credential? ---

_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passcode", "pwd")
_TOKEN_ENDS = ("secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "authorization")


@lru_cache(maxsize=4096)
def name_strength(name: str) -> Strength:
    """Return how strongly `name` denotes a credential."""
    words = [word.lower() for word in _SPLIT.findall(name[-96:]) if not word.isdigit()]
    while words and words[-1] in FILLER_WORDS:
        words.pop()
    # `$secret` names a handle, and a secret passed by handle is not in the text.
    if not words or "$" in name or (words[-1] in ABOUT_WORDS and not _hashed_password(words)):
        return Strength.NONE
    if words[-1] == "key":
        return _key_strength(words)
    strength = max(map(_word_strength, words))
    if strength is Strength.TOKEN and _word_strength(words[-1]) is Strength.NONE:
        # `token-color`, `secret_santa_group`: the last word names the thing.
        return Strength.WEAK
    if strength is Strength.TOKEN and COUNTED_WORDS.intersection(words[:-1]):
        return Strength.NONE
    return strength


def _key_strength(words: list[str]) -> Strength:
    """Judge a name whose last word is `key`: the word before it decides."""
    before = words[-2:-1]
    if not before or before[0] in PLAIN_KEYS:
        return Strength.NONE
    if before[0] in KEY_QUALIFIERS:
        return Strength.TOKEN
    return max(Strength.WEAK, *map(_word_strength, words[:-1]))


def _hashed_password(words: list[str]) -> bool:
    return words[-1] in ("hash", "hashed") and bool(PASSWORD_WORDS.intersection(words))


def _word_strength(word: str) -> Strength:
    if word in PASSWORD_WORDS or word.endswith(_PASSWORD_ENDS):
        return Strength.PASSWORD
    if word in TOKEN_WORDS or word.endswith(_TOKEN_ENDS):
        return Strength.TOKEN
    return Strength.WEAK if word in WEAK_WORDS else Strength.NONE


# --- Values: a credential, or a placeholder, a reference, a piece of code or a word of prose? ---

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
    | \{\$secret                                  # {$secret: name}, the handle of a secret
    | \{\{.* | \{%.* | \{[\w.:!]*+(?:\}.*)? | \{[a-z_]+\(.* | <%.*
    | <[^<>]*>?.* | \[[A-Za-z][\w -]*\]? | \[\W*
    | [*x•·.?_#+=~-]{2,}+ | X{2,}+ | [*•]+.*      # masks
    | (?:\w{0,4}[*•]{3,}|\w{0,4}\.{3}|[^\s]{0,12}…).*
    | !(?:vault|Ref|Sub|GetAtt|secret|env|var|ImportValue|Join|reference)\b.* | ENC\[.* | AQICAH.*
    | (?:vault|secret|op|ssm|aws-sm|gcp-sm|azure-kv|keyring|file|env|ref|secretsmanager|awssm|https?|kms|sm)://?.*
    | (?:vault|ref|env|secretref|valueFrom|keychain|keyring|file|ssm|secret):[\w/.{@-].*
    | arn:aws.* | projects/.*/secrets/.* | @?(?:~|\.{1,2})/.*
    | @?/(?:run|etc|var|home|tmp|opt|usr|mnt|app|data|root|Users|srv|secrets|proc|dev|vault|path|api|v\d)/.*
    | [A-Z]:\\.* | /(?>(?:[a-z][a-z0-9_.-]*+/)*)[a-z0-9_.-]*+
    | (?:os|process|settings|config|self|cls|this|request|args|kwargs|opts|options|params|env|environ|secrets|vars|var
        |local|data|conf|cfg|ctx|context|props|state|user|account|client|session|response|resp|req|body|payload|event
        |form|app|import\.meta|System|Deno|Bun|ENV|window|document|module|random|uuid|faker|fake|crypto|hashlib|github
        |inputs|steps|Environment|Configuration|builder|credentials|creds)
        (?:\[.*|(?:\.|->|::|\?\.)[A-Za-z_]++\d{0,2}+[A-Za-z_]*+(?:\W.*)?)
    | (?:new|await|return|lambda|function|async|yield|raise|not|if|else)(?:\ .*)?
    | [A-Za-z_][A-Za-z_.:]*+\d{0,2}+[A-Za-z_.:]*+!?\(.*  # call()
    | [A-Za-z_]\w*+(?>(?:\.[A-Za-z_]\w*+)+)\(.*
    | \S{0,40}?\[\^?(?:a-z|A-Z|0-9|\\[wd]).*      # an expression for values
    | [A-Za-z_]\w*+\[.*                            # index[...], Optional[str]
    | [A-Za-z_]\w*+(?:->|::)[A-Za-z_].*
    | (?:Optional|Union|List|Dict|SecretStr|Annotated|Literal|Final)\b.*
    """
_DOTTED = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+|(?>(?:[a-z_]++\.){2,})[A-Za-z_]++\d?+[A-Za-z_]*+")
_WORD_BREAK = re.compile(r"[-_. ]")
_IDENTIFIER = re.compile(r"[A-Za-z]*_[A-Za-z_]*")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[-+]?[\d.,_:]+(?:[a-zA-Z%]{1,3})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")
_INNER_SYMBOL = re.compile(r"\w[!@#$%^&*+=~?][\w!@#$%^&*]|[!@#$%^&*]{1,3}\Z")
_CAMEL_WORD = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")


def is_credential(value: str, strength: Strength, *, bare: bool) -> bool:
    """Whether to mask a value found behind a name of that strength; `bare`: it stood without quotes."""
    head = value[:JUDGED]
    if not any(map(str.isalnum, head)) or is_reference(value) or is_prose(value):
        return False
    if head.strip(".,;:!?").lower() in PLAIN_WORDS:
        return False
    if strength is Strength.PASSWORD:
        return _password(value, bare=bare)
    return _token(value) if strength is Strength.TOKEN else looks_random(value)


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


def is_prose(value: str) -> bool:
    """Whether these are words of a sentence rather than one value."""
    words = value[:JUDGED].split()
    return len(words) > 1 and any(word.strip(".,:;!?()").lower() in SENTENCE_WORDS for word in words)


def is_reference(value: str) -> bool:
    """Whether this is a placeholder, an environment reference, a template variable, a type or a call."""
    head = value[:JUDGED]
    if _placeholders().fullmatch(head) or _DOTTED.fullmatch(head):
        return True
    words = _WORD_BREAK.split(head.lower())
    return not STAND_INS.isdisjoint(words) and all(word.isalpha() for word in words if word)


@cache
def _placeholders() -> re.Pattern[str]:
    return re.compile(_PLACEHOLDERS, re.VERBOSE | re.DOTALL)


def looks_mixed(value: str, least: int) -> bool:
    """Whether a value is long enough and has letters and digits."""
    head = value[:JUDGED]
    return len(value) >= least and bool(_LETTER.search(head)) and bool(_DIGIT.search(head))


def looks_random(value: str) -> bool:
    """Whether nobody would write this by hand: the test behind weak names."""
    head = value[:JUDGED]
    if len(value) < _RANDOM or _UUID.fullmatch(head) or _DATE.fullmatch(head) or " " in head:
        return False
    return looks_mixed(head, _RANDOM) and not re.search(r"[/:\\]", head[:12])


def looks_chosen(value: str) -> bool:
    """Whether this is a value rather than a word of prose: letters with a digit or an inner symbol, no date or path."""
    head = value[:JUDGED]
    if len(value) < _CHOSEN or _DATE.fullmatch(head) or _NUMBER.fullmatch(head) or "/" in head[:3] or "://" in head:
        return False
    return bool(_LETTER.search(head)) and bool(_DIGIT.search(head) or _INNER_SYMBOL.search(head))
