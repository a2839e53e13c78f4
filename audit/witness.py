"""Counter-signatures: a second host says which checkpoints it has seen, so that nobody can write them anew unnoticed.

One JSON line each: number and SHA-256 of a checkpoint, when, and a signature with the key of the second host.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit.keys import is_signed, signed
from audit.rows import canonical


class WitnessRefused(Exception):
    """The checkpoints are not signed with the key, or do not continue those that were counter-signed."""


def countersign(checkpoints: Path, *, key: str, into: Path, secret: str, now: datetime) -> dict[str, Any]:
    """Counter-sign the newest checkpoint, append that to a file, and return it."""
    lines = {hashlib.sha256(line).hexdigest(): _parsed(line) for line in checkpoints.read_bytes().splitlines()}
    newest = next((digest for digest in reversed(lines) if _is_of(lines[digest], key)), "")
    if not newest:
        raise WitnessRefused(f"no line of {checkpoints} is signed with the key")
    if into.exists():
        _require_continuation(lines, newest, json.loads(into.read_bytes().splitlines()[-1]))
    seen = {"n": lines[newest]["n"], "checkpoint": newest, "at": now.astimezone(UTC).isoformat()}
    done = signed(seen, secret)
    with open(into, "a", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(canonical(done) + "\n")
    return done


def _require_continuation(lines: dict[str, dict[str, Any]], newest: str, last: dict[str, Any]) -> None:
    """Follow the links from the newest checkpoint to the one that was counter-signed last."""
    digest = newest
    while digest in lines and lines[digest]["n"] > last["n"]:
        digest = lines[digest]["prev"]
    if digest != last["checkpoint"]:
        raise WitnessRefused(f"the file does not continue checkpoint {last['n']}, counter-signed at {last['at']}")


def _is_of(line: dict[str, Any], key: str) -> bool:
    return line.get("key") == key and is_signed(line)


def _parsed(line: bytes) -> dict[str, Any]:
    """Return the object in a line; none for one that a crash left half-written."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
