"""Judges values: is this text a credential, or a placeholder, a reference, a piece of code or a word of prose?

Owns the tables of what is left alone. Must not look for values in a text; callers hand one over.
"""

import re

from audit.redaction.names import Strength

# How much of a value is read to judge it; the rest is masked along with it.
JUDGED = 256

_PLACEHOLDERS = re.compile(
    r"""
      \$\{.*                                      # ${TOKEN}
    | \$\(.* | \$\[.*                             # $(command)
    | \$[A-Z_][A-Z0-9_]*+ | \$[a-z_]++ | \$\d     # $TOKEN, $password, $1
    | \$env:.* | \$_.* | \$this.* | \$[a-z][A-Za-z]*(?:->|\[|\.).*
    | %\(\w+\)[sdr] | %[sdrvqxf]\W* | %[A-Za-z_]{2,}% | %\{.*
    | \#\{.* | @\w+@ | @\{.*
    | \{\{.* | \{%.* | \{[\w.:!]*\}.* | \{[a-z_]+\(.* | <%.*
    | <[^<>]*>?.* | \[[A-Za-z][\w -]*\]? | \[\W*
    | [*x•·.?_#+=~-]{2,}+ | X{2,}+ | [*•]+.*      # masks
    | (?:\w{0,4}[*•]{3,}|\w{0,4}\.{3}|[^\s]{0,12}…).*
    | !(?:vault|Ref|Sub|GetAtt|secret|env|var|ImportValue|Join|reference)\b.* | ENC\[.* | AQICAH.*
    | (?:vault|secret|op|ssm|aws-sm|gcp-sm|azure-kv|keyring|file|env|ref|secretsmanager|awssm|awssecret|https?|kms|sm)://?.*
    | (?:vault|ref|env|secretref|valueFrom|keychain|keyring|file|ssm|secret):[\w/.{@-].*
    | arn:aws.* | projects/.*/secrets/.* | @?(?:~|\.{1,2})/.*
    | @?/(?:run|etc|var|home|tmp|opt|usr|mnt|app|data|root|Users|srv|secrets|proc|dev|vault|path|api|v\d)/.* | [A-Z]:\\.*
    | (?:os|process|settings|config|self|cls|this|request|args|kwargs|opts|options|params|env|environ|secrets|vars|var|local|data|
        conf|cfg|ctx|context|props|state|user|account|client|session|response|resp|req|res|body|payload|event|form|st|app|
        import\.meta|System|Deno|Bun|ENV|window|document|module|random|uuid|faker|fake|crypto|hashlib|github|inputs|steps|
        Environment|ConfigurationManager|Configuration|builder|credentials|creds)(?:\.|\[|->|::|\?\.)\w?.*
    | (?:new|await|return|lambda|function|async|yield|raise|not|if|else)\b\ ?.*
    | [A-Za-z_][\w.:]*+(?:!|::<\w+>)?\(.*          # call()
    | [A-Za-z_]\w*+\[.*                            # index[...], Optional[str]
    | [A-Za-z_]\w*+(?:->|::)[A-Za-z_].*
    | (?:Optional|Union|List|Dict|SecretStr|Annotated|Literal|Final)\b.*
    """,
    re.VERBOSE | re.DOTALL,
)
_DOTTED = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+")
_WORD_BREAK = re.compile(r"[-_. ]")
_IDENTIFIER = re.compile(r"[A-Za-z]*_[A-Za-z_]*")
_STAND_IN = frozenset(
    "your my example sample placeholder changeme change insert enter replace dummy fake todo fixme redacted masked hidden"
    " removed filtered sanitized omitted put here goes some test none foo bar baz".split()
)
_WORDS = frozenset(
    "none null nil undefined nan true false yes no on off str string int integer bytes bool boolean float number any object"
    " text varchar char uuid date optional required missing invalid incorrect wrong expired expires revoked rejected valid"
    " verified refreshed rotated updated changed reset created deleted removed generated unset empty blank default"
    " disabled enabled unknown hidden masked redacted filtered sanitized omitted pending active inactive failed failure"
    " failing ok okay done denied accepted authenticated unauthorized forbidden needed mismatch mismatched match matched"
    " matches weak strong short long too must should cannot can could will would shall may might is was are were has have"
    " had be been not the a an this that these those it its your our their my his her and or but if then else when while"
    " for from to of in on at by with without via per as into please enter type use using used provide provided see check"
    " try again login logout user username admin root email mail name id value val data input output raw form request"
    " response result self cls arg args kwargs param params key keys secret secrets token tokens password passwords"
    " passwd pwd pass pw passphrase credential credentials auth authentication authorization authorisation bearer basic"
    " digest apikey cookie cookies session policy field fields prompt stdin file path url env environment vault config"
    " configuration settings setting store stored manager provider service server client public private example sample"
    " placeholder changeme change todo fixme dummy fake test tests testing foo bar baz qux xxx abc error errors warning"
    " info debug exception issue issued issuer found lost stolen leaked exposed encrypted hashed plain plaintext hash"
    " length size count limit limits type types kind new old current previous next last first second same different"
    " other another every each all both only also just now here there what which who why how new_password old_password"
    " budget usage total max min authenticator verifier validator serializer parser counter bucket endpoint expiry refresh"
    " access rotation unlimited variable variables string. characters character letters digits symbols do does did"
    " received sent successfully success succeeded denied loaded loading read reading written writing granted set sets"
    " setup unavailable available supported unsupported malformed corrupt corrupted absent present exists exist".split()
)
_SENTENCE = frozenset(
    "must be at least is the your to please enter not cannot required invalid has a an of for with was or and in should this that"
    " are from does do did contain contains too than if characters incorrect wrong on by it can will may use used when field"
    " reset changed expired missing failed need needs we you they i".split()
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NUMBER = re.compile(r"[-+]?[\d.,_:]+(?:[a-zA-Z%]{1,3})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
_LETTER = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"[0-9]")
_INNER_SYMBOL = re.compile(r"\w[!@#$%^&*+=~?][\w!@#$%^&*]|[!@#$%^&*]{1,3}\Z")
_CAMEL_WORD = re.compile(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*")


def is_reference(value: str) -> bool:
    """A placeholder, an environment reference, a template variable, a type or a call."""
    head = value[:JUDGED]
    if _PLACEHOLDERS.fullmatch(head) or _DOTTED.fullmatch(head):
        return True
    words = _WORD_BREAK.split(head.lower())
    return not _STAND_IN.isdisjoint(words) and all(word.isalpha() for word in words if word)


def is_prose(value: str) -> bool:
    """Words of a sentence rather than one value."""
    words = value[:JUDGED].split()
    return len(words) > 1 and any(word.strip(".,:;!?()").lower() in _SENTENCE for word in words)


def looks_mixed(value: str, least: int) -> bool:
    """Long enough, and with letters and digits."""
    head = value[:JUDGED]
    return len(value) >= least and bool(_LETTER.search(head)) and bool(_DIGIT.search(head))


def looks_random(value: str) -> bool:
    """Text that nobody would write by hand: for names that say little."""
    head = value[:JUDGED]
    if len(value) < 16 or _UUID.fullmatch(head) or _DATE.fullmatch(head) or " " in head:
        return False
    return looks_mixed(head, 16) and not re.search(r"[/:\\]", head[:12])


def looks_chosen(value: str) -> bool:
    """A value as it stands in prose: letters with a digit or an inner symbol, no date, number, address or path."""
    head = value[:JUDGED]
    if len(value) < 6 or _DATE.fullmatch(head) or _NUMBER.fullmatch(head) or "/" in head[:3] or "://" in head:
        return False
    return bool(_LETTER.search(head)) and bool(_DIGIT.search(head) or _INNER_SYMBOL.search(head))


def _is_plain_word(head: str) -> bool:
    return head.strip(".,;:!?").lower() in _WORDS


def _password(value: str, *, bare: bool) -> bool:
    head = value[:JUDGED]
    if len(value) < 3 or (bare and _IDENTIFIER.fullmatch(head)):
        return False
    if head.isdigit():
        return len(value) >= 4
    return not _NUMBER.fullmatch(head) or looks_mixed(head, 6)


def _token(value: str) -> bool:
    head = value[:JUDGED]
    if _NUMBER.fullmatch(head) or _DATE.fullmatch(head):
        return False
    if looks_mixed(head, 6):
        return True
    letters_only = _CAMEL_WORD.fullmatch(head) or _IDENTIFIER.fullmatch(head)
    return bool(_LETTER.search(head)) and not letters_only and (len(value) >= 16 or bool(_INNER_SYMBOL.search(head)))


def is_credential(value: str, strength: Strength, *, bare: bool) -> bool:
    """Whether `value`, found under a name of that strength, is to be masked; `bare` says it stood without quotes."""
    if not value or not any(map(str.isalnum, value[:JUDGED])):
        return False
    if is_reference(value) or is_prose(value) or _is_plain_word(value[:JUDGED]):
        return False
    if strength is Strength.PASSWORD:
        return _password(value, bare=bare)
    return _token(value) if strength is Strength.TOKEN else looks_random(value)
