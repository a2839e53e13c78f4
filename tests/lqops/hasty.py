"""The real application with streams that poll often and allow few listeners; tests set their lifetime."""

from importlib import import_module

from lqops.asgi import application as lqops
from tests.lqops.applications import polite

# Imported after the application, which sets Django up.
sse, streams = (import_module(f"agents.api.{name}") for name in ("sse", "streams"))
streams.LOOK_EVERY_SECONDS = streams.REST_SECONDS = sse.LOOK_EVERY_SECONDS = 0.05
sse.MOST_WAITING = 5
sse.READ_AT_ONCE = 10
sse.KEEP_ALIVE_SECONDS = 0.2
sse.GRACE_SECONDS = 0.5
sse.MOST_OF_ONE = 2

LIFETIME = "/lifetime/"


async def application(scope, receive, send):
    """Serve lqops; `/lifetime/7` sets the lifetime of later streams to seven seconds."""
    if scope["path"].startswith(LIFETIME):
        sse.LIFETIME_SECONDS = float(scope["path"].removeprefix(LIFETIME))
        await polite(scope, receive, send)
    else:
        await lqops(scope, receive, send)
