"""Find credentials by their place: headers, cookies, URLs, webhook paths, commands, forms.

A place is an anchor (`authorization`, `://`, ` -p`), an expression for what follows it, and a test of the value.
Expressions run on lower-cased text, where a search keeps its literal prefix; values are tested as they are spelled.
Also decodes escaped text into readings that are searched like any text. Does not judge assignments: named.py does.
"""

import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from audit.redaction.named import is_reference, looks_mixed
from audit.redaction.patterns import COOKIE_ATTRIBUTES, STOP_WORDS, Span, most_candidates
from audit.repetition import possessive


@dataclass(frozen=True)
class Place:
    """An anchor and what follows it; with `within`, only after one of these commands.

    Most anchors never occur in a process: an expression is compiled when its anchor is first met.
    """

    kind: str
    anchor: str
    written: str
    test: Callable[[str], bool]
    within: tuple[str, ...]

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.written)


def place_spans(text: str, low: str) -> Iterator[Span]:
    """Yield the values that stand where credentials stand."""
    left = most_candidates(text)
    for place in _places_for(low):
        for found in place.expression.finditer(low):
            start, end = found.span("value")
            if place.test(text[start:end]) and _after_command(place, low, found.start()):
                yield Span(start, end, place.kind)
            left -= 1
            if left < 0:
                yield Span(0, len(text), "text")
                return
    if "cookie" in low:
        yield from _cookie_spans(text, low)


def _places_for(low: str) -> Iterator[Place]:
    """Yield the places whose anchor, and command if they have one, occur in the text."""
    for part, places in _GROUPS:
        if part in low:
            for place in places:
                if place.anchor in low and (not place.within or any(word in low for word in place.within)):
                    yield place


# How far before a flag its command is looked for.
_COMMAND_LENGTH = 400


def _after_command(place: Place, low: str, start: int) -> bool:
    if not place.within:
        return True
    line = low[max(start - _COMMAND_LENGTH, 0) : start].rpartition("\n")[2]
    return any(word in line for word in place.within)


def _cookie_spans(text: str, low: str) -> Iterator[Span]:
    """Yield the values of a cookie header that could carry a session."""
    at = 0
    for header in _COOKIE.finditer(low):
        if header.start() < at:
            continue
        at = header.end()
        while crumb := _CRUMB.match(text, at):
            name, value = crumb[1].lower(), crumb[2]
            named = len(value) >= _SESSION_LEAST and _SESSION_NAME.search(name)
            if name not in COOKIE_ATTRIBUTES and is_real(value) and (named or looks_mixed(value, 10)):
                yield Span(crumb.start(2), crumb.end(2), "cookie")
            at = crumb.end()


# --- Tests of a value ---

_LONG = 16
# Longer than words with a hyphen or a slash are.
_LONG_WORD = 24


def is_real(value: str) -> bool:
    """Whether a value is more than a placeholder, a reference or punctuation."""
    return any(map(str.isalnum, value[:64])) and not is_reference(value)


def _is_opaque(value: str) -> bool:
    """For a value behind a bare scheme word: mixed or long, so that `bearer of bad news` stays."""
    least = _LONG if value.isalpha() else _LONG_WORD
    return is_real(value) and (looks_mixed(value, 8) or len(value) >= least)


def _is_header(value: str) -> bool:
    return is_real(value) and (len(value) >= _LONG or not value.isalpha())


def _is_pair(value: str) -> bool:
    """Whether the value is base64 of `user:password`."""
    try:
        return b":" in b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return False


def _is_password(value: str) -> bool:
    return is_real(value) and value.lower() not in STOP_WORDS


def _is_chosen(value: str) -> bool:
    return _is_password(value) and not value.isdigit() and "/" not in value[:2]


def _is_random(value: str) -> bool:
    return is_real(value) and looks_mixed(value, 16)


def _is_long(value: str) -> bool:
    return is_real(value) and len(value) >= _LONG


# --- The table: kind, anchors, what follows an anchor, test of the value, commands ---
#
# Expressions are written for lower-cased text.

