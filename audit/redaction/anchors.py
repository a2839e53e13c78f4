"""The table of places where credentials stand, and the tests a value there must pass.

A row is (kind, anchors, what follows, test, commands). Expressions are written for lower-cased text. Must not search:
`places` does.
"""

from base64 import b64decode
from collections.abc import Callable

from audit.redaction.values import is_reference, looks_mixed
from audit.redaction.words import STOP_WORDS

QUOTE = r"\\{0,8}[\"'`]"
_OPEN = rf"(?:{QUOTE})?"
_OPAQUE = r"[a-z0-9._~+/%|:!@$^*-]"
_SCHEMES = (
    "bearer|basic|token|apikey|api-key|digest|negotiate|ntlm|ssws|splunk|bot|key|sharedkey|sharedkeylite|oauth|geniekey"
    "|genie-key|jwt|hmac|hawk|mac|privatetoken|zoho-oauthtoken|klaviyo-api-key|discogs|apitoken|personal"
)
_HOST = r"(?=(?:[\w.%-]{1,253}+|\[[0-9a-f:.%]{2,60}\]|\$\{?\w{1,80}\}?|\{\w{1,80}\})(?:[:/?#,;\s\"'`)\]}>\\&|]|\Z))"
_LONG = 16
# Longer than words are.
_LONG_WORD = 24
_WORD = r"[^\s\"'`\\<>]"


def is_real(value: str) -> bool:
    """Not a placeholder, a reference or punctuation."""
    return any(map(str.isalnum, value[:64])) and not is_reference(value)


def _is_opaque(value: str) -> bool:
    """After a bare scheme word: mixed or long, so that `bearer of bad news` stays."""
    return is_real(value) and (looks_mixed(value, 8) or len(value) >= _LONG_WORD)


def _is_header(value: str) -> bool:
    return is_real(value) and (len(value) >= _LONG or not value.isalpha())


def _is_pair(value: str) -> bool:
    """Base64 of `user:password`."""
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


TESTS: dict[str, Callable[[str], bool]] = {
    "real": is_real,
    "opaque": _is_opaque,
    "header": _is_header,
    "pair": _is_pair,
    "password": _is_password,
    "chosen": _is_chosen,
    "random": _is_random,
    "long": _is_long,
}

_CREDENTIAL_VALUE = r"(?P<value>[\w%+/=~.-]{16,}+)"
_PATH_VALUE = r"(?P<value>[\w/+-]{8,}+)"
_USERINFO = r"[^\s/?#@:\"'<>`\\]{0,200}+:"
_AUTHORIZATION = (
    rf"(?:(?:{QUOTE})?\]?\s{{0,8}}+(?:[:=]|=>)|{QUOTE}\s{{0,4}}+,(?=\s{{0,4}}+b?{QUOTE}))"
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
    r"(?:\\{0,8}[\"'])?[\w-]{0,24}?(?:password|passwd|token|secret|api_?key)[\w-]{0,8}+(?:\\{0,8}[\"'])?"
    r"(?:\s|\\r|\\n){2,8}+(?P<value>[^\s\"'<>\\]{3,512}+)"
)
_SQL_PASSWORD = (
    r"(?:with\s{1,4}+\S{1,40}+\s{1,4}+)?(?:by|as)\s{1,4}+(?:password\s{1,4}+)?"
    rf"\\{{0,8}}[\"'](?P<value>{_WORD}{{1,256}}+)"
)
_FLAG_VALUE = rf"(?:[= \t]{{1,3}}+{_OPEN}|{QUOTE}|(?=\S))(?P<value>[^\s\"'`\\=-]{_WORD}{{2,128}}+)"

