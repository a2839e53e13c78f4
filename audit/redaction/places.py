"""Finds credentials by the place they stand in: headers, cookies, URLs, webhook paths, commands, registry files.

Owns the table of places. A place is (kind, literals, expression): it is tried when one of the literals occurs in the
lower-cased text; the group `value` is masked if its test agrees. Must not judge assignments.
"""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from audit.redaction.spans import Span
from audit.redaction.values import is_reference, looks_mixed

_Q = r"\\{0,8}[\"'`]"
_TOKEN68 = r"[A-Za-z0-9._~+/%|:!@$^*-]"


def _real(value: str) -> bool:
    return any(map(str.isalnum, value[:64])) and not is_reference(value)


def _opaque(value: str) -> bool:
    """After a bare scheme word: long or mixed, so that `bearer of bad news` stays."""
    return _real(value) and (looks_mixed(value, 8) or (len(value) >= 20 and not value.isalpha()) or len(value) >= 32)


def _header(value: str) -> bool:
    return _real(value) and len(value) >= 4 and (not value.isalpha() or len(value) >= 16)


def _pair(value: str) -> bool:
    """Base64 of `user:password`."""
    try:
        return b":" in b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (Error, ValueError):
        return False


def _password(value: str) -> bool:
    return _real(value) and value.lower() not in ("password", "pass", "passwd", "pwd", "secret", "pw", "token", "changeme")


def _random(value: str) -> bool:
    return _real(value) and looks_mixed(value, 16)


def _long(value: str) -> bool:
    return _real(value) and len(value) >= 16


@dataclass(frozen=True)
class Place:
    kind: str
    literals: tuple[str, ...]
    expression: re.Pattern[str]
    test: Callable[[str], bool] = _real


def _place(kind: str, literals: str, expression: str, test: Callable[[str], bool] = _real) -> Place:
    return Place(kind, tuple(literals.split()), re.compile(expression, re.IGNORECASE), test)


