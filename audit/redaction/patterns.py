"""Find credentials by their own spelling: vendor prefixes, marks inside a token, web tokens, private key blocks.

Holds the tables of token formats, and the word tables that named.py and places.py judge by. Looks at no names and no
context. A format is tried only where its literal occurs, so that clean text stays cheap.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import zip_longest
from typing import NamedTuple

from audit.repetition import possessive


class Span(NamedTuple):
    """A credential in a text: its bounds and its kind."""

    start: int
    end: int
    kind: str


def most_candidates(text: str) -> int:
    """Return how many places of a text are judged one by one; a text with more is masked as a whole."""
    return 1_000 + len(text) // 48


# --- Finding tokens ---


@dataclass(frozen=True)
class Rule:
    """A literal and the expression tried where it occurs; a run of `left` before it belongs to the token too.

    Most literals never occur in a process: an expression is compiled when its literal is first met.
    """

    kind: str
    literal: str
    written: str
    bounded: bool = False
    left: re.Pattern[str] | None = None
    most: int = 0

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.written)


def token_spans(text: str) -> Iterator[Span]:
    """Yield every token of a known format."""
    for rule in _rules_for(text):
        for found in rule.expression.finditer(text):
            start = _widened(rule, text, found.start())
            if start is not None:
                yield Span(start, found.end(), rule.kind)


# The shortest token, prefix included, has this many characters.
_RUN = re.compile(r"[A-Za-z0-9_.+/=~$%:-]{15,}+")
RUN_SIGN = r"[a-z0-9_.+/=~$%:-]{15}"  # in a lowered text
_MAY_HIDE_BOUNDARY = re.compile(r"[%\\\x1b\[]")


def _rules_for(text: str) -> Iterator[Rule]:
    """Yield the rules whose literal occurs in a run that is long enough for a token."""
    runs = "\n".join(_RUN.findall(text))
    if runs:
        yield from (rule for rule in _MARKS if rule.literal in runs)
        if _any_literal(bounded=not _MAY_HIDE_BOUNDARY.search(text)).search(runs):
            yield from (rule for rule in _OTHERS if rule.literal in runs)


@cache
def _any_literal(*, bounded: bool) -> re.Pattern[str]:
    """Return a quick test that no literal occurs; without boundaries where escapes may hide them."""
    if not bounded:
        return re.compile(grouped(re.escape(rule.literal) for rule in _OTHERS))
    glued = grouped(re.escape(rule.literal) for rule in _OTHERS if not rule.bounded)
    free = grouped(re.escape(rule.literal) for rule in _OTHERS if rule.bounded)
    return re.compile(rf"{glued}|(?<![A-Za-z0-9])(?:{free})")


def _widened(rule: Rule, text: str, start: int) -> int | None:
    """Return where a marked token begins; None when the run before the mark is longer than the format allows."""
    if rule.left is None:
        return start
    run = start
    while run > 0 and start - run <= rule.most and rule.left.match(text, run - 1):
        run -= 1
    return run if start - run <= rule.most else None


def grouped(expressions: Iterable[str]) -> str:
    """Join expressions that begin with a literal character, grouped by it: one character decides, not each literal."""
    groups: dict[str, set[str]] = {}
    for expression in expressions:
        first = expression[:2] if expression[0] == "\\" else expression[0]
        groups.setdefault(first, set()).add(expression[len(first) :])
    return "|".join(
        f"{first}(?:{'|'.join(sorted(rests, key=lambda rest: (-len(rest), rest)))})"
        for first, rests in sorted(groups.items())
    )


# What may precede a token although it ends in a letter or digit: an escape or a colour code.
_ESCAPES = (
    r"%[0-9A-Fa-f]{2}",
    r"\\[abefnrtv]",
    r"\\u00[0-9A-Fa-f]{2}",
    r"\\x[0-9A-Fa-f]{2}",
    r"\[\dm",
    r"\[\d\dm",
    r";\d\dm",
    r"\[m",
)


def _rules() -> tuple[Rule, ...]:
    rules = [
        Rule(kind, literal, re.escape(literal) + body)
        for kind, literals, body in DISTINCT
        for literal in literals.split()
    ]
    rules += [
        Rule(kind, literal, _after_boundary(literal) + body, bounded=True)
        for kind, literals, body in BOUNDED
        for literal in literals.split()
    ]
    for kind, mark, left, least, most, body in MARKED:
        escaped = re.escape(mark)
        written = rf"{escaped}(?<={left}{{{least}}}{escaped}){body}"
        rules.append(Rule(kind, mark, written, left=re.compile(left), most=most))
    # The run before `eyJ` must end there: a chain of them is then read once, not once per link.
    web_token = _after_boundary("eyJ", also="_-") + (
        r"(?a:[\w-]{8,}+=*+\.(?:[\w-]*+=*+\.[\w-]*+(?:\.[\w-]*+){0,2}|eyJ[\w-]{8,}+))"
    )
    rules.append(Rule("jwt", "eyJ", web_token, bounded=True))
    return tuple(rules)


def _after_boundary(literal: str, *, also: str = "") -> str:
    """Require a word boundary before the literal. The look-behind follows it: the search keeps its literal prefix."""
    escaped = re.escape(literal)
    behind = "|".join([f"(?<![A-Za-z0-9{also}]{escaped})", *(f"(?<={escape}{escaped})" for escape in _ESCAPES)])
    return f"{escaped}(?:{behind})"


# --- Private key blocks ---

_EDGE = re.compile(
    r"-{4,5}[ +]?(BEGIN|END)(?:[ +]|%20)(?:[A-Z0-9]{1,12}(?:[ +]|%20)){0,4}PRIVATE(?:[ +]|%20)KEY"
    r"(?:(?:[ +]|%20)BLOCK)?[ +]?-{4,5}"
)
_BREAK = r"(?:\s|\\{1,8}+[nrt]|%0[aAdD]|&#1[03];|[\"'+,>|])"
# A block without an end: whole lines of it, then a last short piece if nothing else follows on that line.
_OPEN_BODY = re.compile(
    possessive(
        rf"(?>{_BREAK}{{0,64}})(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]{{0,120}}+|[A-Za-z0-9+/=_]{{20,}}+)"
    )
    + rf"(?:(?>{_BREAK}{{0,64}})[A-Za-z0-9+/=_]{{1,64}}+(?=[\s\"'`]*+(?:\Z|[\n\\<}}])))?"
)
_LINES = possessive(r"[A-Za-z0-9+/=]{1,80}+" + possessive(r"\s|\\[nr]"), "{1,400}")
_PUTTY = re.compile(r"Private-Lines: ?\d{1,4}" + possessive(r"\s|\\[nr]", "+") + _LINES)


BLOCK_SIGNS = ("private",)


def block_spans(text: str) -> Iterator[Span]:
    """Yield private key blocks, whole or cut off."""
    if "PRIVATE" in text:
        edges = list(_EDGE.finditer(text))
        for edge, following in zip_longest(edges, edges[1:]):
            if edge[1] == "END":
                continue
            if following is not None and following[1] == "END":
                yield Span(edge.start(), following.end(), "private-key")
            else:
                body = _OPEN_BODY.match(text, edge.end())
                yield Span(edge.start(), body.end() if body else edge.end(), "private-key")
    if "Private-Lines:" in text:
        for found in _PUTTY.finditer(text):
            yield Span(found.start(), found.end(), "private-key")


# --- Token formats ---

A = "[A-Za-z0-9]"
H = "[A-Fa-f0-9]"
W = r"[A-Za-z0-9_]"
D = r"[A-Za-z0-9_-]"
B = r"[A-Za-z0-9+/_=-]"
UUID = rf"{H}{{8}}-{H}{{4}}-{H}{{4}}-{H}{{4}}-{H}{{12}}"
# Short prefixes also begin hyphenated words; a digit or a capital soon after, or twenty letters in one piece, tells a
# key from a word.
NOT_WORDS = r"(?=[A-Za-z0-9_-]{0,40}[A-Z0-9]|[a-z_-]{0,20}[a-z]{20})"
DIGITS = r"(?=[A-Za-z0-9_-]{0,60}[0-9])"
# Rows: kind, literals, what follows a literal. These prefixes do not occur inside other words: no boundary is needed.
DISTINCT: tuple[tuple[str, str, str], ...] = (
    ("anthropic-key", "sk-ant-", rf"{D}{{16,}}+"),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-or-v1-", rf"{D}{{16,}}+"),
    ("source-host-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{A}{{20,}}+"),
    ("source-host-token", "github_pat_", rf"{W}{{20,}}+"),
    ("source-host-token", "glpat- gldt- glptt- glrt- glrtr- glimt- glft- glffct- glagent- gloas- glsoat- glwt-",
     rf"{D}{{16,}}+(?:\.{D}{{2,}}+){{0,2}}"),
    ("source-host-token", "glcbt-", rf"{A}{{1,5}}_{D}{{16,}}+(?:\.{D}{{2,}}+){{0,2}}"),
    ("source-host-token", "GR1348941", rf"{D}{{16,}}+"),
    ("session", "_gitlab_session=", rf"{A}{{24,}}+"),
    ("slack-token", "xoxb- xoxp- xoxa- xoxo- xoxr- xoxs- xoxe- xoxc- xoxd- xoxe.xoxp- xoxe.xoxb- xapp- xwfp-",
     r"[A-Za-z0-9%+/-]{10,}+"),
    ("stripe-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", rf"{W}{{10,}}+"),
    ("webhook-secret", "whsec_", rf"{B}{{16,}}+"),
    ("lqops-key", "lqk_", rf"{D}{{30,}}+"),
    ("groq-key", "gsk_", rf"{A}{{30,}}+"),
    ("nvidia-key", "nvapi-", rf"{D}{{30,}}+"),
    ("perplexity-key", "pplx-", rf"{A}{{30,}}+"),
    ("pinecone-key", "pcsk_", rf"{W}{{20,}}+"),
    ("langsmith-key", "lsv2_pt_ lsv2_sk_", rf"{W}{{20,}}+"),
    ("together-key", "tgp_v1_", rf"{D}{{20,}}+"),
    ("tavily-key", "tvly-", rf"{D}{{16,}}+"),
    ("ai-key", "jina_", rf"{A}{{30,}}+"),
    ("huggingface-token", "api_org_", rf"{A}{{30,}}+"),
    ("ai-key", "wandb_v1_", rf"{W}{{30,}}+"),
    ("google-oauth", "GOCSPX-", rf"{D}{{20,}}+"),
    ("google-oauth", "ya29.", r"[A-Za-z0-9_.-]{20,}+"),
    ("npm-token", "npm_", rf"{A}{{30,}}+"),
    ("package-token", "pypi-Ag", rf"{D}{{30,}}+"),
    ("package-token", "rubygems_", rf"{A}{{32,}}+"),
    ("docker-token", "dckr_pat_ dckr_oat_", rf"{D}{{16,}}+"),
    ("package-token", "CLOJARS_ clojars_", rf"{A}{{40,}}+"),
    ("readme-key", "rdme_", rf"{A}{{40,}}+"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", rf"{A}{{32,}}+"),
    ("cloudflare-token", "cfut_ cfat_ cfk_", rf"{D}{{30,}}+"),
    ("cloudflare-key", "v1.0-", rf"{H}{{24}}-{H}{{100,}}+"),
    ("vault-token", "hvs. hvb. hvr.", rf"{D}{{16,}}+"),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[A-Za-z0-9_.-]{30,}+"),
    ("pulumi-token", "pul-", rf"{H}{{40,}}+"),
    ("onepassword-token", "ops_eyJ", rf"{B}{{60,}}+"),
    ("heroku-key", "HRKU-", rf"{D}{{30,}}+"),
    ("netlify-token", "nfp_ nfc_ nfo_ nfb_ nfu_", rf"{A}{{30,}}+"),
    ("fly-token", "fo1_ fm1a_ fm1r_ fm2_", rf"{B}{{30,}}+"),
    ("render-key", "rnd_", rf"{A}{{24,}}+"),
    ("hosting-token", "vercel_blob_rw_ vcp_ vck_ vca_ vci_ vcr_", rf"{W}{{24,}}+"),
    ("tailscale-key", "tskey-", rf"{D}{{16,}}+"),
    ("netbird-token", "nbp_", rf"{A}{{30,}}+"),
    ("supabase-token", "sbp_ sb_secret_ sb_publishable_", rf"{D}{{20,}}+"),
    ("database-token", "pscale_tkn_ pscale_oauth_ pscale_pw_", r"[A-Za-z0-9_=.-]{20,}+"),
    ("neon-key", "napi_", rf"{A}{{30,}}+"),
    ("mongodb-secret", "mdb_sa_sk_", rf"{D}{{20,}}+"),
    ("aiven-password", "AVNS_", rf"{D}{{12,}}+"),
    ("xata-key", "xau_", rf"{A}{{30,}}+"),
    ("dbt-token", "dbtc_ dbtu_", rf"{B}{{24,}}+"),
    ("newrelic-key", "NRAK- NRJS- NRII- NRIQ- NRRA- NRAA- NRSP-", rf"{D}{{16,}}+"),
    ("monitoring-token", "sntrys_ sntryu_ sntrya_", rf"{B}{{40,}}+"),
    ("grafana-token", "glc_ glsa_", r"[A-Za-z0-9_+/=]{30,}+"),
    ("dynatrace-token", "dt0c01. dt0s01. dt0s02. dt0s16.", r"[A-Za-z0-9.]{40,}+"),
    ("honeycomb-key", "hcaik_ hcxik_ hcbik_ hcxlk_ hcamk_", rf"{A}{{24,}}+"),
    ("logfire-token", "pylf_v1_", rf"{W}{{24,}}+"),
    ("posthog-key", "phc_ phx_ phs_", rf"{A}{{32,}}+"),
    ("axiom-token", "xaat- xapt-", UUID),
    ("circleci-token", "CCIPAT_ CCIPRJ_", rf"{W}{{30,}}+"),
    ("buildkite-token", "bkua_ bkat_ bkct_ bkpt_", rf"{A}{{30,}}+"),
    ("prefect-key", "pnu_ pnb_", rf"{A}{{30,}}+"),
    ("sonar-token", "squ_ sqp_ sqa_", rf"{H}{{32,}}+"),
    ("scanner-token", "snyk_uat. snyk_sat.", r"[A-Za-z0-9_.-]{24,}+"),
    ("sourcegraph-token", "sgp_ slk_ sgd_", rf"{W}{{32,}}+"),
    ("sendinblue-key", "xkeysib- xsmtpsib-", rf"{D}{{40,}}+"),
    ("mailersend-key", "mlsn.", rf"{H}{{40,}}+"),
    ("notion-token", "ntn_ secret_", rf"{A}{{40,}}+"),
    ("linear-key", "lin_api_ lin_oauth_ lin_wh_", rf"{A}{{24,}}+"),
    ("figma-token", "figd_ figo_ figu_ figoh_", rf"{D}{{20,}}+"),
    ("typeform-token", "tfp_", r"[A-Za-z0-9_.=-]{30,}+"),
    ("postman-key", "PMAK- PMAT-", rf"{D}{{20,}}+"),
    ("contentful-token", "CFPAT-", rf"{D}{{30,}}+"),
    ("frameio-token", "fio-u-", rf"{B}{{40,}}+"),
    ("atlassian-token", "ATATT3 ATCTT3 ATOAT", rf"{B}{{40,}}+"),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_ shptka_", rf"{H}{{24,}}+"),
    ("commerce-token", "shippo_live_ shippo_test_", rf"{A}{{30,}}+"),
    ("commerce-token", "duffel_live_ duffel_test_", rf"{B}{{30,}}+"),
    ("razorpay-key", "rzp_live_ rzp_test_", rf"{A}{{12,}}+"),
    ("square-token", "sq0atp- sq0csp- sq0idp-", rf"{D}{{20,}}+"),
    ("flutterwave-key", "FLWSECK_TEST- FLWSECK-", rf"{D}{{12,}}+"),
    ("payment-token", "access_token$production$ access_token$sandbox$", r"[a-z0-9]{12,}\$[a-f0-9]{24,}+"),
    ("plaid-token", "access-sandbox- access-development- access-production-", UUID),
    ("identity", "AGE-SECRET-KEY- AGE-PLUGIN-", r"[A-Z0-9-]{30,}+"),
    ("databricks-token", "dose", rf"{H}{{32,}}+"),
    ("aws-marketplace-token", "amzn.mws.", UUID),
    ("aws-model-key", "bedrock-api-key-", rf"{B}{{24,}}+"),
    ("onesignal-key", "os_v2_app_ os_v2_org_", rf"{A}{{40,}}+"),
    ("login-token", "secret-test- secret-live-", rf"{B}{{30,}}+"),
    ("n8n-key", "n8n_api_", r"[A-Za-z0-9_.-]{30,}+"),
    ("tracker-token", "waka_", UUID),
    ("scalingo-token", "tk-us-", rf"{D}{{40,}}+"),
    ("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", rf"{A}{{16,}}+"),
    ("defined-key", "dnkey-", rf"{B}{{40,}}+"),
    ("intra42-secret", "s-s4t2ud- s-s4t2af-", rf"{H}{{40,}}+"),
    ("openshift-token", "sha256~", rf"{D}{{40,}}+"),
    ("password-hash", "$2a$ $2b$ $2y$", r"\d\d\$[./A-Za-z0-9]{53}"),
    ("password-hash", "$argon2i$ $argon2d$ $argon2id$", r"[A-Za-z0-9=,$+/.]{40,}+"),
    ("password-hash", "$1$ $5$ $6$ $y$", r"(?:rounds=\d+\$)?[./A-Za-z0-9$]{1,24}\$[./A-Za-z0-9]{22,}+"),
    ("password-hash", "pbkdf2_sha256$ pbkdf2_sha1$ bcrypt_sha256$", r"[A-Za-z0-9$+/=.]{30,}+"),
)  # fmt: skip
# Prefixes short enough to end other words: the character before must not be a letter or a digit.
BOUNDED: tuple[tuple[str, str, str], ...] = (
    ("secret-key", "sk-", rf"{NOT_WORDS}{D}{{20,}}+"),
    ("secret-key", "sk_", rf"{A}{{32,}}+"),
    ("google-key", "AIza", rf"{D}{{35,}}+"),
    ("google-key", "AQ.", rf"{D}{{40,}}+"),
    ("google-oauth", "1//0", rf"{D}{{30,}}+"),
    ("aws-access-key", "AKIA ASIA ABIA ACCA A3T",
     r"[A-Z0-9]{16,17}(?![A-Za-z0-9])(?:[^A-Za-z0-9+/=\n]{1,6}[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=]))?"),
    ("aws-model-key", "ABSK", rf"{B}{{40,}}+"),
    ("aws-session-token", "FwoGZXIvYXdz IQoJb3JpZ2lu", rf"{B}{{40,}}+"),
    ("huggingface-token", "hf_", rf"{A}{{30,}}+"),
    ("ai-key", "xai-", rf"{A}{{40,}}+"),
    ("replicate-token", "r8_", rf"{A}{{30,}}+"),
    ("fireworks-key", "fw_", rf"{DIGITS}{A}{{22,}}+"),
    ("voyage-key", "pa-", rf"{DIGITS}{D}{{40,}}+"),
    ("firecrawl-key", "fc-", rf"{H}{{32,}}+"),
    ("e2b-key", "e2b_", rf"{H}{{32,}}+"),
    ("cerebras-key", "csk-", rf"{A}{{30,}}+"),
    ("brave-key", "BSA", rf"{DIGITS}{D}{{27,}}+"),
    ("databricks-token", "dapi", rf"{H}{{32,}}+(?:-\d)?"),
    ("sendgrid-key", "SG.", rf"{D}{{16,}}+\.{D}{{16,}}+"),
    ("mailgun-key", "key-", rf"{H}{{32}}"),
    ("mandrill-key", "md-", rf"{DIGITS}(?=[A-Za-z0-9_-]{{0,30}}[A-Z]){D}{{22}}(?!{D})"),
    ("resend-key", "re_", rf"{A}{{8}}_{A}{{20,}}+"),
    ("twilio-key", "SK", rf"{H}{{32}}(?!{A})"),
    ("atlassian-token", "ATBB", rf"{A}{{24,}}+"),
    ("atlassian-token", "BBDC-", rf"{B}{{40,}}+"),
    ("trello-token", "ATTA", rf"{H}{{60,}}+"),
    ("airtable-token", "pat", rf"{A}{{14}}\.{H}{{64}}"),
    ("hubspot-token", "pat-", rf"[a-z]{{2}}\d-{UUID}"),
    ("harness-token", "pat. sat.", rf"{D}{{22}}\.{A}{{24}}\.{A}{{20}}"),
    ("clickup-token", "pk_", r"\d{5,12}_[A-Z0-9]{24,}+"),
    ("intercom-token", "dG9rO", rf"{B}{{40,}}+"),
    ("dropbox-token", "sl.", rf"(?:u\.)?{D}{{60,}}+"),
    ("adobe-secret", "p8e-", rf"{D}{{28,}}+"),
    ("infracost-key", "ico-", rf"{A}{{30,}}+"),
    ("octopus-key", "API-", r"[A-Z0-9]{25,}+"),
    ("vault-token", "s.", rf"{DIGITS}{A}{{24}}(?!{D})"),
    ("onepassword-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    ("nuget-key", "oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("crates-token", "cio", rf"{DIGITS}{A}{{32}}(?!{A})"),
    ("artifactory-key", "AKCp", rf"{A}{{50,}}+"),
    ("artifactory-token", "cmVmdGtu cmVmd", rf"{A}{{50,}}+"),
    ("alibaba-key", "LTAI", rf"{A}{{16,}}+"),
    ("tencent-key", "AKID", rf"{A}{{32,}}+"),
    ("scaleway-key", "SCW", r"[A-Z0-9]{17}(?![A-Za-z0-9])"),
    ("yandex-key", "AQVN", rf"{D}{{35,}}+"),
    ("yandex-token", "t1.", rf"{D}{{20,}}+={{0,2}}\.{D}{{40,}}+={{0,2}}"),
    ("easypost-key", "EZAK EZTK", rf"{A}{{50,}}+"),
    ("facebook-token", "EAA", rf"(?!{W}{{0,90}}AAAAA){A}{{90,}}+"),
    ("square-token", "EAAA", rf"(?!{D}{{0,60}}AAAA){D}{{55,}}+"),
    ("payment-token", "A21AA", rf"{D}{{60,}}+"),
    ("clickhouse-key", "4b1d", rf"(?=[A-Za-z0-9]{{0,38}}[A-Z]){A}{{38}}(?!{A})"),
    ("mollie-key", "live_ test_", rf"(?=(?:[A-Za-z]{{0,12}}[0-9]){{3}}){A}{{30,}}+"),
    ("launchdarkly-key", "sdk- api- mob-", UUID),
    ("fauna-key", "fnA", rf"{DIGITS}{D}{{35,}}+"),
    ("sanity-token", "sk", rf"(?=(?:[A-Za-z]{{0,16}}[0-9]){{6}})(?=[A-Za-z0-9]{{0,40}}[A-Z]){A}{{80,}}+"),
    ("mapbox-token", "sk.eyJ pk.eyJ tk.eyJ", rf"{D}{{20,}}+\.{D}{{16,}}+"),
    ("grafana-token", "eyJrIjoi", rf"{B}{{40,}}+"),
    ("private-key", "LS0tLS1CRUdJTi",
     rf"B(?:SU0EgUFJJV|QUklWQVRF|PUEVOU1NI|FQyBQUklW|FTkNSWVBU|EU0EgUFJJ|QR1AgUFJJ){B}{{16,}}+"),
)  # fmt: skip
# Tokens known by a mark in their middle: (kind, mark, characters before it, least and most of them, what follows).
MARKED: tuple[tuple[str, str, str, int, int, str], ...] = (
    ("azure-client-secret", "Q~", r"[A-Za-z0-9_~.]", 4, 8, r"[A-Za-z0-9_~.-]{24,}+"),
    ("azure-key", "AZDO", A, 60, 90, rf"{A}{{4,}}+"),
    ("azure-key", "JQQJ99", A, 40, 90, rf"{A}{{20,}}+"),
    ("azure-key", "+ASt", r"[A-Za-z0-9+/]", 60, 90, r"[A-Za-z0-9+/]{4,}+=*"),
    ("terraform-token", ".atlasv1.", A, 10, 20, rf"{B}{{40,}}+"),
    ("telegram-token", ":", "[0-9]", 8, 10, rf"{D}{{35}}(?!{D})"),
    ("telegram-token", ":AA", "[0-9]", 5, 16, rf"{D}{{32,}}+"),
    ("firebase-token", ":APA91b", D, 7, 40, rf"{D}{{60,}}+"),
    ("ghost-key", ":", H, 24, 24, rf"{H}{{64}}(?!{A})"),
    ("mailchimp-key", "-us", H, 32, 32, rf"\d{{1,2}}(?!{A})"),
    ("mailgun-key", "-", H, 32, 32, rf"{H}{{8}}-{H}{{8}}(?!{D})"),
    ("deepl-key", "-", rf"{H}", 8, 8, rf"{H}{{4}}-{H}{{4}}-{H}{{4}}-{H}{{12}}:fx"),
    ("discord-token", ".", D, 23, 28, rf"{D}{{6}}\.(?={D}{{0,30}}[A-Z]){D}{{27,}}+"),
    ("maxmind-key", "_mmk", W, 30, 40, rf"(?!{A})"),
    ("newrelic-key", "NRAL", A, 32, 40, rf"(?!{A})"),
)  # fmt: skip
RULES = _rules()
_MARKS = tuple(rule for rule in RULES if len(rule.literal) == 1)
_OTHERS = tuple(rule for rule in RULES if len(rule.literal) > 1)


# --- Words that names and values are judged by (named.py, places.py) ---


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSWORD_WORDS = _words("""
    dbpass mysqlpwd pass passcode passphrase passwd password passwort pgpassword psw pswd pw pwd rootpass sshpass
    userpass
