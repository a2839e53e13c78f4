"""Makes any value that a model or a tool produced fit for JSON and for both databases.

NUL and lone surrogates break PostgreSQL and UTF-8; NaN is not JSON. They are replaced, visibly, where text comes in, so
that the digest, the journal, the approver and the handler all see the same.
"""

import math
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_DEPTH = 100


def storable(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"the value is nested more than {MAX_DEPTH} levels deep.")
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(str(name)): storable(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
