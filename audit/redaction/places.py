"""Find credentials by their place: headers, cookies, URLs, webhook paths, commands, forms.

A place is an anchor (`authorization`, `://`, ` -p`), an expression for what follows it, and a test of the value.
Expressions run on lower-cased text, where a search keeps its literal prefix; values are tested as they are spelled.
Also decodes escaped text into readings that are searched like any text. Does not judge assignments: named.py does.
"""

import html
import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from audit.redaction.named import is_reference, looks_mixed
from audit.redaction.patterns import COOKIE_ATTRIBUTES, STOP_WORDS, Rule, Span, after_boundary, most_candidates


@dataclass(frozen=True)
class Place(Rule):
    """An anchor and what follows it; with `within`, only after one of these commands."""

    test: Callable[[str], bool]
    within: tuple[str, ...]


def place_spans(text: str, low: str) -> Iterator[Span]:
    """Yield the values that stand where credentials stand."""
    left = most_candidates(text)
    for place in PLACES:
        if place.literal not in low:
            continue
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
# Longer than words are.
_LONG_WORD = 24


def is_real(value: str) -> bool:
    """Whether a value is more than a placeholder, a reference or punctuation."""
    return any(map(str.isalnum, value[:64])) and not is_reference(value)


def _is_opaque(value: str) -> bool:
    """For a value behind a bare scheme word: mixed or long, so that `bearer of bad news` stays."""
    return is_real(value) and (looks_mixed(value, 8) or len(value) >= _LONG_WORD)


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


# --- The table: kind, anchors, what follows an anchor, test of the value, commands ---
#
# Expressions are written for lower-cased text.

_QUOTE = r"[\"'`]"
_OPEN = rf"{_QUOTE}?"
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
    rf"(?:{_QUOTE}?\]?\s{{0,8}}+(?:[:=]|=>)|{_QUOTE}\s{{0,4}}+,(?=\s{{0,4}}+b?{_QUOTE}))"
    rf"\s{{0,8}}+(?:[\[(]\s{{0,4}}+)?(?:b(?=['\"]))?{_OPEN}\s{{0,4}}+"
    rf"(?!aws4-|digest\s|oauth\s)(?:(?:{_SCHEMES})(?:[ \t:]|%20){{1,4}}+)?(?:token=)?\"?(?P<value>{_OPAQUE}{{4,}}+=*+)"
)
# Passwords in URLs may hold `@`: they end at the last one before the host.
_URL_PASSWORD = rf"(?P<value>[^\s/?#@\"'<>`\\]{{0,512}}+(?:@[^\s/?#@\"'<>`\\]{{0,200}}+){{0,4}})@{_HOST}"
# Elsewhere than in http they also hold `/`, `?` and `#`, unless that is a port and a path.
_OTHER_URL_PASSWORD = (
    rf"(?<!http://)(?<!https://){_USERINFO}(?!\d{{1,5}}(?:[/?#]|\Z))"
    rf"(?P<value>[^\s@\"'<>`\\]{{0,128}}+(?:@[^\s@\"'<>`\\]{{0,200}}+){{0,4}})@{_HOST}"
)
_FORM_FIELD = (
    r"[\"']?[\w-]{0,24}?(?:password|passwd|token|secret|api_?key)[\w-]{0,8}+[\"']?"
    r"(?:\s|\\r|\\n){2,8}+(?P<value>[^\s\"'<>\\]{3,512}+)"
)
_SQL_PASSWORD = (
    r"(?:with\s{1,4}+\S{1,40}+\s{1,4}+)?(?:by|as)\s{1,4}+(?:password\s{1,4}+)?"
    rf"[\"'](?P<value>{_WORD}{{1,256}}+)"
)
_FLAG_VALUE = rf"(?:[= \t]{{1,3}}+{_OPEN}|{_QUOTE}|(?=\S))(?P<value>[^\s\"'`\\=-]{_WORD}{{2,128}}+)"
_COOKIE = re.compile(rf"cookie{_QUOTE}?\s{{0,4}}(?:[:=,]|=>)\s{{0,4}}(?:[\[(]\s{{0,4}})?{_QUOTE}?")
_CRUMB = re.compile(
    r"[ \t]*([\w.$%!#~:-]{1,80})=\"?([^;\s\"'\\,]*+)\"?(?:;|,(?=\s{0,4}[\w.-]{1,80}=)|(?=[\s\"'\\,]|\Z))", re.ASCII
)
_SESSION_LEAST = 4
_SESSION_NAME = re.compile(r"sess|sid|auth|token|login|secret|jwt|csrf|xsrf|remember|sso|identity|ticket")

