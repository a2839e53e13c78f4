"""Places, blocks and encodings one by one: what is masked, and what is kept."""

import json
import random
import re
from base64 import b64encode

import pytest

from audit.redaction import redact
from tests.audit.test_redaction_corpus import VENDORS, made
from tests.table import every_row

SOURCE = random.Random(51)
VALUE = made("{A8}4{A8}x", SOURCE)
HEX = made("{h32}", SOURCE)
PAIR = b64encode(f"bob:{VALUE}".encode()).decode()
BODY = "\n".join(made("{b64}", SOURCE) for _ in range(4))


def kept(text: str) -> str:
    """The redacted text with markers shortened."""
    return re.sub(r"\[redacted:[a-z0-9-]+:[0-9a-f]{4}\]", "#", redact(text))


@every_row(
    ("text", "expected"),
    [
        (f"Authorization: Bearer {VALUE}", "Authorization: Bearer #"),
        ("sent with Bearer qwzrtplkvbnmxcdf", "sent with Bearer #"),
        (f"Authorization: Basic {PAIR}", "Authorization: Basic #"),
        (f"sent Basic {PAIR} to host", "sent Basic # to host"),
        (f'Digest username="bob", response="{HEX}"', 'Digest username="bob", response="#"'),
        (
            f"AWS4-HMAC-SHA256 SignedHeaders=host, Signature={HEX}{HEX}",
            "AWS4-HMAC-SHA256 SignedHeaders=host, Signature=#",
        ),
        (f'OAuth oauth_signature="{VALUE}%3D"', 'OAuth oauth_signature="#"'),
        (f'"auth": "{PAIR}"', '"auth": "#"'),
        (f"postgres://u:p@{VALUE}/#x@db.test:5432/a", "postgres://u:#@db.test:5432/a"),
        (f"https://u:{VALUE}@[::1]:80/x", "https://u:#@[::1]:80/x"),
        (f"https://{VALUE}9z@h.test/x.git", "https://#@h.test/x.git"),
        (f"https://h.test/b?sv=1&sig={VALUE}%3D&se=2", "https://h.test/b?sv=1&sig=#&se=2"),
        (f"https://h.test/?X-Amz-Signature={HEX}", "https://h.test/?X-Amz-Signature=#"),
        (f"https://h.test/?key={VALUE}&q=1", "https://h.test/?key=#&q=1"),
        (f"https://hooks.slack.com/services/T0/B0/{VALUE} ok", "https://hooks.slack.com/services/# ok"),
        (f"https://discord.com/api/webhooks/1234567/{VALUE}", "https://discord.com/api/webhooks/#"),
        (f"https://x.webhook.office.com/webhookb2/{HEX}@{HEX}/a", "https://x.webhook.office.com/webhookb2/#"),
        (f"https://api.telegram.org/bot123456:{VALUE}abc/send", "https://api.telegram.org/bot#/send"),
        (f"https://chat.test/hooks/{made('{a12}1{a13}', SOURCE)} up", "https://chat.test/hooks/# up"),
        (f"smbclient //h/s -U bob%{VALUE}", "smbclient //h/s -U bob%#"),
        (f"openssl rsa -passin pass:{VALUE} -in k", "openssl rsa -passin pass:# -in k"),
        (f"htpasswd -bc f bob {VALUE}", "htpasswd -bc f bob #"),
        (f"redis-cli -h x -a {VALUE} ping", "redis-cli -h x -a # ping"),
        (f"echo {VALUE} | docker login --password-stdin", "echo # | docker login --password-stdin"),
        (f"rabbitmqctl add_user bob {VALUE}", "rabbitmqctl add_user bob #"),
        (f"requirepass {VALUE}", "requirepass #"),
        (f"machine h\n  login bob\n  password {VALUE}", "machine h\n  login bob\n  password #"),
        (f'name="password"\r\n\r\n{VALUE}\r\n--b', 'name="password"\r\n\r\n#\r\n--b'),
        (f'<input type="password" id="a" value="{VALUE}">', '<input type="password" id="a" value="#">'),
        (f"password: str = '{VALUE}'", "password: str = '#'"),
        (f"password=“{VALUE}”", "password=“#”"),
        (f'password="a\\"{VALUE}" b', 'password="#" b'),
        (f'password="{VALUE}\nnext', 'password="#\nnext'),
        (f"password={VALUE}\\{VALUE}|{VALUE}\\n x", "password=#\\n x"),
        (f"api_token: !!str {VALUE}", "api_token: !!str #"),
        (f"<password><![CDATA[{VALUE}]]></password>", "<password><![CDATA[#]]></password>"),
        (f"ENV DB_PASSWORD {VALUE.lower()}", "ENV DB_PASSWORD #"),
        (f"&#x22;token&#34;:&quot;{VALUE}&quot;", "&#x22;token&#34;:&quot;#&quot;"),
        (f"%2522password%2522%253A%2522{VALUE}%2522", "%2522password%2522%253A%2522#%2522"),
        (f"İ password={VALUE} İ", "İ password=# İ"),
        ("password=123456", "password=#"),
        ("password=qwerty-uiop", "password=#"),
        ('password: "correct horse battery staple"', 'password: "#"'),
    ],
)
def test_masks_the_value_and_keeps_the_rest(text: str, expected: str) -> None:
    assert kept(text) == expected


@every_row(
    "text",
    [
        "Basic c29tZSB3b3Jkcw==",
        "Basic abc",
        "the password is process.env.DB_PASS1",
        "https://hooks.slack.com/services/",
        "token = UserModel",
        "password = UserModel",
        "--password is deprecated",
        'pass "--strict" to the tool',
        "widget identified by `selector` here",
        '("password1", "password2")',
        '("auth", "0002_alter_permission_name_max_length")',
        "salt = base64.b64decode(b64salt).decode(x)",
        "api keys: [a-zA-Z0-9]{20,}",
        "run -u 1000:1000 image",
        "curl -u 1000:1000 x",
        "api_key=12:30",
        "token=2026-05-01",
        "password=12",
        "password={ }",
        'password=""',
        "key_id=5 token_ttl=300s",
        "https://user:password@host/",
        "password=....",
        "secret_key: 12",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "-----END RSA PRIVATE KEY-----",
        "<a><password></password>words4you</a>",
        "<token/> words4you </a>",
    ],
)
def test_leaves_what_only_looks_alike(text: str) -> None:
    assert redact(text) == text


@every_row("kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_masks_key_blocks_whole_or_cut(kind: str) -> None:
    block = f"-----BEGIN {kind}-----\n{BODY}\n-----END {kind}-----"
    assert kept(f"a\n{block}\nb") == "a\n#\nb"
    assert kept(json.dumps({"x": block})) == '{"x": "#"}'
    assert kept(block[:200]) == "#"
    assert kept(block[:200].replace("\n", "\\n")) == "#"
    assert kept(f"{block[:130]}\nand then the worker stopped") == "#\nand then the worker stopped"
    assert kept(f"{block[:93]} then {block}").endswith("#")


def test_masks_a_putty_key() -> None:
    assert kept(f"Private-Lines: 4\n{BODY}\nPrivate-MAC: x") == "#-MAC: x"


@every_row("kind", VENDORS)
def test_token_cut_short_is_left_alone(kind: str) -> None:
    prefix = VENDORS[kind].split("{")[0]
    text = f"see {prefix}ab for the format"
    assert redact(text) == text


def test_hides_a_text_that_keeps_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.redaction.redactor.ROUNDS", 0)
    assert kept(f"password={VALUE}") == "#"
    assert kept("clean") == "clean"
