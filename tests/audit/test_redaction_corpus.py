"""The corpus of the redaction tests: kinds of credentials, the lines they slip into, and their recall.

Values are made at run time from a format and seeded random characters; no file holds anything that looks like one.
"""

import random
import re
import string
from collections.abc import Iterator

import pytest

from audit.redaction import redact

SAMPLE_AND_ALL = [2, pytest.param(20, marks=pytest.mark.stress)]

ALPHABETS = {
    "A": string.ascii_letters + string.digits,
    "a": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "T": string.ascii_uppercase + "234567",
    "h": string.hexdigits[:16],
    "d": string.ascii_letters + string.digits + "_-",
    "w": string.ascii_letters + string.digits + "_",
    "b": string.ascii_letters + string.digits + "+/",
    "n": string.digits,
    "L": string.ascii_letters,
    "z": string.ascii_lowercase,
}
# kind: prefix and random parts; {A36} stands for 36 random characters of alphabet A.
VENDORS = {
    "openai-project": "sk-proj-{d58}T3BlbkFJ{d58}",
    "openai-service": "sk-svcacct-{d74}T3BlbkFJ{d74}",
    "openai-admin": "sk-admin-{d58}T3BlbkFJ{d58}",
    "openai-old": "sk-{A20}T3BlbkFJ{A20}",
    "openai-short": "sk-{A20}",
    "openai-lower": "sk-{z20}",
    "openai-long-lower": "sk-{z48}",
    "anthropic": "sk-ant-api03-{d93}AA",
    "anthropic-admin": "sk-ant-admin01-{d93}AA",
    "anthropic-oauth": "sk-ant-oat01-{d86}AA",
    "google": "AIza{d35}",
    "google-secret": "GOCSPX-{d28}",
    "google-access": "ya29.{d120}",
    "github-pat": "ghp_{A36}",
    "github-oauth": "gho_{A36}",
    "github-user": "ghu_{A36}",
    "github-server": "ghs_{A36}",
    "github-refresh": "ghr_{A76}",
    "github-fine": "github_pat_{A22}_{A59}",
    "gitlab": "glpat-{d20}",
    "gitlab-routable": "glpat-{d27}.01.{a9}",
    "gitlab-trigger": "glptt-{h40}",
    "gitlab-runner": "glrt-{d20}",
    "gitlab-deploy": "gldt-{d20}",
    "gitlab-runner-old": "GR1348941{d20}",
    "aws-key": "AKIA{T16}",
    "aws-temporary": "ASIA{T16}",
    "aws-bearer": "ABIA{T16}",
    "bedrock": "ABSK{b109}=",
    "stripe-live": "sk_live_{A24}",
    "stripe-test": "sk_test_{A99}",
    "stripe-restricted": "rk_live_{A24}",
    "stripe-webhook": "whsec_{A32}",
    "slack-bot": "xoxb-{n12}-{n13}-{A24}",
    "slack-user": "xoxp-{n12}-{n12}-{n13}-{h32}",
    "slack-app": "xapp-1-{U11}-{n13}-{h64}",
    "slack-refresh": "xoxe-1-{U146}",
    "huggingface": "hf_{L34}",
    "groq": "gsk_{A52}",
    "xai": "xai-{A80}",
    "openrouter": "sk-or-v1-{h64}",
    "replicate": "r8_{A37}",
    "perplexity": "pplx-{A48}",
    "nvidia": "nvapi-{d64}",
    "pinecone": "pcsk_{A6}_{A63}",
    "langsmith": "lsv2_pt_{h32}_{h10}",
    "npm": "npm_{A36}",
    "pypi": "pypi-AgEIcHlwaS5vcmc{d120}",
    "rubygems": "rubygems_{h48}",
    "docker-pat": "dckr_pat_{d27}",
    "digitalocean": "dop_v1_{h64}",
    "vault": "hvs.{d95}",
    "vault-batch": "hvb.{d140}",
    "sendgrid": "SG.{d22}.{d43}",
    "mailgun": "key-{h32}",
    "mailchimp": "{h32}-us{n2}",
    "brevo": "xkeysib-{h64}-{A16}",
    "databricks": "dapi{h32}",
    "atlassian": "ATATT3{d180}={U8}",
    "bitbucket": "ATBB{A32}",
    "notion": "ntn_{n11}{A35}",
    "notion-old": "secret_{A43}",
    "tailscale": "tskey-auth-{A17}-{A32}",
    "supabase": "sbp_{h40}",
    "cloudflare-user": "cfut_{A40}{h8}",
    "cloudflare-account": "cfat_{A40}{h8}",
    "cloudflare-ca": "v1.0-{h24}-{h146}",
    "linear": "lin_api_{A40}",
    "figma": "figd_{d43}",
    "airtable": "pat{A14}.{h64}",
    "hubspot": "pat-na1-{h8}-{h4}-{h4}-{h4}-{h12}",
    "postman": "PMAK-{h24}-{h34}",
    "shopify": "shpat_{h32}",
    "shopify-shared": "shpss_{h32}",
    "square": "sq0atp-{d22}",
    "square-secret": "sq0csp-{d43}",
    "newrelic": "NRAK-{U27}",
    "sentry-user": "sntryu_{h64}",
    "grafana": "glsa_{A32}_{h8}",
    "grafana-cloud": "glc_{A64}=",
    "dynatrace": "dt0c01.{U24}.{U64}",
    "doppler": "dp.pt.{A43}",
    "pulumi": "pul-{h40}",
    "terraform": "{A14}.atlasv1.{d67}",
    "circleci": "CCIPAT_{A22}_{h40}",
    "buildkite": "bkua_{h40}",
    "sonar": "squ_{h40}",
    "heroku": "HRKU-AA{d58}",
    "netlify": "nfp_{A36}",
    "fly": "fo1_{d43}",
    "planetscale": "pscale_tkn_{d43}",
    "telegram": "{n10}:AA{d33}",
    "discord-bot": "MTk4{A20}.{d6}.A1{d36}",
    "twilio": "SK{h32}",
    "azure-client": "{A3}8Q~{A34}",
    "age": "AGE-SECRET-KEY-1{U58}",
    "jwt": "eyJ{d33}.eyJ{d120}.{d43}",
    "jwe": "eyJ{d50}..{d16}.{d80}.{d22}",
    "alibaba": "LTAI{A20}",
    "easypost": "EZAK{A54}",
    "duffel": "duffel_live_{d43}",
    "shippo": "shippo_live_{h40}",
    "flutterwave": "FLWSECK_TEST-{h32}-X",
    "razorpay": "rzp_live_{A14}",
    "plaid": "access-sandbox-{h8}-{h4}-{h4}-{h4}-{h12}",
    "clojars": "CLOJARS_{a60}",
    "readme": "rdme_{a70}",
    "prefect": "pnu_{A36}",
    "typeform": "tfp_{d44}",
    "contentful": "CFPAT-{d43}",
    "adobe": "p8e-{A32}",
    "octopus": "API-{U26}",
    "onepassword": "ops_eyJ{b260}",
    "artifactory": "AKCp{A69}",
    "openshift": "sha256~{d43}",
    "harness": "pat.{d22}.{A24}.{A20}",
    "infracost": "ico-{A32}",
    "yandex": "AQVN{d37}",
    "maxmind": "{A6}_{A29}_mmk",
    "posthog": "phx_{A43}",
    "resend": "re_{A8}_{A24}",
    "clickhouse": "4b1d{A38}",
}
# Lines a bare token slips into: plain, delimited, encoded.
LINES = (
    "{}",
    "using {} for the call",
    "token={}",
    "key={}&page=2",
    "({})",
    "[{}]",
    "'{}'",
    '"{}"',
    "`{}`",
    "{},next",
    "{};",
    "<{}>",
    '{{"value":"{}","n":1}}',
    '{{\\"value\\":\\"{}\\",\\"n\\":1}}',
    "Authorization: Bearer {}",
    "url=https://h.test/p?x=1&t={}&y=2",
    "a%3D{}%26b%3D2",
    "line one\\n{}\\nline three",
    "err: bad key {}.",
    "\x1b[32m{}\x1b[0m",
    "https://{}@h.test/x.git",
    "x|{}|y",
    "<key>{}</key>",
    "export V={}",
    "v: {}",
    'v = "{}"',
    "{{'v': '{}'}}",
    "argv: --t={} --verbose",
    "a:{} b",
    "{}\n",
)
# Values without a format of their own, and the places that give them away.
OPAQUE = {
    "hex": "{h32}",
    "alnum": "{A24}",
    "password": "{A7}{n2}!",
    "symbols": "p{A4}@{n2}#{A3}",
    "base64": "x{n1}{b37}=",
    "uuid": "{h8}-{h4}-{h4}-{h4}-{h12}",
    "mixed": "Tr{n2}b{A3}r-{A3}{n1}",
    "percent": "p{n2}%40{A5}%21",
}
ASSIGNMENTS = (
    "password={}",
    "PASSWORD={}",
    "db_password = '{}'",
    'dbPassword: "{}"',
    "export API_TOKEN={}",
    "SECRET_KEY={}",
    "password: {}",
    '{{"password": "{}"}}',
    '{{"client_secret":"{}","x":1}}',
    "{{'api_key': '{}', 'b': 2}}",
    "access_token={}&expires=3600",
    "DB_PASS={} make",
    "spring.datasource.password={}",
    "aws_secret_access_key = {}",
    "AWS_SESSION_TOKEN={}",
    "api-key: {}",
    "passwd={};",
    "pwd={}\n",
    "X-Api-Key: {}",
    "x-auth-token: {}",
    "refresh_token='{}'",
    "SECRET: `{}`",
    "private_token={})",
    "//registry.npmjs.org/:_authToken={}",
    "PGPASSWORD={} psql -h db",
    'auth_token => "{}"',
    "config(token={}, x=1)",
)
HARD = (
    '{{\\"password\\":\\"{}\\",\\"user\\":\\"bob\\"}}',
    '"{{\\\\\\"token\\\\\\":\\\\\\"{}\\\\\\"}}"',
    "password%3D{}%26user%3Dbob",
    "%7B%22password%22%3A%22{}%22%7D",
    "password=&quot;{}&quot;",
    "?user=a&password={}&x=1",
    "Authorization: Bearer {}",
    "authorization: token {}",
    "'Authorization': 'ApiKey {}'",
    '-H "Authorization: Bearer {}" https://h.test',
    "Authorization: {}",
    "Proxy-Authorization: Bearer {}",
    "Cookie: sessionid={}; theme=dark",
    "Set-Cookie: session={}; Path=/; HttpOnly",
    "curl -u admin:{} https://h.test/x",
    'curl --user "bob:{}" https://h.test',
    "run --password {} --verbose",
    "run --token={}",
    "tool --api-key '{}'",
    "mysql -h db -u root -p{} app",
    "sshpass -p {} ssh h",
    "<password>{}</password>",
    '<db password="{}"/>',
    '<add key="ApiKey" value="{}" />',
    "Config(password='{}', port=1)",
    "postgres://app:{}@db.test:5432/app",
    "redis://:{}@h:6379/0",
    "https://user:{}@h.test/x",
    "Server=db;User Id=sa;Password={};Encrypt=yes",
    "AccountName=a;AccountKey={};Suffix=x",
    "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey={}",
    "machine h.test login bob password {}",
    "the password is {}",
    "password for bob was changed to {}",
    "mongodb+srv://u:{}@c0.mongodb.net/db",
    "password: |\n  {}\n",
    "password: '{}' # old",
    '{{"name": "DB_PASSWORD", "value": "{}"}}',
    "- name: API_TOKEN\n  value: {}",
    "('password', '{}')",
    "CREATE USER a IDENTIFIED BY '{}'",
    "ALTER ROLE a WITH PASSWORD '{}'",
    "docker login -u a -p {} registry.test",
    "[db]\npassword = {}",
)


