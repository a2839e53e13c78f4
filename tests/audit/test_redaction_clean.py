"""Texts that hold no credential: ids, digests, prose about passwords, code that names keys. They stay unchanged."""

import base64
import random
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from audit.redaction import redact
from audit.redaction.named import lowered
from audit.redaction.places import readings
from audit.redaction.redactor import _SHORT, _SIGN, _search
from tests.audit.test_redaction_corpus import VENDORS, made
from tests.table import every_row

PROSE = """
reset your password
password: must be at least 8 characters
Password must contain at least one digit and one symbol.
The password is incorrect.
the password is required
your password has expired, please choose a new one
password reset requested for user 42
Password for bob was changed on 2026-05-01
forgot password? click here
password strength: weak
Enter password:
Password:
passwords do not match
token expired
token expired at 2026-05-01T12:00:00Z
invalid token
invalid token request_id=7f3c9a51d2e84b06
bearer token_type=bearer1 accepted
Invalid token: signature mismatch
unexpected token < in JSON at position 0
SyntaxError: Unexpected token '}' at line 3
token refresh failed: 401 Unauthorized
the token is missing
token is invalid or has expired
token: expired
API key is missing
api key required
No API key provided. Set the API_KEY environment variable.
Please set your API key
bearer of bad news
the bearer of this document
Bearer token required
missing bearer token
authorization failed
Authorization: required
authorization header is missing
authorization header malformed
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN}
Authorization: Bearer $TOKEN
Authorization: Bearer {{ token }}
Authorization: Bearer {token}
Authorization: Bearer YOUR_API_KEY
Authorization: Bearer ********
Authorization: Basic <credentials>
authorization: none
basic authentication is disabled
Basic understanding of the protocol is enough
a basic example of the secret santa draw
the secret of success is patience
secret rotation completed
secrets are stored in the vault
secret not found: db-credentials
no secret is stored in this file
the secret is out
keep this secret
Cookie: theme=dark; lang=en
Set-Cookie: theme=dark; Path=/; SameSite=Lax
cookie consent given
cookies are enabled
session expired
session 42 finished in 3 turns
login failed for user admin
user admin logged in from 10.0.0.5
credentials are invalid
invalid credentials
no credentials found
access key rotated
access denied: key not found
primary key violation on table users
duplicate key value violates unique constraint "users_pkey"
KeyError: 'password'
KeyError: 'token'
the key to the problem is caching
public key: ssh-ed25519
private key is missing
press any key to continue
keyboard interrupt
tokenizer loaded in 1.2s
tokens used: 512
used 1,234 tokens of 4,096
prompt tokens 120, completion tokens 40
the pass rate is 98%
passed 12, failed 0
compass heading 270
bypass enabled
passenger list updated
author: Jane Doe
authored by bob
authority record updated
oauth2 flow started
authentication succeeded for alice
two-factor authentication is required
signature verified
signature mismatch
pin the version in requirements.txt
path: /usr/local/bin
pattern: ^a.*b$
patient record 7 updated
salt and pepper
license: MIT
license key required
webhook delivered in 120 ms
webhook received from github
the risk-assessment-report-for-the-second-quarter is due
task-scheduler-with-a-long-name-and-parts started
disk-usage-monitoring-service-primary-replica is up
sk-fading-circle-container-element-large
""".strip().splitlines()

