"""Nonces for marked blocks: the same for the same place of a run, and not to be foreseen by anybody else."""

import hashlib
import hmac

from django.conf import settings


def nonce_of(session_id: object, what: str) -> str:
    key = settings.SECRET_KEY.encode()
    return hmac.new(key, f"{session_id}:{what}".encode(), hashlib.sha256).hexdigest()[:32]
