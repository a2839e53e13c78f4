"""Redaction markers: `[redacted:<kind>:<4 hex of a keyed hash>]`.

Owns the marker's form and the process key. The hash lets two lines be compared without telling the value; the key is
random per process unless configured. Must not put any character of the value itself into a marker.
"""

import hmac
import re
import secrets

MARKER = re.compile(r"(?:\[|%5[Bb])redacted(?::|%3[Aa])[a-z0-9-]{1,40}(?::|%3[Aa])[0-9a-f]{4}(?:\]|%5[Dd])")
# Either form of a marker holds this word, so its absence is a cheap proof that there is none.
MARKER_WORD = "redacted"


class MarkerKey:
    """The key of the marker hash; one per process."""

    value: bytes = secrets.token_bytes(32)


def configure_marker_key(key: bytes) -> None:
    """Use `key` for the hashes from now on, so that several processes mark one value alike."""
    if not key:
        raise ValueError("marker key: got 0 bytes, need at least 1; pass a random key of 32 bytes")
    MarkerKey.value = bytes(key)


def marker(kind: str, value: str) -> str:
    """The text that stands for `value`."""
    digest = hmac.digest(MarkerKey.value, value.encode("utf-8", "surrogatepass"), "sha256")
    return f"[redacted:{kind}:{digest.hex()[-4:]}]"
