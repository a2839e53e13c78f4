"""The key pair of the audit log: Ed25519, made from LQOPS_AUDIT_KEY, so hosts that share that text share the pair.

A signed statement is a JSON object with `key`, the public key, and `signature`, over the canonical JSON of everything
else. Whoever has the public key can verify it, and nobody without LQOPS_AUDIT_KEY can make one.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings

from audit.rows import canonical

SALT: Final = b"lqops audit log, Ed25519"


def public_key(secret: str = "") -> str:
    """Return the public key as 64 hex digits; by default of this installation."""
    return _private_key(secret or settings.LQOPS_AUDIT_KEY).public_key().public_bytes_raw().hex()


def signed(statement: dict[str, Any], secret: str = "") -> dict[str, Any]:
    """Return the statement with the public key and the signature."""
    whole = {**statement, "key": public_key(secret)}
    signature = _private_key(secret or settings.LQOPS_AUDIT_KEY).sign(canonical(whole).encode("ascii"))
    return {**whole, "signature": signature.hex()}


def is_signed(statement: dict[str, Any]) -> bool:
    """Return whether the signature is that of the key which the statement names. Whose key it is, is not judged."""
    whole = {name: value for name, value in statement.items() if name != "signature"}
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(whole["key"]))
        key.verify(bytes.fromhex(statement["signature"]), canonical(whole).encode("ascii"))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


@lru_cache(maxsize=8)
def _private_key(secret: str) -> Ed25519PrivateKey:
    """Make the private key from the text. scrypt: the public key must not help to guess a text that a person chose."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.scrypt(secret.encode(), salt=SALT, n=2**14, r=8, p=1, dklen=32))