CODE = """
password = get_password()
password = getpass.getpass()
api_key=os.environ["API_KEY"]
api_key = os.getenv("API_KEY")
apiKey: process.env.API_KEY,
token: str
token: str | None = None
password: Optional[str] = None
password=None
password = None
password=password
token=token
password = ""
password=''
"password": ""
"password": null
"token": null,
"token": "",
"password": "string"
"password": {"type": "string", "minLength": 8}
"required": ["username", "password"]
fields = ("username", "password", "email")
settings.SECRET_KEY
SECRET_KEY = settings.SECRET_KEY
SECRET_KEY = env("SECRET_KEY")
secret = config.get("secret")
secret = secrets.token_hex(32)
token = secrets.token_urlsafe()
token = request.headers.get("Authorization")
token = self.token
token = response.json()["access_token"]
password = user.password
password = form.cleaned_data["password"]
password = data.password
user.set_password(raw_password)
check_password(password, user.password)
if password != confirm_password:
if not token:
return password
def login(username: str, password: str) -> Token:
def get_token(self) -> str:
class PasswordField(CharField):
password_validators = []
AUTH_PASSWORD_VALIDATORS = [
password_hash = hash_password(password)
Bearer ${TOKEN}
headers = {"Authorization": f"Bearer {token}"}
headers["Authorization"] = "Bearer " + token
'Authorization': 'Bearer ' + apiKey
Authorization: `Bearer ${accessToken}`
-H "Authorization: Bearer $GITHUB_TOKEN"
-H 'X-Api-Key: ${API_KEY}'
curl -u "$USER:$PASS" https://example.com
curl -u ${USER}:${PASS} https://example.com
mysql -u root -p mydb
mysql -u root -p"$MYSQL_PWD" app
docker login -u user --password-stdin registry.example.com
<your-api-key>
api_key: <your-api-key>
api_key = "<your-api-key>"
API_KEY=your-api-key
API_KEY=your_api_key_here
API_KEY=YOUR_API_KEY
token=xxxx
token=xxxxxxxxxxxxxxxx
password=********
password: ****
password=••••••
password=changeme
password=example
password = "changeme"
password=<password>
password={{ password }}
password: "{{ vault_db_password }}"
password: ${DB_PASSWORD}
password: $DB_PASSWORD
password=$(cat /run/secrets/db)
password_file=/run/secrets/db_password
DB_PASSWORD_FILE=/run/secrets/db
password=%s
password=%(password)s
password={}
password={password}
password={0}
token=%TOKEN%
token: !vault |
token: ${{ secrets.GITHUB_TOKEN }}
GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
password = var.db_password
password = data.vault_generic_secret.db.data["password"]
secret: valueFrom
password: {$secret: mail}
imap: {host: imap.example.org, user: clerk, password: {$secret: mail}}
headers: {X-Api-Key: {$secret: shop}, Authorization: {$secret: shop-2}}
{"password": {"$secret": "mail"}, "token": { '$secret' : 'feed_7' }}
secretKeyRef:
secretName: app-secrets
secret_name: db-main
secret_arn: arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf
private_key_path: /etc/ssl/private/site.key
key_file = "/etc/ssl/private/key.pem"
ssh -i ~/.ssh/id_ed25519 host
max_tokens=512
max_tokens: 4096
"max_tokens": 1024, "temperature": 0.2
total_tokens=1536 prompt_tokens=1024 completion_tokens=512
tokens_in=120 tokens_out=40
token_budget=20000
token_count: 17
token_type=bearer
"token_type": "Bearer", "expires_in": 3600
token_url=https://auth.example.com/oauth/token
token_endpoint: https://auth.example.com/oauth/token
token_id=42
password_min_length = 12
password_reset_timeout=259200
password_changed_at=2026-05-01
password_policy=strict
secret_version=3
api_key_name=ci
api_key_id: 17
access_key_id_field
key=value
cache_key=user:42:profile
sort_key=created_at
primary_key=True
foreign_key=user_id
partition_key: region
public_key=ed25519
idempotency_key=7f9c24e8-3b12-4a5b-9d7e-1c2b3a4d5e6f
<input type="password" name="password">
<label for="password">Password</label>
<PasswordField />
<password></password>
<token/>
SELECT password FROM users WHERE id = 1
ALTER TABLE users ADD COLUMN password varchar(255)
CREATE TABLE tokens (id int, token text)
const token = await getToken();
const { token } = useAuth();
let password = prompt("Password");
var secret = new Secret();
export const API_KEY = import.meta.env.VITE_API_KEY;
private String password;
private final String apiKey;
String token = jwtService.generate(user);
self.assertEqual(response.data["token"], token)
logger.info("token refreshed")
raise ValueError("password required")
import tokenize
from django.contrib.auth.password_validation import validate_password
kubectl get secret app-secrets -o yaml
vault kv get secret/app
git config credential.helper store
pip install python-jose passlib
postgres://user:password@localhost/db
postgres://user:${DB_PASSWORD}@db:5432/app
postgres://$USER:$PASS@db/app
https://user@example.com/path
https://example.com:8080/path?email=a@b.com
redis://localhost:6379/0
""".strip().splitlines()