_HOST_AFTER = r"(?=(?:[\w.%-]{1,253}|\[[0-9a-f:.%]{2,60}\]|\$\{?\w+\}?|\{\w+\})(?:[:/?#,;\s\"'`)\]}>\\&]|\Z))"
_DATABASES = (
    r"(?:postgres(?:ql)?(?:\+\w+)?|mysql(?:\+\w+)?|mariadb(?:\+\w+)?|mongodb(?:\+srv)?|rediss?|amqps?|mssql(?:\+\w+)?"
    r"|oracle(?:\+\w+)?|clickhouse|cockroachdb|ldaps?|s?ftps?|smtps?|imaps?|nats|kafka|snowflake|jdbc:\w+|sqlserver)"
)
PLACES: tuple[Place, ...] = (
    # Authorization headers: the scheme stays, what follows it goes.
    _place("authorization", "authorization",
           rf"authorization(?:{_Q})?\]?\s{{0,8}}(?:[:=,]|=>)\s{{0,8}}(?:[\[(]\s{{0,4}})?(?:b(?=['\"]))?(?:{_Q})?\s{{0,4}}"
           rf"(?:(?:bearer|basic|token|apikey|api-key|digest|negotiate|ntlm|ssws|splunk|bot|key|sharedkey(?:lite)?|oauth"
           rf"|genie-?key|jwt|hmac|hawk|mac|privatetoken|zoho-oauthtoken|snowflake|klaviyo-api-key|discogs)[ \t:+]{{1,4}})?"
           rf"(?:token=)?\"?(?P<value>{_TOKEN68}{{4,}}+=*+)", _header),
    _place("authorization", "aws4-hmac-sha256", r"aws4-hmac-sha256[^\n]{0,400}?signature=(?P<value>[0-9a-f]{32,})"),
    _place("authorization", "digest", r"digest\s[^\n]{0,300}?response=\\{0,4}\"?(?P<value>[0-9a-f]{16,})"),
    _place("authorization", "oauth_signature", r"oauth_signature=\\{0,4}\"?(?P<value>[\w%+/=-]{16,})"),
    _place("bearer", "bearer", rf"(?<![a-z])bearer(?:[ \t:]|%20|\+|{_Q}){{1,4}}(?P<value>{_TOKEN68}{{8,}}+=*+)", _opaque),
    _place("bearer", "ssws flyv1 apikey sharedaccesssignature",
           r"(?<![a-z])(?:ssws|flyv1|apikey)[ \t]{1,3}(?P<value>[\w.~+/=,-]{12,}+)", _opaque),
    _place("basic", "basic", r"(?<![a-z])basic(?:[ \t]|%20){1,3}(?P<value>[A-Za-z0-9+/_-]{6,8192}+={0,2})", _pair),
    _place("docker-auth", "auth", rf"(?<![a-z])_?auth{_Q}?\s{{0,4}}[:=]\s{{0,4}}(?:{_Q})?(?P<value>[A-Za-z0-9+/_-]{{6,8192}}+={{0,2}})", _pair),
    # Passwords in URLs. A password may hold `@`; it ends at the last one before the host.
    _place("url-password", "://",
           rf"://[^\s/?#@:\"'<>`\\]{{0,200}}+:(?P<value>[^\s/?#\"'<>`\\]{{1,512}})@{_HOST_AFTER}", _password),
    _place("url-password", "://",
           rf"{_DATABASES}://[^\s/?#@:\"'<>`\\]{{0,200}}+:(?!\d{{1,5}}(?:[/?#]|\Z))(?P<value>[^\s\"'<>`\\]{{1,256}})@{_HOST_AFTER}",
           _password),
    _place("url-token", "://", rf"://(?P<value>[A-Za-z0-9_.~%-]{{20,255}}+):?(?:x-oauth-basic)?@{_HOST_AFTER}", _random),
    _place("url-signature", "sig",
           r"[?&;](?:amp;|x-(?:amz|goog|oss|cos|obs)-)?sig(?:nature)?=(?P<value>[\w%+/=~.-]{16,}+)", _long),
    _place("url-key", "key= code= auth= hash=",
           r"[?&](?:amp;)?(?:key|code|auth|apikey|hash)=(?P<value>[\w%+/=~.-]{16,}+)", _random),
    # Webhook addresses whose path is the credential.
    _place("webhook", "hooks.slack", r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<value>[\w/+-]{8,}+)"),
    _place("webhook", "/api/webhooks/", r"/api/webhooks/(?P<value>\d{5,30}/[\w-]{8,}+)"),
    _place("webhook", "webhook.office.com", r"webhook\.office\.com/(?P<value>webhookb?2?/[\w@/.-]{16,}+)"),
    _place("webhook", "outlook.office", r"outlook\.office(?:365)?\.com/webhook/(?P<value>[\w@/.-]{16,}+)"),
    _place("webhook", "hooks.zapier.com maker.ifttt.com", r"(?:hooks\.zapier\.com/hooks/catch|maker\.ifttt\.com/\S{0,80}?/key)/(?P<value>[\w/-]{8,}+)"),
    _place("webhook", "/hook/ /hooks/", r"(?:feishu\.cn|larksuite\.com|lark\.com|mattermost)[^\s\"'<>]{0,60}?/hooks?/(?P<value>[\w-]{16,}+)"),
    _place("webhook", "pagerduty.com", r"pagerduty\.com/(?:integration|x-ere|generic)/(?P<value>[\w/-]{16,}+)"),
    _place("telegram-token", "/bot", r"/bot(?P<value>\d{5,16}(?::|%3a)[\w-]{20,}+)"),
    # Commands.
    _place("curl-user", "curl wget http",
           rf"(?:curl|https?|wget)\b[^\n]{{0,600}}?\s(?:-u|--user|--proxy-user|-U|-a|--auth)(?:=|\s{{1,3}}|(?=[\w\"']))(?:{_Q})?"
           rf"[^\s:\"'`/]{{1,128}}:(?P<value>[^\s\"'`\\]{{1,256}}+)", _password),
    _place("cli-password", "mysql mariadb",
           rf"(?:mysql|mariadb)[\w-]{{0,12}}\b[^\n|]{{0,300}}?\s-p(?:{_Q})?(?P<value>[^\s\"'`\\-][^\s\"'`\\]{{2,128}}+)", _password),
    _place("cli-password", "sshpass docker podman helm az mongo htpasswd skopeo ldap redis-cli smbclient zip 7z plink pscp psql",
           rf"\b(?:sshpass|(?:docker|podman|helm|oc|az|skopeo|buildah)\b[^\n|]{{0,80}}?\slogin|mongo(?:sh|dump|restore|export)?|unzip|zip|plink|pscp"
           rf"|redis-cli|ldap(?:search|add|modify|whoami|passwd))\b[^\n|]{{0,200}}?\s-(?:p|P|pw|a|w)[ =]?(?:{_Q})?(?P<value>[^\s\"'`\\-][^\s\"'`\\]{{2,128}}+)",
           _header),
    _place("cli-password", "htpasswd", rf"htpasswd\s+-[a-z]*b[a-z]*\s+(?:\S{{1,200}}\s+)?\S{{1,80}}\s+(?:{_Q})?(?P<value>[^\s\"'`\\]{{3,128}}+)\s*$"),
    _place("cli-password", "smbclient rpcclient wmic", r"(?:smb|rpc|wmi)[\w]{1,8}\b[^\n|]{0,200}?\s-U\s{0,2}['\"]?[^\s%'\"]{1,80}%(?P<value>[^\s'\"]{3,128})"),
    _place("cli-password", "pass:", r"-pass(?:in|out|word)?\s{1,3}(?:['\"])?pass:(?P<value>[^\s'\"]{3,256})"),
    _place("sql-password", "identified", rf"identified\s{{1,4}}(?:with\s{{1,4}}\S{{1,40}}\s{{1,4}})?(?:by|as)\s{{1,4}}(?:password\s{{1,4}})?{_Q}(?P<value>[^\s\"'`\\]{{1,256}})"),
    _place("form-password", "content-disposition",
           r"name=\"?[\w-]{0,24}(?:password|passwd|token|secret|api_?key)[\w-]{0,8}\"?\s{2,8}(?P<value>[^\s\"'<>]{3,512})"),
    _place("html-password", "type=", r"type=[\"']?password[\"']?[^<>]{0,200}?\svalue=[\"'](?P<value>[^\"'<>]{3,256})"),
)  # fmt: skip