ANCHORS: tuple[tuple[str, str, str, Callable[[str], bool], str], ...] = (
    # Headers: the scheme stays, what follows is masked.
    ("authorization", "authorization", _AUTHORIZATION, _is_header, ""),
    ("authorization", "aws4-hmac-sha256", r"[^\n]{0,300}?signature=(?P<value>[0-9a-f]{32,}+)", is_real, ""),
    ("authorization", "digest username", r"=[^\n]{0,300}?response=\"?(?P<value>[0-9a-f]{16,}+)", is_real, ""),
    ("authorization", "oauth_signature=|oauth_token=", r"\"?(?P<value>[\w%+/=-]{16,}+)", is_real, ""),
    ("bearer", "bearer", rf"(?:[ \t:=+]|%20|{_QUOTE}){{1,4}}+(?P<value>{_OPAQUE}{{8,}}+=*+)(?!\w)", _is_opaque, ""),
    ("bearer", "ssws|flyv1|apikey|geniekey", r"[ \t]{1,3}(?P<value>[\w.~+/=,-]{12,}+)", _is_opaque, ""),
    ("basic", "basic", r"(?:[ \t]|%20){1,3}(?P<value>[a-z0-9+/_-]{6,8192}+={0,2})", _is_pair, ""),
    ("docker-auth", "auth",
     rf"{_QUOTE}?\s{{0,4}}[:=]\s{{0,4}}{_OPEN}(?P<value>[a-z0-9+/_-]{{6,8192}}+={{0,2}})", _is_pair, ""),
    # Addresses.
    ("url-password", "://", _USERINFO + _URL_PASSWORD, _is_password, ""),
    ("url-password", "://", _OTHER_URL_PASSWORD, _is_password, ""),
    ("url-token", "://", rf"(?P<value>[a-z0-9_.~%-]{{20,255}}+):?(?:x-oauth-basic)?@{_HOST}", _is_random, ""),
    ("url-signature", "?sig=|&sig=|;sig=|?signature=|&signature=|;signature=|-signature=",
     _CREDENTIAL_VALUE, is_real, ""),
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


def _places() -> Iterator[Place]:
    for kind, anchors, rest, test, within in ANCHORS:
        for anchor in anchors.split("|"):
            written = after_boundary(anchor, "a-z") if anchor[0].isalpha() else re.escape(anchor)
            yield Place(kind, anchor, written + rest, test, tuple(within.split("|")) if within else ())


PLACES = tuple(_places())


# --- Escaped text: percent escapes, JSON and Python escapes, HTML entities, colour codes ---
#
# A decoded text is only searched: a span found in it is mapped back to the characters that spell it.

_ESCAPE = re.compile(
    r"(?:%[0-9A-Fa-f]{2})++|(?:\\u[0-9A-Fa-f]{4})++|\\{1,64}+(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[\"'/nrt])"
    r"|&(?:quot|apos|amp|lt|gt|\#\d{1,3}|\#x[0-9A-Fa-f]{1,4});|\x1b\[[0-9;]{0,12}m|\[[0-9][0-9;]{0,11}m"
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
_UNIT = len("\\u0000")


class Decoded:
    """A text with its escapes decoded, and where each piece stands in the original."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # Per piece: its offset here; its offset in the original and the width of a character there.
        self._here: list[int] = []
        self._there: list[tuple[int, int]] = []
        length = last = 0
        for found in _ESCAPE.finditer(text):
            plain = (text[last : found.start()], last, 1)
            for part, start, step in (plain, _decoded(found[0], found.start())):
                parts.append(part)
                self._here.append(length)
                self._there.append((start, step))
                length += len(part)
            last = found.end()
        self._here.append(length)
        self._there.append((last, 1))
        self.text = "".join([*parts, text[last:]])

    def _back(self, offset: int) -> int:
        at = bisect_right(self._here, offset) - 1
        start, step = self._there[at]
        return start + (offset - self._here[at]) * step

    def original(self, span: Span) -> Span:
        """Map a span to the text that was decoded."""
        return Span(self._back(span.start), self._back(span.end), span.kind)


def has_escapes(text: str) -> bool:
    return any(mark in text for mark in "%\\&[") and _ESCAPE.search(text) is not None


def _decoded(escape: str, start: int) -> tuple[str, int, int]:
    """Return what a run of like escapes spells, where it starts, and the length of each escape."""
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("latin-1"), start, 3
    if escape[0] == "&":
        return html.unescape(escape), start, len(escape)
    if escape.startswith("\\u"):
        return "".join(chr(int(unit, 16)) for unit in escape[2:].split("\\u")), start, _UNIT
    if escape[0] != "\\":
        return " ", start, len(escape)
    body = escape.lstrip("\\")
    return chr(int(body[1:], 16)) if len(body) > 1 else _LETTERS.get(body, body), start, len(escape)
