"""Commands of lqops, and the supervisor of its processes."""

import json
from typing import Any


def summary_line(*, error: str = "", **results: Any) -> str:
    """The last line of `up --check`: one shape however far the check came. Needs no settings.

    `ok` without an error; parts that were not reached are empty.
    """
    unreached = {"database": "", "brakes": {}, "walk": {"ok": False}, "audit": {"verified": False}, "pages": {}}
    return json.dumps({"ok": not error, "error": " ".join(error.split()), **unreached, **results})