_COOKIE = re.compile(rf"\bcookie(?:{_Q})?\s{{0,4}}(?:[:=,]|=>)\s{{0,4}}(?:[\[(]\s{{0,4}})?(?:{_Q})?", re.IGNORECASE)
_CRUMB = re.compile(r"[ \t]*([\w.$%!#~:-]{1,80})=\"?([^;\s\"'\\,]*+)\"?(?:;|,(?=\s*[\w.-]+=)|(?=[\s\"'\\]|\Z))", re.ASCII)
_ATTRIBUTES = frozenset("path domain expires max-age samesite version comment priority".split())
_SESSION_NAME = re.compile(r"sess|sid|auth|token|login|secret|jwt|csrf|xsrf|remember|sso|identity|ticket", re.IGNORECASE)


def _cookie_spans(text: str) -> Iterator[Span]:
    """The values of a cookie header that could carry a session."""
    for header in _COOKIE.finditer(text):
        at = header.end()
        while crumb := _CRUMB.match(text, at):
            name, value = crumb[1].lower(), crumb[2]
            named = len(value) >= 4 and _SESSION_NAME.search(name)
            if name not in _ATTRIBUTES and _real(value) and (named or looks_mixed(value, 10)):
                yield Span(crumb.start(2), crumb.end(2), "cookie")
            at = crumb.end()


def place_spans(text: str, low: str) -> Iterator[Span]:
    """Values that stand where credentials stand."""
    for place in PLACES:
        if any(literal in low for literal in place.literals):
            for found in place.expression.finditer(text):
                if place.test(found["value"]):
                    yield Span(found.start("value"), found.end("value"), place.kind)
    if "cookie" in low:
        yield from _cookie_spans(text)
