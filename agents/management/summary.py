"""The last line of `up --check`: the same JSON shape however far the check came. Needs no settings."""

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
    """One line of JSON. `ok` without an error; parts that were not reached are empty."""
    summary: dict[str, Any] = {
        "ok": not error,
        "error": " ".join(error.split()),
        "database": database,
        "brakes": brakes or {},
        "walk": walk or {"ok": False},
        "audit": audit or {"verified": False},
        "pages": pages or {},
    }
    return json.dumps(summary)


def fault_of(walk: Mapping[str, Any], audit: Mapping[str, Any], pages: Mapping[str, int]) -> str:
    """What a complete check found wrong; empty if nothing."""
    faults = []
    if not walk["ok"]:
        faults.append(walk.get("error") or f"The run ended as {walk['status']} ({walk['terminal_reason']}).")
    if not audit["verified"]:
        faults.append(audit.get("error") or "The audit log does not verify.")
    if refused := [f"{path}: {status}" for path, status in pages.items() if status != 200]:  # noqa: PLR2004 HTTP's OK
        faults.append(f"Pages failed: {', '.join(refused)}.")
    return " ".join(faults)