""")

TOKEN_WORDS = _words("""
    accesskey accesstoken accountkey apikey apitoken appkey authkey authorization authtoken bearer clientsecret cookie
    cookies credential jsessionid jwt masterkey otp passkey pat phpsessid privatekey psk refreshtoken secret secretkey
    sessid sessionkey sessiontoken sharedaccesskey sharedkey token
""")

# Names that may hold a credential; the value must look random.
WEAK_WORDS = _words("""
    auth credentials creds csrf dsn key keys licence license passwords salt secrets sessionid sid tokens xsrf
""")

# `<qualifier> key` is a credential outright; any other `key` must show a random value.
KEY_QUALIFIERS = _words("""
    access account admin aes api auth authentication cipher consumer crypto decryption deploy encryption gpg hmac
    ingest jwt license master pgp private rsa sas secret shared signing ssh ssl storage subscription tls wallet
    webhook write
""")

# `<word> key` is none.
PLAIN_KEYS = _words("""
    cache composite dedup dedupe event foreign group hash idem idempotency index known lock lookup message natural
    object order partition pub public range registry routing row search shard socket sort surrogate topic translation
    unique
""")

# A name that ends so speaks about a credential; it does not hold one.
ABOUT_WORDS = _words("""
    age alg algo algorithm alias arn at attempt attempts audience avg backend board bucket budget bytes cache cached
    change changed check checks checksum class code codes color colour column config cost count counter counts created
    date days delay description detection digest dir directory disabled down enabled endpoint env error errors etag
    exists exp expiration expired expires expiry factory failure failures field fields file filename fingerprint form
    format func function generator group handler hash hashed hasher hashers hashes help hint history hours id ids in
    index input interval invalid issuer key_id keyid kind label leak len length lifetime limit limits location manager
    max md5 message method min minutes mode mount ms name names namespace number oldpwd option options out output
    owner page path pattern per permission permissions placeholder policies policy prefix present press price
    protected provider rate ref reference refs regex region remaining required reset retries ring role rotated
    rotation rule rules saved scan scanner schema scheme scope scopes screen seconds selector service set settings sha
    sha1 sha256 size source state status store strength style suffix sum table template templates text thumbprint time
    timeout timeouts title total ttl type types up updated uri url usage used valid validator validators version view
    volume window word words
