"""Finds credentials by the name in front of them: `name=value`, `name: value`, `--name value`, markup and prose.

Owns how a value is cut out of its surroundings, quoted or bare. Names and values are judged elsewhere. Works in linear
time: a value is judged by its first characters and read on only when it is masked.
"""

import re
from collections.abc import Iterator
from string import ascii_letters, digits

from audit.redaction.names import Strength, name_strength
from audit.redaction.spans import Span, most_candidates
from audit.redaction.values import is_camel_case, is_credential, looks_chosen, looks_mixed

STEMS = ("pass", "pwd", "pw", "psk", "pswd", "secret", "token", "key", "auth", "cred", "bearer", "jwt", "sid", "sess",
         "csrf", "xsrf", "otp", "dsn", "salt", "pat", "licen")  # fmt: skip
_QUOTE = r"(?:\\{0,8}[\"'`]|&quot;|&\#34;|[“”])"
# Read on lower-cased text: a case-blind search would lose its speed. The stem may stand anywhere in the name. What is
# plainly no value (a number behind `tokens`, a reference, a word in a sentence) is passed over here, where it is cheap.
_NAMED = re.compile(
    rf"""(?:(?P<password>pass|pwd|pw(?![a-z])|psk|pswd|otp(?![a-z]))
        |(?:api|access|secret|private|encryption|signing|license|auth|account|master)[ ]key
        |secret|token|key|auth|cred|bearer|jwt|sid(?![a-z])|sess(?:ion)?id|csrf|xsrf|dsn|salt|pat(?![a-z])|licen[sc]e)
    (?P<rest>[a-z0-9_.\-]{{0,48}}+(?:\[[a-z0-9_]{{0,24}}\])?+)
    (?:
        {_QUOTE}?\]?
        (?P<assign>
            [ \t]{{0,20}}+ :[ ]?[a-z][a-z0-9_\[\]|.]{{0,24}}+ [ ]?=[ ]?(?=[\"'`])       # password: str = "..."
          | [ \t]{{0,20}}+ (?: := | => | ={{1,3}} | -> | ::?(?!//|\?) | \?= ) [ \t]{{0,20}}+
            (?:[|>][+-]?[ \t]{{0,4}}\n[ \t]{{1,20}}+                                     # password: |
              | \r?\n[ \t]{{1,20}}+(?=[^\s:]{{6,512}}+[ \t]{{0,4}}(?:\r?\n|\Z)))?+
          | [,;]?\s{{0,24}}+ (?:\\{{0,8}}[\"'])?+ value (?:\\{{0,8}}[\"'])?+ [ ]?[:=][ ]? # name="password" value="..."
          | (?<=[\"'])[ \t]{{0,4}},[ \t]{{0,4}}(?=\\{{0,8}}[\"'])                              # ("password", "...")
          | (?:[ \t][^<>\n]{{0,80}}+)?+ > \s{{0,40}}+ (?=<!\[cdata\[|[^<]{{1,512}}+</)    # <password>...</password>
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
_NAME_CHARACTERS = ascii_letters + digits + "_.$-"
_PROSE = re.compile(
    r"(?:password|passphrase|passcode|passwd|pwd|secret|token|api[ _-]?key|access[ _-]?key|credential|credentials)\b"
    r"[^\n.:=?!\"]{0,40}?\b(?:(?:is|was|are)(?:[ \t]{1,3}(?:now|set|changed|reset|been|currently|still|to|as)\b)*"
    r"|(?:set|changed|reset|updated|rotated)[ \t]{1,3}to)\b[ \t]{0,3}[:=]?[ \t\"'`“(\[]{0,6}"
)
_OPEN = re.compile(
    rf"(?:[\[(][ \t]{{0,4}})?(?:<!\[CDATA\[)?(?:!!\w{{1,12}} )?(?:[bruf@]{{1,2}}(?=[\"']))?(?P<quote>{_QUOTE})?",
    re.IGNORECASE,
)
# A bare value goes on over `,`, `&`, `|` and `\` unless a new pair, an escape or the end of the list follows.
_BARE = (
    r"(?:[^\s\"'`<>\\;,&|\]]{1,128}+|,(?!\s|\Z|[\"']?[\w.-]{1,40}+[\"']?[=:])|\|(?!\s|\Z|\w{1,40}+=)|\](?!\])"
    r"|&(?!(?:amp;)?[\w.\-\[\]%]{1,60}+=|\Z|quot;|\#)|\\(?![nrtux\"'\\/]))"
)
_BARE_HEAD = re.compile(_BARE + "{1,4}+")
_BARE_WHOLE = re.compile(_BARE + "++")
_CLOSERS = ")]}.,:!?”…"
QUOTED_MOST = 8192
# How far before its name a tag may begin.
_TAG = 64
# Behind a gap this is the next pair of a log line, not a value.
_PAIR = re.compile(r"[A-Za-z_][\w.-]{0,40}+[=:]")


def lowered(text: str) -> str:
    """Lower case with the same offsets; a few letters grow when lowered."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def quoted_end(text: str, start: int, quote: str) -> int | None:
    """Where the value opened by `quote` ends: the next quote of the same kind and escape level on the line."""
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
    """Where an unquoted value ends, without the punctuation that closes what is around it."""
    found = expression.match(text, start)
    if not found:
        return start
    value = found[0]
    return start + len(value.rstrip(_CLOSERS if "(" not in value[:-1] else ".,:!?"))


def _whole_name(text: str, start: int, end: int) -> str:
    before = text[max(0, start - 48) : start]
    return text[start - len(before) + len(before.rstrip(_NAME_CHARACTERS)) : end]


def _bare_is_word(text: str, end: int, value: str, separator: str) -> bool:
    """A bare alphabetic value is code or prose when more of either follows, or when it is spelled like a class."""
    if not value.isalpha():
        return False
    spaced = separator != separator.strip()
    if not (value.islower() or value.istitle()):
        return spaced and is_camel_case(value)
    following = text[end : end + 1]
    return following in (")", ",", "(", "[") or (spaced and following == " ")


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


def assignment_spans(text: str, low: str) -> Iterator[Span]:
    """Values that stand behind the name of a credential."""
    if not any(stem in low for stem in STEMS):
        return
    done = 0
    left = most_candidates(text)
    for found in _NAMED.finditer(low):
        if found.start() < done:
            continue
        name = _whole_name(text, found.start(), found.end("rest"))
        strength = name_strength(name)
        # Headers with a scheme are read in their place.
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


def _flag_spans(text: str, low: str) -> Iterator[Span]:
    """`--password value`"""
    for found in _FLAG.finditer(low):
        strength = name_strength(text[found.start() : found.end()].strip())
        span = _value_span(text, found.end(), strength, "=") if strength >= Strength.TOKEN else None
        # `--password is deprecated`: a word with another behind it is prose.
        if span and not (text[span.start : span.end].isalpha() and text[span.end : span.end + 2].strip().isalpha()):
            yield span


def _assigned_span(text: str, found: re.Match[str], strength: Strength) -> Span | None:
    separator = found["assign"]
    # `</password>` closes; what follows it belongs to something else.
    if ">" in separator and "</" in text[max(0, found.start() - _TAG) : found.start()]:
        return None
    span = _value_span(text, found.end(), strength, separator)
    if span and separator.strip() == ",":
        # A list of field names looks like a pair: ask for more than a word, and for no other name.
        value = text[span.start : span.end]
        if strength is Strength.WEAK or not looks_mixed(value, 6) or name_strength(value) >= Strength.TOKEN:
            return None
    return span


def _prose_spans(text: str, low: str) -> Iterator[Span]:
    for found in _PROSE.finditer(low):
        if looks_chosen(text[found.end() : bare_end(text, found.end())]):
            span = _value_span(text, found.end(), Strength.PASSWORD, "=")
            if span:
                yield span