QUOTE = r"\\{0,8}[\"'`]"
_OPEN = rf"(?:{QUOTE})?"
_OPAQUE = r"[a-z0-9._~+/%|:!@$^*-]"
_SCHEMES = (
    "bearer|basic|token|apikey|api-key|digest|negotiate|ntlm|ssws|splunk|bot|key|sharedkey|sharedkeylite|oauth|geniekey"
    "|genie-key|jwt|hmac|hawk|mac|privatetoken|zoho-oauthtoken|klaviyo-api-key|discogs|apitoken|personal"
)
_HOST = r"(?=(?:[\w.%-]{1,253}+|\[[0-9a-f:.%]{2,60}\]|\$\{?\w{1,80}\}?|\{\w{1,80}\})(?:[:/?#,;\s\"'`)\]}>\\&|]|\Z))"
_WORD = r"[^\s\"'`\\<>]"
_CREDENTIAL_VALUE = r"(?P<value>[\w%+/=~.-]{16,}+)"
_PATH_VALUE = r"(?P<value>[\w/+-]{8,}+)"
_USERINFO = r"[^\s/?#@:\"'<>`\\]{0,200}+:"
_AUTHORIZATION = (
    rf"(?:(?:{QUOTE})?\]?\s{{0,8}}+(?:[:=]|=>)|{QUOTE}\s{{0,4}}+,(?=\s{{0,4}}+b?{QUOTE}))"
    rf"\s{{0,8}}+(?:[\[(]\s{{0,4}}+)?(?:b(?=['\"]))?{_OPEN}\s{{0,4}}+"
    rf"(?!aws4-|digest\s|oauth\s)(?:(?:{_SCHEMES})(?>(?:[ \t:]|%20){{1,4}}))?"
    rf"(?:token=)?\"?(?P<value>{_OPAQUE}{{4,}}+=*+)"
)
# Passwords in URLs may hold `@`: they end at the last one before the host.
_URL_PASSWORD = rf"(?P<value>[^\s/?#@\"'<>`\\]{{0,512}}+(?:@[^\s/?#@\"'<>`\\]{{0,200}}+){{0,4}})@{_HOST}"
# Elsewhere than in http they also hold `/`, `?` and `#`, unless that is a port and a path.
_OTHER_URL_PASSWORD = (
    rf"(?<!http://)(?<!https://){_USERINFO}(?!\d{{1,5}}(?:[/?#]|\Z))"
    rf"(?P<value>[^\s@\"'<>`\\]{{0,128}}+(?:@[^\s@\"'<>`\\]{{0,200}}+){{0,4}})@{_HOST}"
)
_FORM_FIELD = (
    r"(?:\\{0,8}[\"'])?[\w-]{0,24}?(?:password|passwd|token|secret|api_?key)[\w-]{0,8}+(?:\\{0,8}[\"'])?"
    r"(?>(?:\s|\\r|\\n){2,8})(?P<value>[^\s\"'<>\\]{3,512}+)"
)
_SQL_PASSWORD = (
    r"(?:with\s{1,4}+\S{1,40}+\s{1,4}+)?(?:by|as)\s{1,4}+(?:password\s{1,4}+)?"
    rf"\\{{0,8}}[\"'](?P<value>{_WORD}{{1,256}}+)"
)
_FLAG_VALUE = rf"(?:[= \t]{{1,3}}+{_OPEN}|{QUOTE}|(?=\S))(?P<value>[^\s\"'`\\=-]{_WORD}{{2,128}}+)"
_COOKIE = re.compile(rf"cookie(?:{QUOTE})?\s{{0,4}}(?:[:=,]|=>)\s{{0,4}}(?:[\[(]\s{{0,4}})?(?:{QUOTE})?")
_CRUMB = re.compile(
    r"[ \t]*([\w.$%!#~:-]{1,80})=\"?([^;\s\"'\\,]*+)\"?(?:;|,(?=\s{0,4}[\w.-]{1,80}=)|(?=[\s\"'\\,]|\Z))", re.ASCII
)
_SESSION_LEAST = 4
_SESSION_NAME = re.compile(r"sess|sid|auth|token|login|secret|jwt|csrf|xsrf|remember|sso|identity|ticket")

