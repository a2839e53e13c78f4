"""The application with streams that poll often and few open streams; tests set the lifetime."""

from importlib import import_module

from lqops.asgi import application as lqops
from tests.lqops.applications import polite

# Imported after the application, which sets Django up.
sse, streams = (import_module(f"agents.api.{name}") for name in ("sse", "streams"))
streams.IDLE_POLL_SECONDS = sse.POLL_SECONDS = 0.05
streams.READ_LIMIT = 10
sse.KEEP_ALIVE_SECONDS = 0.2
sse.GRACE_SECONDS = 3.0  # a busy machine may need as long for the last read
sse.MAX_OPEN_PER_USER = 2

LIFETIME = "/lifetime/"


async def application(scope, receive, send):
    """`/lifetime/7` sets the lifetime of new streams to seven seconds."""
    if scope["path"].startswith(LIFETIME):
        sse.LIFETIME_SECONDS = float(scope["path"].removeprefix(LIFETIME))
        await polite(scope, receive, send)
    else:
        await lqops(scope, receive, send)