def made(pattern: str, source: random.Random) -> str:
    """A value of the format."""
    return re.sub(r"\{(\w)(\d+)\}", lambda part: "".join(source.choices(ALPHABETS[part[1]], k=int(part[2]))), pattern)


def leaked(value: str, text: str) -> bool:
    """Whether the value, or any eight characters of it, can still be read."""
    pieces = {value[at : at + 8] for at in range(max(1, len(value) - 7))} if len(value) > 12 else {value}
    return any(piece in text for piece in pieces)


def vendor_cases(seed: int, rounds: int = 1) -> Iterator[tuple[str, str, str]]:
    source = random.Random(seed)
    for _ in range(rounds):
        for kind, pattern in VENDORS.items():
            for line in LINES:
                value = made(pattern, source)
                yield kind, value, line.format(value)


def opaque_cases(lines: tuple[str, ...], seed: int, rounds: int = 1) -> Iterator[tuple[str, str, str]]:
    source = random.Random(seed)
    for _ in range(rounds):
        for line in lines:
            for kind, pattern in OPAQUE.items():
                value = made(pattern, source)
                yield f"{kind} in {line}", value, line.replace("{{", "{").replace("}}", "}").replace("{}", value)


def misses(cases: list[tuple[str, str, str]]) -> list[str]:
    """The kinds and lines whose value survived."""
    return [f"{kind}: {line}" for kind, value, line in cases if leaked(value_of(value, line), redact(line))]


def value_of(value: str, line: str) -> str:
    """The value as the line spells it."""
    return value if value in line else line


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(1, 20))])
def test_finds_every_vendor_format_in_every_line(seed: int) -> None:
    assert misses(list(vendor_cases(seed))) == []


@pytest.mark.parametrize("rounds", SAMPLE_AND_ALL)
def test_recall_of_assignments_is_99_percent(rounds: int) -> None:
    cases = list(opaque_cases(ASSIGNMENTS, 1, rounds))
    missed = misses(cases)
    assert len(missed) <= 0.01 * len(cases), missed


@pytest.mark.parametrize("rounds", SAMPLE_AND_ALL)
def test_recall_of_hard_lines_is_97_percent(rounds: int) -> None:
    cases = list(opaque_cases(HARD, 3, rounds))
    missed = misses(cases)
    assert len(missed) <= 0.03 * len(cases), missed
