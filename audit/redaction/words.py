"""Word tables for judging names and values.

Owns lists of plain words and nothing else; `names`, `values`, `anchors` and `places` say what they mean.
"""


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
