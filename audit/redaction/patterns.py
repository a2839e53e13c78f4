"""Find credentials by their own spelling: vendor prefixes, marks inside a token, web tokens, private key blocks.

Holds the tables of token formats, and the word tables that named.py and places.py judge by. Looks at no names and no
context. A format is tried only where its literal occurs, so that clean text stays cheap.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple


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
    """A literal, and the expression to try where the literal occurs.

    Most literals never occur in a process: an expression is compiled when its literal is first met.
    """

    kind: str
    literal: str
    written: str
    is_slow: bool = field(default=False, kw_only=True)  # has no literal prefix, and matches within a run

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.written)


# The shortest token, prefix included, has this many characters.
_RUN = re.compile(r"[A-Za-z0-9_.+/=~$%:-]{15,}+")


def token_spans(text: str) -> Iterator[Span]:
    """Yield every token of a known format."""
    runs = "\n".join(_RUN.findall(text))
    for rule in RULES if runs else ():
        if rule.literal in runs and (not rule.is_slow or rule.expression.search(runs)):
            for found in rule.expression.finditer(text):
                yield Span(*found.span(), rule.kind)


def _rules() -> Iterator[Rule]:
    for literals, body in DISTINCT:
        for literal in literals.split():
            yield Rule("token", literal, re.escape(literal) + body)
    for literals, body in BOUNDED:
        for literal in literals.split():
            yield Rule("token", literal, after_boundary(literal, "A-Za-z0-9") + body)
    for literals, body in PASSWORD_HASHES:
        for literal in literals.split():
            yield Rule("password-hash", literal, re.escape(literal) + body)
    for mark, left, least, most, body in MARKED:
        yield Rule("token", mark, rf"(?<!{left}){left}{{{least},{most}}}{re.escape(mark)}{body}", is_slow=True)
    # The run before `eyJ` must end there: a chain of them is then read once, not once per link.
    body = r"(?a:[\w-]{8,}+=*+\.(?:[\w-]*+=*+\.[\w-]*+(?:\.[\w-]*+){0,2}|eyJ[\w-]{8,}+))"
    yield Rule("jwt", "eyJ", after_boundary("eyJ", "A-Za-z0-9_-") + body)


def after_boundary(literal: str, characters: str) -> str:
    """Require that none of `characters` precedes. The look-behind follows the literal: it stays a literal prefix."""
    escaped = re.escape(literal)
    return f"{escaped}(?<![{characters}]{escaped})"


# --- Private key blocks ---

_EDGE = re.compile(r"-{4,5}[ +]?(BEGIN|END)[ +](?:[A-Z0-9]{1,12}[ +]){0,4}PRIVATE[ +]KEY(?:[ +]BLOCK)?[ +]?-{4,5}")
_BREAK = r"[\s\"'+,>|]"
# A block without an end: whole lines of it, then a last short piece if nothing else follows on that line.
_OPEN_BODY = re.compile(
    rf"(?:{_BREAK}{{0,64}}+(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]{{0,120}}+|[A-Za-z0-9+/=_]{{20,}}+))*+"
    rf"(?:{_BREAK}{{0,64}}+[A-Za-z0-9+/=_]{{1,64}}+(?=[\s\"'`]*+(?:\Z|[\n\\<}}])))?"
)
_PUTTY = re.compile(r"Private-Lines: ?\d{1,4}\s++(?:[A-Za-z0-9+/=]{1,80}+\s*+){1,400}+")


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
# Short prefixes also begin hyphenated words; a digit or a capital soon after tells a key from a word.
NOT_WORDS = r"(?=[A-Za-z0-9_-]{0,40}[A-Z0-9])"
DIGITS = r"(?=[A-Za-z0-9_-]{0,60}[0-9])"
# Rows: prefixes as vendors and secret scanners publish them, and what follows a prefix. These prefixes do not occur
# inside other words: no boundary is needed.
DISTINCT: tuple[tuple[str, str], ...] = (
    ("ghp_ gho_ ghu_ ghs_ ghr_ sm_aat_ sm_pat_ sm_sat_ rzp_live_ rzp_test_", rf"{A}{{12,}}+"),
    ("""gsk_ pplx- jina_ api_org_ npm_ nfp_ nfc_ nfo_ nfb_ nfu_ nbp_ napi_ xau_ bkua_ bkat_ bkct_ bkpt_ pnu_ pnb_ rnd_
     shippo_live_ shippo_test_ rubygems_ CLOJARS_ clojars_ rdme_ dop_v1_ doo_v1_ dor_v1_ phc_ phx_ phs_ os_v2_app_
     os_v2_org_ hcaik_ hcxik_ hcbik_ hcxlk_ hcamk_ lin_api_ lin_oauth_ lin_wh_ _gitlab_session=""", rf"{A}{{24,}}+"),
    ("ntn_ secret_", rf"{A}{{40,}}+"),
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", rf"{W}{{10,}}+"),
    ("vercel_blob_rw_ vcp_ vck_ vca_ vci_ vcr_ pylf_v1_", rf"{W}{{24,}}+"),
    ("sgp_ slk_ sgd_", rf"{W}{{32,}}+"),
    ("""sk-ant- sk-proj- sk-svcacct- sk-admin- sk-or-v1- GR1348941 tvly- dckr_pat_ dckr_oat_ hvs. hvb. hvr. tskey- NRAK-
     NRJS- NRII- NRIQ- NRRA- NRAA- NRSP- AVNS_ FLWSECK_TEST- FLWSECK-""", rf"{D}{{16,}}+"),
    ("""github_pat_ pcsk_ lsv2_pt_ lsv2_sk_ tgp_v1_ GOCSPX- sbp_ sb_secret_ sb_publishable_ mdb_sa_sk_ figd_ figo_ figu_
     figoh_ PMAK- PMAT- sq0atp- sq0csp- sq0idp-""", rf"{D}{{20,}}+"),
    ("lqk_ nvapi- pypi-Ag cfut_ cfat_ cfk_ HRKU- CFPAT- wandb_v1_ CCIPAT_ CCIPRJ_", rf"{D}{{30,}}+"),
    ("xkeysib- xsmtpsib- tk-us- sha256~", rf"{D}{{40,}}+"),
    ("glpat- gldt- glptt- glrt- glrtr- glimt- glft- glffct- glagent- gloas- glsoat- glwt- glcbt-",
     rf"{D}{{16,}}+(?:\.{D}{{2,}}+){{0,2}}"),
    ("xoxb- xoxp- xoxa- xoxo- xoxr- xoxs- xoxe- xoxc- xoxd- xoxe.xoxp- xoxe.xoxb- xapp- xwfp-",
     r"[A-Za-z0-9%+/-]{10,}+"),
    ("""ya29. dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. n8n_api_ snyk_uat. snyk_sat. pscale_tkn_ pscale_oauth_
     pscale_pw_ tfp_ dt0c01. dt0s01. dt0s02. dt0s16.""", r"[A-Za-z0-9_.=-]{30,}+"),
    ("whsec_", rf"{B}{{16,}}+"),
    ("""fo1_ fm1a_ fm1r_ fm2_ glc_ glsa_ duffel_live_ duffel_test_ secret-test- secret-live- dbtc_ dbtu_
     bedrock-api-key-""", rf"{B}{{30,}}+"),
    ("sntrys_ sntryu_ sntrya_ fio-u- ATATT3 ATCTT3 ATOAT dnkey- ops_eyJ", rf"{B}{{40,}}+"),
    ("shpat_ shpca_ shppa_ shpss_ shpua_ shptka_ squ_ sqp_ sqa_ dose pul- mlsn. s-s4t2ud- s-s4t2af-", rf"{H}{{24,}}+"),
    ("v1.0-", rf"{H}{{24}}-{H}{{100,}}+"),
    ("xaat- xapt- access-sandbox- access-development- access-production- amzn.mws. waka_", UUID),
    ("access_token$production$ access_token$sandbox$", r"[a-z0-9]{12,}\$[a-f0-9]{24,}+"),
    ("AGE-SECRET-KEY- AGE-PLUGIN-", r"[A-Z0-9-]{30,}+"),
)  # fmt: skip
# Prefixes short enough to end other words: the character before must not be a letter or a digit.
BOUNDED: tuple[tuple[str, str], ...] = (
    ("sk-", rf"{NOT_WORDS}{D}{{20,}}+"),
    ("hf_ r8_ csk- ico- xai-", rf"{A}{{30,}}+"),
    ("sk_ AKID", rf"{A}{{32,}}+"),
    ("AKCp cmVmdGtu cmVmd EZAK EZTK", rf"{A}{{50,}}+"),
    ("LTAI ATBB", rf"{A}{{16,}}+"),
    ("1//0 p8e-", rf"{D}{{28,}}+"),
    ("AIza AQVN AQ.", rf"{D}{{35,}}+"),
    ("A21AA", rf"{D}{{60,}}+"),
    ("ABSK FwoGZXIvYXdz IQoJb3JpZ2lu BBDC- dG9rO eyJrIjoi", rf"{B}{{40,}}+"),
    ("fc- e2b_", rf"{H}{{32,}}+"),
    ("ATTA", rf"{H}{{60,}}+"),
    ("AKIA ASIA ABIA ACCA A3T",
     r"[A-Z0-9]{16,17}(?![A-Za-z0-9])(?:[^A-Za-z0-9+/=\n]{1,6}[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=]))?"),
    ("fw_", rf"{DIGITS}{A}{{22,}}+"),
    ("pa- fnA", rf"{DIGITS}{D}{{35,}}+"),
    ("BSA", rf"{DIGITS}{D}{{27,}}+"),
    ("dapi", rf"{H}{{32,}}+(?:-\d)?"),
    ("SG. sk.eyJ pk.eyJ tk.eyJ", rf"{D}{{16,}}+\.{D}{{16,}}+"),
    ("key- SK", rf"{H}{{32}}(?!{A})"),
    ("md-", rf"{DIGITS}(?=[A-Za-z0-9_-]{{0,30}}[A-Z]){D}{{22}}(?!{D})"),
    ("re_", rf"{A}{{8}}_{A}{{20,}}+"),
    ("pat", rf"{A}{{14}}\.{H}{{64}}"),
    ("pat-", rf"[a-z]{{2}}\d-{UUID}"),
    ("pat. sat.", rf"{D}{{22}}\.{A}{{24}}\.{A}{{20}}"),
    ("pk_", r"\d{5,12}_[A-Z0-9]{24,}+"),
    ("sl.", rf"(?:u\.)?{D}{{60,}}+"),
    ("API-", r"[A-Z0-9]{25,}+"),
    ("s.", rf"{DIGITS}{A}{{24}}(?!{D})"),
    ("A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    ("oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("cio", rf"{DIGITS}{A}{{32}}(?!{A})"),
    ("SCW", r"[A-Z0-9]{17}(?![A-Za-z0-9])"),
    ("t1.", rf"{D}{{20,}}+={{0,2}}\.{D}{{40,}}+={{0,2}}"),
    ("EAA", rf"(?!{W}{{0,90}}AAAAA){A}{{90,}}+"),
    ("EAAA", rf"(?!{D}{{0,60}}AAAA){D}{{55,}}+"),
    ("4b1d", rf"(?=[A-Za-z0-9]{{0,38}}[A-Z]){A}{{38}}(?!{A})"),
    ("live_ test_", rf"(?=(?:[A-Za-z]{{0,12}}[0-9]){{3}}){A}{{30,}}+"),
    ("sdk- api- mob-", UUID),
    ("sk", rf"(?=(?:[A-Za-z]{{0,16}}[0-9]){{6}})(?=[A-Za-z0-9]{{0,40}}[A-Z]){A}{{80,}}+"),
    ("LS0tLS1CRUdJTi",
     rf"B(?:SU0EgUFJJV|QUklWQVRF|PUEVOU1NI|FQyBQUklW|FTkNSWVBU|EU0EgUFJJ|QR1AgUFJJ){B}{{16,}}+"),
)  # fmt: skip
PASSWORD_HASHES: tuple[tuple[str, str], ...] = (
    ("$2a$ $2b$ $2y$", r"\d\d\$[./A-Za-z0-9]{53}"),
    ("$argon2i$ $argon2d$ $argon2id$", r"[A-Za-z0-9=,$+/.]{40,}+"),
    ("$1$ $5$ $6$ $y$", r"(?:rounds=\d+\$)?[./A-Za-z0-9$]{1,24}\$[./A-Za-z0-9]{22,}+"),
    ("pbkdf2_sha256$ pbkdf2_sha1$ bcrypt_sha256$", r"[A-Za-z0-9$+/=.]{30,}+"),
)
# Tokens known by a mark in their middle: (mark, characters before it, least and most of them, what follows).
MARKED: tuple[tuple[str, str, int, int, str], ...] = (
    ("Q~", r"[A-Za-z0-9_~.]", 4, 8, r"[A-Za-z0-9_~.-]{24,}+"),
    ("AZDO", A, 60, 90, rf"{A}{{4,}}+"),
    ("JQQJ99", A, 40, 90, rf"{A}{{20,}}+"),
    ("+ASt", r"[A-Za-z0-9+/]", 60, 90, r"[A-Za-z0-9+/]{4,}+=*"),
    (".atlasv1.", A, 10, 20, rf"{B}{{40,}}+"),
    (":", "[0-9]", 8, 10, rf"{D}{{35}}(?!{D})"),
    (":AA", "[0-9]", 5, 16, rf"{D}{{32,}}+"),
    (":APA91b", D, 7, 40, rf"{D}{{60,}}+"),
    (":", H, 24, 24, rf"{H}{{64}}(?!{A})"),
    ("-us", H, 32, 32, rf"\d{{1,2}}(?!{A})"),
    ("-", H, 32, 32, rf"{H}{{8}}-{H}{{8}}(?!{D})"),
    ("-", H, 8, 8, rf"{H}{{4}}-{H}{{4}}-{H}{{4}}-{H}{{12}}:fx"),
    (".", D, 23, 28, rf"{D}{{6}}\.(?={D}{{0,30}}[A-Z]){D}{{27,}}+"),
    ("_mmk", W, 30, 40, rf"(?!{A})"),
    ("NRAL", A, 32, 40, rf"(?!{A})"),
)  # fmt: skip
RULES = tuple(_rules())


# --- Words that names and values are judged by (named.py, places.py) ---


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSWORD_WORDS = _words("""
    dbpass pass passwort psw pswd pw rootpass sshpass userpass
