"""What `up --check` prints as its last line: one shape, however far the check came. It needs no settings."""

import json
from collections.abc import Mapping
from typing import Any


def summary_line(
    *,
    error: str = "",
    database: str = "",
    brakes: Mapping[str, str] | None = None,
    walk: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
    pages: Mapping[str, int] | None = None,
) -> str:
    """One line of JSON. All is well when there is no error to tell; what was not reached is empty."""
    found: dict[str, Any] = {
        "ok": not error,
        "error": " ".join(error.split()),
        "database": database,
        "brakes": brakes or {},
        "walk": walk or {"ok": False},
        "audit": audit or {"verified": False},
        "pages": pages or {},
    }
    return json.dumps(found)


def fault_of(walk: Mapping[str, Any], audit: Mapping[str, Any], pages: Mapping[str, int]) -> str:
    """What a check that came to its end has found wrong, in words; empty when nothing is."""
    faults = []
    if not walk["ok"]:
        faults.append(walk.get("error") or f"The walk ended as {walk['status']} ({walk['terminal_reason']}).")
    if not audit["verified"]:
        faults.append(audit.get("error") or "The record does not verify.")
    if refused := [f"{path}: {status}" for path, status in pages.items() if status != 200]:  # noqa: PLR2004 HTTP's OK
        faults.append(f"Pages were not shown: {', '.join(refused)}.")
    return " ".join(faults)
