"""The URL gate: everything that lqops fetches from an address that a user, document, webhook or model chose.

`check_url` decides, `SafeClient` and `AsyncSafeClient` fetch; `agents.net.websocket` opens WebSockets, and is imported
by those who need them. Nothing else in lqops opens a connection to such an address, and nothing here knows what is
fetched or why.
"""

from agents.net.aio import AsyncSafeClient, AsyncSafeStream
from agents.net.client import SafeClient, SafeStream
from agents.net.errors import FetchFailed, UrlRefused
from agents.net.limits import Limits
from agents.net.responses import SafeResponse
from agents.net.urls import CheckedUrl, check_url

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
    "check_url",
]