ANCHORS: tuple[tuple[str, str, str, Callable[[str], bool], str], ...] = (
    # Headers: the scheme stays, what follows is masked.
    ("authorization", "authorization", _AUTHORIZATION, _is_header, ""),
    ("authorization", "aws4-hmac-sha256", r"[^\n]{0,300}?signature=(?P<value>[0-9a-f]{32,}+)", is_real, ""),
    ("authorization", "digest username", r"=[^\n]{0,300}?response=\\{0,4}\"?(?P<value>[0-9a-f]{16,}+)", is_real, ""),
    ("authorization", "oauth_signature=|oauth_token=", r"\\{0,4}\"?(?P<value>[\w%+/=-]{16,}+)", is_real, ""),
    ("bearer", "bearer", rf"(?>(?:[ \t:=+]|%20|{QUOTE}){{1,4}})(?P<value>{_OPAQUE}{{8,}}+=*+)(?!\w)", _is_opaque, ""),
    ("bearer", "ssws|flyv1|apikey|geniekey", r"[ \t]{1,3}(?P<value>[\w.~+/=,-]{12,}+)", _is_opaque, ""),
    ("basic", "basic", r"(?:[ \t]|%20){1,3}(?P<value>[a-z0-9+/_-]{6,8192}+={0,2})", _is_pair, ""),
    ("docker-auth", "auth",
     rf"(?:{QUOTE})?\s{{0,4}}[:=]\s{{0,4}}{_OPEN}(?P<value>[a-z0-9+/_-]{{6,8192}}+={{0,2}})", _is_pair, ""),
    # Addresses.
    ("url-password", "://", _USERINFO + _URL_PASSWORD, _is_password, ""),
    ("url-password", "://", _OTHER_URL_PASSWORD, _is_password, ""),
    ("url-token", "://", rf"(?P<value>[a-z0-9_.~%-]{{20,255}}+):?(?:x-oauth-basic)?@{_HOST}", _is_random, ""),
    ("url-signature", "?sig=|&sig=|;sig=|?signature=|&signature=|;signature=|-signature=",
     _CREDENTIAL_VALUE, _is_long, ""),
    ("url-key", "?key=|&key=|;key=|?code=|&code=|;code=|?auth=|&auth=", _CREDENTIAL_VALUE, _is_random, ""),
    # Addresses whose path is the credential.
    ("webhook", "hooks.slack.com/services/|hooks.slack.com/workflows/|hooks.slack.com/triggers/",
     _PATH_VALUE, is_real, ""),
    ("webhook", "hooks.slack-gov.com/services/|hooks.zapier.com/hooks/catch/|/with/key/", _PATH_VALUE, is_real, ""),
    ("webhook", "/api/webhooks/", r"(?P<value>\d{5,30}/[\w-]{8,}+)", is_real, ""),
    ("webhook", "webhook.office.com/|outlook.office.com/|outlook.office365.com/",
     r"webhookb?2?/(?P<value>[\w@/.-]{16,}+)", is_real, ""),
    ("webhook", "feishu.cn/|larksuite.com/", r"open-apis/bot/(?:v2/)?hook/(?P<value>[\w-]{16,}+)", is_real, ""),
    ("webhook", "/hooks/", r"(?P<value>[a-z0-9]{26})(?![\w/.-])", _is_random, ""),
    ("webhook", "pagerduty.com/", r"(?:integration|x-ere|generic)/(?P<value>[\w/-]{16,}+)", is_real, ""),
    ("webhook", "hooks.tray.io/|hook.integromat.com/|.make.com/|webhook.site/",
     r"(?P<value>[\w/-]{20,}+)", is_real, ""),
    ("telegram-token", "/bot", r"(?P<value>\d{5,16}(?::|%3a)[\w-]{20,}+)", is_real, ""),
    # Commands.
    ("curl-user", " -u| --user| --proxy-user| -a| --auth",
     rf"(?:[= \t]{{1,3}}|(?=[\w\"'])){_OPEN}[^\s:\"'`/]{{1,128}}+:(?P<value>[^\s\"'`\\]{{1,256}}+)", _is_chosen,
     "curl|wget|http "),
    ("cli-password", " -p", rf"{_OPEN}(?P<value>[^\s\"'`\\-]{_WORD}{{2,128}}+)", _is_password, "mysql|mariadb"),
    ("cli-password", " -p| -pw", _FLAG_VALUE, _is_chosen, "sshpass|login|mongo|plink|pscp"),
    ("cli-password", " -a", _FLAG_VALUE, _is_chosen, "redis-cli"),
    ("cli-password", " -w", _FLAG_VALUE, _is_chosen, "ldapsearch|ldapadd|ldapmodify|ldapwhoami"),
    ("cli-password", "htpasswd -",
     rf"[a-z]{{0,6}}b[a-z]{{0,6}}\s{{1,3}}+(?:\S{{1,200}}+\s{{1,3}}+){{1,2}}{_OPEN}(?P<value>{_WORD}{{3,128}}+)",
     _is_chosen, ""),
    ("cli-password", " -u", r"\s{0,2}['\"]?[^\s%'\"]{1,80}+%(?P<value>[^\s'\"]{3,128}+)", _is_password,
     "smb|rpcclient|wmi|net rpc"),
    ("cli-password", "requirepass |masterauth ", rf"{_OPEN}(?P<value>{_WORD}{{4,256}}+)", _is_chosen, ""),
    ("cli-password", "rabbitmqctl ",
     rf"(?:add_user|change_password) \S{{1,128}}+ {_OPEN}(?P<value>{_WORD}{{3,128}}+)", _is_chosen, ""),
    ("cli-password", "echo ",
     rf"(?:-n )?{_OPEN}(?P<value>[^\s\"'|`\\]{{3,256}}+)[\"']?\s{{0,3}}\|\s{{0,3}}(?:sudo|\w{{1,12}} login|chpasswd)",
     _is_chosen, ""),
    ("cli-password", "login ", r"\S{1,128}+\s{1,40}+password\s{1,8}+(?P<value>\S{1,256}+)", _is_password, ""),
    ("cli-password", "pass:", r"(?P<value>[^\s'\"]{3,256}+)", _is_password, "openssl"),
    ("sql-password", "identified ", _SQL_PASSWORD, is_real, ""),
    ("form-password", "name=", _FORM_FIELD, _is_header, ""),
    ("html-password", "type=",
     r"[\"']?password[\"']?[^<>]{0,200}?\svalue=[\"'](?P<value>[^\"'<>]{3,256}+)", _is_password, ""),
)  # fmt: skip
# Parts that many anchors share: if the part does not occur, none of its anchors does.
_SHARED = ("://", "sig", "hook", " -", "key=", "code=", "auth", ".com/", "")