""")

TOKEN_WORDS = _words("""
    accountkey appkey authkey bearer cookie cookies credential jsessionid jwt masterkey otp passkey pat phpsessid psk
    sessid sessionkey sharedkey
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

# Values that are words of prose or code.
PLAIN_WORDS = _words("""
    abc absent accepted access active again all also another any apikey arg args as auth authenticated authentication
    authenticator authorisation authorization available basic bearer been blank bool boolean both bucket budget but
    bytes char character check client cls config configuration cookie cookies corrupt corrupted could count counter
    created credential credentials current data date debug default deleted denied different digest digits disabled
    done each else email empty enabled encrypted endpoint env environment error errors every exception exist exists
    expires expiry exposed failing failure false fields file first float forbidden form found generated granted had
    hash hashed have her his how id inactive info input int integer into issue issued issuer its just key keys kind
    kwargs last leaked length letters limit limits loaded loading login logout long lost mail malformed manager match
    matched matches max might min mismatch mismatched name nan needed new new_password next nil no now null number
    object off ok okay old old_password only optional other our output param params parser passphrase passwords path
    pending per plain plaintext policy present previous private prompt provide provided provider public qux raw read
    reading received refresh refreshed rejected request response result revoked rotated rotation same second secrets
    see self sent serializer server service session set sets setting settings setup shall short size stdin stolen
    store stored str string strong succeeded success successfully supported symbols testing tests text their then
    there these those tokens total true try type types unauthorized unavailable undefined unknown unlimited unset
    unsupported updated url usage using uuid val valid validator value varchar variable variables vault verified
    verifier via warning weak were what which while who why without would writing written xxx yes
""").union(STAND_INS, SENTENCE_WORDS, STOP_WORDS)

COOKIE_ATTRIBUTES = _words("""
    comment domain expires max-age path priority samesite version
""")
