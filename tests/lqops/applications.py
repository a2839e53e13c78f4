"""Small ASGI applications that answer, hang or die, for tests of the web process."""

import asyncio
import os


async def polite(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"well"})


async def silent(scope, receive, send):
    await asyncio.Event().wait()


async def dying(scope, receive, send):
    os._exit(7)


async def silent_after_health(scope, receive, send):
    await (polite if scope["path"] == "/healthz" else silent)(scope, receive, send)