""")

# Words after the noun that change nothing: `password_value`, `SECRET_KEY_BASE`.
FILLER_WORDS = _words("""
    admin b64 backup base cleartext current data default dev development encoded header hex live local main new old
    plain plaintext primary prod production raw remote ro rw secondary stage staging str string test user v1 v2 val
    value web
""")

# Before `token`: counts, pages and parser errors.
COUNTED_WORDS = _words("""
    cached cancellation completion continuation cursor expected expired has input invalid is max min missing next no
    num number output page pagination previous prompt public reasoning remaining sync syntax total unexpected used
""")

# Words of placeholders such as `your-api-key`.
STAND_INS = _words("""
    bar baz change changeme dummy enter example fake filtered fixme foo goes here hidden insert masked my none omitted
    placeholder put redacted removed replace sample sanitized some test todo your
""")

# Values that are words of prose or code.
PLAIN_WORDS = _words("""
    a abc absent accepted access active admin again all also an and another any apikey are arg args as at auth
    authenticated authentication authenticator authorisation authorization available bar basic baz be bearer been
    blank bool boolean both bucket budget but by bytes can cannot change changed changeme char character characters
    check client cls config configuration cookie cookies corrupt corrupted could count counter created credential
    credentials current data date debug default deleted denied did different digest digits disabled do does done dummy
    each else email empty enabled encrypted endpoint enter env environment error errors every example exception exist
    exists expired expires expiry exposed failed failing failure fake false field fields file filtered first fixme
    float foo for forbidden form found from generated granted had has hash hashed have her here hidden his how id if
    in inactive incorrect info input int integer into invalid is issue issued issuer it its just key keys kind kwargs
    last leaked length letters limit limits loaded loading login logout long lost mail malformed manager masked match
    matched matches max may might min mismatch mismatched missing must my name nan needed new new_password next nil no
    none not now null number object of off ok okay old old_password omitted on only optional or other our output param
    params parser pass passphrase passwd password passwords path pending per placeholder plain plaintext please policy
    present previous private prompt provide provided provider public pw pwd qux raw read reading received redacted
    refresh refreshed rejected removed request required reset response result revoked root rotated rotation same
    sample sanitized second secret secrets see self sent serializer server service session set sets setting settings
    setup shall short should size stdin stolen store stored str string strong succeeded success successfully supported
    symbols test testing tests text that the their then there these this those to todo token tokens too total true try
    type types unauthorized unavailable undefined unknown unlimited unset unsupported updated url usage use used user
    username using uuid val valid validator value varchar variable variables vault verified verifier via warning was
    weak were what when which while who why will with without would writing written wrong xxx yes your
""")

# Words that make a quoted value a sentence.
SENTENCE_WORDS = _words("""
    a an and are at be by can cannot changed characters contain contains did do does enter expired failed field for
    from has i if in incorrect invalid is it least may missing must need needs not of on or please required reset
    should than that the they this to too use used was we when will with wrong you your
""")

# Passwords of examples.
STOP_WORDS = _words("""
    admin changeme example pass passwd password pw pwd root secret token user username
""")

COOKIE_ATTRIBUTES = _words("""
    comment domain expires max-age path priority samesite version
""")
