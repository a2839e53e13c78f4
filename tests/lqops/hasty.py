"""The application as it is, with streams that look often and have few places; a test says how long they live."""

from importlib import import_module

from lqops.asgi import application as lqops
from tests.lqops.applications import polite

# Only now: the application has set Django up.
sse, streams = (import_module(f"agents.api.{name}") for name in ("sse", "streams"))
streams.LOOK_EVERY_SECONDS = streams.REST_SECONDS = sse.LOOK_EVERY_SECONDS = 0.05
sse.MOST_WAITING = 5
sse.READ_AT_ONCE = 10
sse.KEEP_ALIVE_SECONDS = 0.2
sse.GRACE_SECONDS = 0.5
sse.MOST_OF_ONE = 2

LIFETIME = "/lifetime/"


async def application(scope, receive, send):
    """As it is; and `/lifetime/7` lets the streams that begin from now on live for seven seconds."""
    if scope["path"].startswith(LIFETIME):
        sse.LIFETIME_SECONDS = float(scope["path"].removeprefix(LIFETIME))
        await polite(scope, receive, send)
    else:
        await lqops(scope, receive, send)
