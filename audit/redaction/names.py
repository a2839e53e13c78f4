"""Judges key names: does a name such as `dbPassword`, `X-Api-Key` or `token_budget` denote a credential?

Owns the word tables and the splitting of names. Must not look at values.
"""

import re
from enum import IntEnum
from functools import lru_cache


class Strength(IntEnum):
    """How much a name says about its value: from nothing to `this is a password`."""

    NONE = 0
    WEAK = 1  # the value must look random
    TOKEN = 2  # the value must look like a token
    PASSWORD = 3  # any value that is not a word of prose or code


_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORD_WORDS = frozenset(
    "password passwd passphrase passcode passwort pwd pass pw psw pswd pgpassword mysqlpwd userpass dbpass rootpass"
    " sshpass".split()
)
_TOKEN_WORDS = frozenset(
    "secret token apikey authtoken accesstoken authorization cookie cookies credential bearer jwt secretkey accesskey"
    " privatekey accountkey sharedaccesskey clientsecret sessiontoken refreshtoken otp passkey pat appkey"
    " psk apitoken authkey sessionkey masterkey sharedkey".split()
)
_WEAK_WORDS = frozenset(
    "key auth sid sessionid phpsessid jsessionid sessid csrf xsrf creds credentials dsn salt tokens secrets passwords"
    " keys license licence".split()
)
_PASSWORD_ENDS = ("password", "passwd", "passphrase", "passcode", "pwd")
_TOKEN_ENDS = ("secret", "token", "apikey", "secretkey", "accesskey", "privatekey", "authorization")
# `<qualifier> key` is a credential outright; any other `key` must show a random value.
_KEY_QUALIFIERS = frozenset(
    "api access secret private account shared signing encryption master subscription auth authentication consumer"
    " storage write ingest license deploy ssh hmac webhook admin aes rsa jwt crypto decryption cipher wallet gpg pgp"
    " tls ssl sas".split()
)
_PLAIN_KEYS = frozenset(
    "public pub foreign partition sort cache routing idempotency idem object hash dedupe dedup lookup index group unique"
    " row composite natural range shard event message topic lock known registry search order surrogate translation".split()
)
# A name that ends so speaks about a credential; it does not hold one.
_ABOUT = frozenset(
    "id ids name names type types kind count counts length len size expiry expires expiration expired exp ttl age at url"
    " uri path file filename dir directory policy policies field fields hint version arn ref reference budget limit"
    " limits usage used endpoint env prefix suffix algorithm algo alg placeholder label enabled disabled required"
    " strength min max reset changed change rotated rotation status state valid invalid validator validators error"
    " errors message help text title description index class func function method handler manager store provider"
    " service backend form page view screen format regex pattern cost price rate remaining total sum avg bytes input"
    " output in out saved cached per window digest fingerprint checksum sha sha1 sha256 md5 etag thumbprint issuer"
    " audience scope scopes scheme lifetime created updated generator factory source mode option options config"
    " settings rules rule location group role owner manager arn region table column schema bucket alias ring board"
    " word words press down up code codes cache counter leak scan scanner detection check checks attempts attempt"
    " failures failure history template templates size number key_id keyid protected permissions permission"
    " ref refs selector namespace mount volume present exists set hash hashes hashed hasher".split()
)
# Words after the noun that change nothing: `password_value`, `SECRET_KEY_BASE`.
_FILLERS = frozenset("value val str string plain raw base encoded data header new old current".split())
_COUNTED = frozenset(
    "max min total num number prompt completion input output cached reasoning remaining used page next previous"
    " continuation pagination cancellation sync cursor expected unexpected syntax has is no invalid expired missing"
    " public".split()
)


def name_words(name: str) -> list[str]:
    """The lower-case words of a name in any of the usual spellings."""
    return [word.lower() for word in _SPLIT.findall(name)]


def _word_strength(word: str) -> Strength:
    if word in _PASSWORD_WORDS or word.endswith(_PASSWORD_ENDS):
        return Strength.PASSWORD
    if word in _TOKEN_WORDS or word.endswith(_TOKEN_ENDS):
        return Strength.TOKEN
    return Strength.WEAK if word in _WEAK_WORDS else Strength.NONE


def _key_strength(words: list[str]) -> Strength:
    """A name whose last word is `key`: the word before it decides."""
    before = words[-2:-1]
    if not before or before[0] in _PLAIN_KEYS:
        return Strength.NONE
    if before[0] in _KEY_QUALIFIERS:
        return Strength.TOKEN
    return max(Strength.WEAK, *map(_word_strength, words[:-1]))


@lru_cache(maxsize=4096)
def name_strength(name: str) -> Strength:
    """How far `name` denotes a credential."""
    words = [word for word in name_words(name[-96:]) if not word.isdigit()]
    while words and words[-1] in _FILLERS:
        words.pop()
    # `$secret` names a handle, and a secret passed by handle is not in the text.
    if not words or "$" in name or (words[-1] in _ABOUT and not _hashed_password(words)):
        return Strength.NONE
    if words[-1] == "key":
        return _key_strength(words)
    strength = max(map(_word_strength, words))
    if strength is Strength.TOKEN and _COUNTED.intersection(words[:-1]):
        return Strength.NONE
    return strength


def _hashed_password(words: list[str]) -> bool:
    return words[-1] in ("hash", "hashed") and bool(_PASSWORD_WORDS.intersection(words))