PATTERNS = (
    "request {h8}-{h4}-4{h3}-a{h3}-{h12} done",
    "commit {h40}",
    "md5 {h32}  file.tar",
    "sha256:{h64}",
    "image@sha256:{h64} pulled",
    'ETag: "{h32}"',
    'etag: W/"{h20}"',
    "trace_id={h32} span_id={h16}",
    "traceparent: 00-{h32}-{h16}-01",
    "integrity sha512-{b86}==",
    '"integrity": "sha512-{b86}=="',
    "X-Request-Id: {h8}-{h4}-4{h3}-a{h3}-{h12}",
    "session={h8}-{h4}-4{h3}-b{h3}-{h12} turn=3",
    "session_id={h8}-{h4}-4{h3}-b{h3}-{h12}",
    "index {h7}..{h7} 100644",
    "HEAD is now at {h7} fix typo",
    "container {h12} started",
    "digest={h64}",
    "checksum: {h64}",
    "user_id={n6} order={n9}",
    "phone +1 555 {n3} {n4}",
    "call +49 30 {n7}",
    "ip=10.{n2}.0.{n2} port=8080",
    "mail to user{n3}@example.com",
    "GET /api/v1/items/{n4}?page=2&limit=50 200 12ms",
    "https://example.com/a/{a12}/b?x={n3}#top",
    'File "app/x.py", line {n3}, in run',
    "version 1.{n2}.{n1}-rc1",
    "2026-05-{n1}1T12:00:{n1}0Z INFO started",
    "took {n3}.{n2} ms",
    "s3://bucket/2026/05/{h16}.parquet",
    "/var/lib/app/{h8}/data.db",
    "fingerprint SHA256:{b43}",
    "nonce {n8}",
    "job-{a10} finished",
    "arn:aws:iam::{n12}:role/app",
    "urn:uuid:{h8}-{h4}-4{h3}-a{h3}-{h12}",
    "block {n9} hash {h64}",
    "0x{h40}",
    "cursor={n12}",
    "layer {h12}: Pull complete",
    "pod app-{a10}-{a5} Running",
    "v1.{n1}.{n1} -> v1.{n1}.{n2}",
    "lat=52.{n4} lon=13.{n4}",
    "uuid={h32}",
    "cache key user:{n4}:profile hit",
    "row key={n6}",
    "thread-{n3} pool-{n1}",
    "rev {h40} by jane",
    "sha1={h40}",
    "build #{n4} passed",
    "password changed for user {n5}",
    "token {n5} of {n6}",
    "max_tokens={n4}",
    "total_tokens: {n5}",
    "tokens/s {n2}.{n1}",
    "key {n4} not found",
)


def clean_lines() -> Iterator[str]:
    yield from PROSE
    yield from CODE
    source = random.Random(11)
    for _ in range(4):
        for pattern in PATTERNS:
            yield made(pattern, source)
    for size in (60, 600, 6000, 60_000):
        yield f"data:image/png;base64,{base64.b64encode(source.randbytes(size)).decode()}"
        zeros = bytes(source.choices([0, 0, 1, 255], k=size))
        yield f'<img src="data:image/gif;base64,{base64.b64encode(zeros).decode()}">'
    yield str(uuid.UUID(int=source.getrandbits(128)))


LINES = list(clean_lines())


@pytest.mark.parametrize(
    ("text", "is_hidden"),
    [
        ("password: sunshine and rain", False),
        ("connect(password=hunter, retries=3)", False),
        ("connect(user=a, password=hunter)", False),
        ("password: Sunshine", True),
        ("password=hunter;", True),
        ("password: sunshine\nand rain", True),
    ],
)
def test_bare_word_is_prose_or_code_where_more_of_it_follows(text, is_hidden):
    assert (redact(text) != text) is is_hidden


def test_there_are_enough_clean_lines() -> None:
    assert len(set(LINES)) >= 400


@pytest.mark.parametrize(
    "frame", ["{}", "2026-05-01 12:00:00 INFO app.worker {}", '{{"level": "info", "event": "{}"}}']
)
def test_at_most_one_percent_of_clean_lines_change(frame: str) -> None:
    texts = [frame.replace("{}", line, 1) for line in LINES]
    changed = [(text, redact(text)) for text in texts if redact(text) != text]
    assert len(changed) <= 0.01 * len(texts), changed


@every_row("seed", range(5))
def test_clean_lines_do_not_become_secrets_of_their_neighbours(seed: int) -> None:
    lines = [line for line in LINES if len(line) < 500]
    random.Random(seed).shuffle(lines)
    text = "\n".join(lines)
    assert redact(text) == text


@given(st.from_regex(r"[a-z_]{0,24}", fullmatch=True))
@example("password")
@example("aws_secret_access_key")
def test_a_short_word_alone_is_no_credential(word):
    """`find_spans` does not search such a word any further."""
    assert _search(word) == []
    assert readings(word) == []


@given(
    st.lists(
        st.sampled_from([*"aKz09 _-=:/.\"'(\n\u212a\u0130", "pa", "ss", "ke", "se", "cr", "u ", "?", "a1B2c3D4e5F6"]),
        max_size=24,
    )
)
def test_a_short_text_without_any_sign_of_a_credential_has_none(parts):
    """`find_spans` does not search such a text any further."""
    text = "".join(parts)[:_SHORT]
    assume(not _SIGN.search(lowered(text)))
    assert _search(text) == []
    assert readings(text) == []


def test_every_format_of_a_credential_has_a_sign():
    source = random.Random(7)
    values = [made(pattern, source) for pattern in VENDORS.values()]
    assert [value for value in values if not _SIGN.search(lowered(value))] == []
