"""The URL gate: the only way to fetch an address that a user, document, webhook or model chose.

`check_url` decides; `SafeClient` and `AsyncSafeClient` fetch. `agents.net.streams` reads server-sent events and opens
WebSockets; import it where it is needed. Nothing here knows what is fetched or why.
"""

from agents.net.client import AsyncSafeClient, AsyncSafeStream, SafeClient, SafeResponse, SafeStream
from agents.net.transport import Limits
from agents.net.urls import CheckedUrl, FetchFailed, UrlRefused, check_host, check_url

__all__ = [
    "AsyncSafeClient",
    "AsyncSafeStream",
    "CheckedUrl",
    "FetchFailed",
    "Limits",
    "SafeClient",
    "SafeResponse",
    "SafeStream",
    "UrlRefused",
    "check_host",
    "check_url",
]
