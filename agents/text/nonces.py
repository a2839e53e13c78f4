"""Nonces for marked blocks: the same for the same place of a run, and not to be foreseen by anybody else.

They are letters alone: digits in a row can pass for a telephone number, which would be hidden on its way to the model,
and the block would be none any more.
"""

import hashlib
import hmac
from typing import Final

from django.conf import settings

_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


def nonce_of(session_id: object, what: str) -> str:
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, f"{session_id}:{what}".encode(), hashlib.sha256).hexdigest()[:32].translate(_LETTERS)