def _places() -> tuple[Place, ...]:
    places = []
    for kind, anchors, rest, test, within in ANCHORS:
        for anchor in anchors.split("|"):
            word = rf"(?<![a-z]{re.escape(anchor)})" if anchor[0].isalpha() else ""
            written = re.escape(anchor) + word + rest
            places.append(Place(kind, anchor, written, test, tuple(within.split("|")) if within else ()))
    return tuple(places)


def _by_shared_part() -> dict[str, list[Place]]:
    groups: dict[str, list[Place]] = {}
    for place in PLACES:
        groups.setdefault(next(part for part in _SHARED if part in place.anchor), []).append(place)
    return groups


PLACES = _places()
_GROUPS = tuple(_by_shared_part().items())
# No place is in a lowered text that has none of these.
PLACE_SIGNS = ("cookie", *(part or place.anchor for part, places in _GROUPS for place in places))


# --- Decoded readings: percent escapes, JSON and Python escapes, HTML entities ---
#
# Readings are only searched: a span found in one is mapped back to the characters that spell it in the text.

_ESCAPE = re.compile(
    possessive("%[0-9A-Fa-f]{2}", "+")
    + "|"
    + possessive(r"\\u[0-9A-Fa-f]{4}", "+")
    + r"|\\{1,8}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])"
    r"|&(?:quot|apos|amp|lt|gt|\#\d{1,3}|\#x[0-9A-Fa-f]{1,4});"
)
_NAMED = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
READINGS = 3
# Lines this far from any escape are left out of a reading.
_FAR = 512
_UNIT = len("\\u0000")


class Reading:
    """One decoded reading, and where each of its pieces stands in the original."""

    def __init__(self, text: str) -> None:
        self._parts: list[str] = []
        # Per piece: its offset in the reading; its offset in the original and the width of a character there.
        self._here: list[int] = []
        self._there: list[tuple[int, int]] = []
        self._length = last = 0
        for found in _ESCAPE.finditer(text):
            start, end = found.span()
            if start - last > _FAR:
                last = self._skip_lines(text, last, start)
            if start > last:
                self._append(text[last:start], last, 1)
            self._append(*_decoded(found[0], start))
            last = end
        self.escapes = bool(self._parts)
        self._append(text[last:], last, 1)
        self.text = "".join(self._parts)

    def _append(self, part: str, start: int, step: int) -> None:
        self._parts.append(part)
        self._here.append(self._length)
        self._there.append((start, step))
        self._length += len(part)

    def _skip_lines(self, text: str, start: int, end: int) -> int:
        """Finish the line at `start`, leave out those up to the line of `end`, return where that one begins."""
        first = text.find("\n", start, end) + 1
        if not first:
            return start
        self._append(text[start:first], start, 1)
        return text.rfind("\n", start, end) + 1

    def _back(self, offset: int) -> int:
        at = bisect_right(self._here, offset) - 1
        start, step = self._there[at]
        return start + (offset - self._here[at]) * step

    def original(self, span: Span) -> Span:
        """Map a span of the reading to the text that was decoded."""
        return Span(self._back(span.start), self._back(span.end), span.kind)


def readings(text: str) -> list[Reading]:
    """Decode `text` again and again, at most READINGS times, until nothing is left to decode."""
    result: list[Reading] = []
    while len(result) < READINGS and ("%" in text or "\\" in text or "&" in text):
        reading = Reading(text)
        if not reading.escapes:
            break
        result.append(reading)
        text = reading.text
    return result


def _decoded(escape: str, start: int) -> tuple[str, int, int]:
    """Return what a run of like escapes spells, where it starts, and the length of each escape."""
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("latin-1"), start, 3
    if escape[0] == "&":
        return _entity(escape[1:-1]), start, len(escape)
    if escape[1] == "u":
        return "".join(chr(int(unit, 16)) for unit in escape[2:].split("\\u")), start, _UNIT
    body = escape.lstrip("\\")
    return chr(int(body[1:], 16)) if len(body) > 1 else _LETTERS.get(body, body), start, len(escape)


def _entity(name: str) -> str:
    if name[0] != "#":
        return _NAMED[name]
    return chr(int(f"0{name[1:]}", 16) if name[1] == "x" else int(name[1:]))
