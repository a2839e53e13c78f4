"""Where a declared model is served: the address, the key and the limits of its server."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agents.policy.model_catalogue import GATED
from agents.providers.anthropic import KEY_HEADER
from agents.providers.http import Endpoint
from agents.providers.proxies import proxy_for
from agents.providers.transport import Timeouts

# By provider: the header that holds the key. A provider that is not here has no server.
KEY_HEADERS: Final[Mapping[str, str]] = {
    "openai_compatible": "Authorization",
    "openai_embeddings": "Authorization",
    "anthropic": KEY_HEADER,
}
CALLS_OF_A_PROCESS: Final = 8
_WAITS: Final = ("connect", "first_token", "between_tokens", "total")


def model_key(variable: str) -> str:
    """Read a secret from an environment variable, or from the file that `<variable>_FILE` names."""
    if value := os.environ.get(variable, ""):
        return value
    path = os.environ.get(f"{variable}_FILE", "")
    return Path(path).read_text(encoding="utf-8").strip() if path else ""


def endpoint_of(model: str, declared: Mapping[str, Any]) -> Endpoint:
    """Return where a declared model is served, with its key and its limits."""
    variable = declared.get("key_env", "")
    waits = {name: float(declared[f"{name}_seconds"]) for name in _WAITS if f"{name}_seconds" in declared}
    return Endpoint(
        url=declared["url"],
        model=declared.get("name", model),
        key=lambda: model_key(variable) if variable else "",
        key_name=variable,
        key_header=declared.get("key_header", KEY_HEADERS[declared["provider"]]),
        extra=declared.get("extra", {}),
        reasoning=declared.get("reasoning"),
        timeouts=Timeouts(**waits),
        connections=max(1, declared.get("concurrency", CALLS_OF_A_PROCESS)),
        proxy=proxy_for(declared["url"]),
        gated=declared.get(GATED, False),
    )