ANCHORS: tuple[tuple[str, str, str, str, str], ...] = (
    # Headers: the scheme stays, what follows it goes.
    ("authorization", "authorization", _AUTHORIZATION, "header", ""),
    ("authorization", "aws4-hmac-sha256", r"[^\n]{0,300}?signature=(?P<value>[0-9a-f]{32,}+)", "real", ""),
    ("authorization", "digest username", r"=[^\n]{0,300}?response=\\{0,4}\"?(?P<value>[0-9a-f]{16,}+)", "real", ""),
    ("authorization", "oauth_signature=|oauth_token=", r"\\{0,4}\"?(?P<value>[\w%+/=-]{16,}+)", "real", ""),
    ("bearer", "bearer", rf"(?:[ \t:=+]|%20|{QUOTE}){{1,4}}+(?P<value>{_OPAQUE}{{8,}}+=*+)(?!\w)", "opaque", ""),
    ("bearer", "ssws|flyv1|apikey|geniekey", r"[ \t]{1,3}(?P<value>[\w.~+/=,-]{12,}+)", "opaque", ""),
    ("basic", "basic", r"(?:[ \t]|%20){1,3}(?P<value>[a-z0-9+/_-]{6,8192}+={0,2})", "pair", ""),
    ("docker-auth", "auth",
     rf"(?:{QUOTE})?\s{{0,4}}[:=]\s{{0,4}}{_OPEN}(?P<value>[a-z0-9+/_-]{{6,8192}}+={{0,2}})", "pair", ""),
    # Addresses.
    ("url-password", "://", _USERINFO + _URL_PASSWORD, "password", ""),
    ("url-password", "://", _OTHER_URL_PASSWORD, "password", ""),
    ("url-token", "://", rf"(?P<value>[a-z0-9_.~%-]{{20,255}}+):?(?:x-oauth-basic)?@{_HOST}", "random", ""),
    ("url-signature", "?sig=|&sig=|;sig=|?signature=|&signature=|;signature=|-signature=",
     _CREDENTIAL_VALUE, "long", ""),
    ("url-key", "?key=|&key=|;key=|?code=|&code=|;code=|?auth=|&auth=", _CREDENTIAL_VALUE, "random", ""),
    # Addresses whose path is the credential.
    ("webhook", "hooks.slack.com/services/|hooks.slack.com/workflows/|hooks.slack.com/triggers/",
     _PATH_VALUE, "real", ""),
    ("webhook", "hooks.slack-gov.com/services/|hooks.zapier.com/hooks/catch/|/with/key/", _PATH_VALUE, "real", ""),
    ("webhook", "/api/webhooks/", r"(?P<value>\d{5,30}/[\w-]{8,}+)", "real", ""),
    ("webhook", "webhook.office.com/|outlook.office.com/|outlook.office365.com/",
     r"webhookb?2?/(?P<value>[\w@/.-]{16,}+)", "real", ""),
    ("webhook", "feishu.cn/|larksuite.com/", r"open-apis/bot/(?:v2/)?hook/(?P<value>[\w-]{16,}+)", "real", ""),
    ("webhook", "/hooks/", r"(?P<value>[a-z0-9]{26})(?![\w/.-])", "random", ""),
    ("webhook", "pagerduty.com/", r"(?:integration|x-ere|generic)/(?P<value>[\w/-]{16,}+)", "real", ""),
    ("webhook", "hooks.tray.io/|hook.integromat.com/|.make.com/|webhook.site/", r"(?P<value>[\w/-]{20,}+)", "real", ""),
    ("telegram-token", "/bot", r"(?P<value>\d{5,16}(?::|%3a)[\w-]{20,}+)", "real", ""),
    # Commands.
    ("curl-user", " -u| --user| --proxy-user| -a| --auth",
     rf"(?:[= \t]{{1,3}}|(?=[\w\"'])){_OPEN}[^\s:\"'`/]{{1,128}}+:(?P<value>[^\s\"'`\\]{{1,256}}+)", "chosen",
     "curl|wget|http "),
    ("cli-password", " -p", rf"{_OPEN}(?P<value>[^\s\"'`\\-]{_WORD}{{2,128}}+)", "password", "mysql|mariadb"),
    ("cli-password", " -p| -pw", _FLAG_VALUE, "chosen", "sshpass|login|mongo|plink|pscp"),
    ("cli-password", " -a", _FLAG_VALUE, "chosen", "redis-cli"),
    ("cli-password", " -w", _FLAG_VALUE, "chosen", "ldapsearch|ldapadd|ldapmodify|ldapwhoami"),
    ("cli-password", "htpasswd -",
     rf"[a-z]{{0,6}}b[a-z]{{0,6}}\s{{1,3}}+(?:\S{{1,200}}+\s{{1,3}}+){{1,2}}{_OPEN}(?P<value>{_WORD}{{3,128}}+)",
     "chosen", ""),
    ("cli-password", " -u", r"\s{0,2}['\"]?[^\s%'\"]{1,80}+%(?P<value>[^\s'\"]{3,128}+)", "password",
     "smb|rpcclient|wmi|net rpc"),
    ("cli-password", "requirepass |masterauth ", rf"{_OPEN}(?P<value>{_WORD}{{4,256}}+)", "chosen", ""),
    ("cli-password", "rabbitmqctl ",
     rf"(?:add_user|change_password) \S{{1,128}}+ {_OPEN}(?P<value>{_WORD}{{3,128}}+)", "chosen", ""),
    ("cli-password", "echo ",
     rf"(?:-n )?{_OPEN}(?P<value>[^\s\"'|`\\]{{3,256}}+)[\"']?\s{{0,3}}\|\s{{0,3}}(?:sudo|\w{{1,12}} login|chpasswd)",
     "chosen", ""),
    ("cli-password", "login ", r"\S{1,128}+\s{1,40}+password\s{1,8}+(?P<value>\S{1,256}+)", "password", ""),
    ("cli-password", "pass:", r"(?P<value>[^\s'\"]{3,256}+)", "password", "openssl"),
    ("sql-password", "identified ", _SQL_PASSWORD, "real", ""),
    ("form-password", "name=", _FORM_FIELD, "header", ""),
    ("html-password", "type=",
     r"[\"']?password[\"']?[^<>]{0,200}?\svalue=[\"'](?P<value>[^\"'<>]{3,256}+)", "password", ""),
)  # fmt: skip
