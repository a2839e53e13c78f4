"""The program of a supervised child: the web process, the workers or the ticker. It ends with its parent.

It holds one end of a pipe, to which its parent never writes. When the parent ends, however it ends, the read returns:
the child gets SIGTERM and, some seconds later, it and everything that it started are killed.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Final

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import DEFAULT_DB_ALIAS, connections

from agents.process_end import set_process_name, stop_requested

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 15
GRACE_FOR_REQUESTS = 5
LOOKS_A_SECOND = 10  # as uvicorn counts them: at every tenth it sets the time that answers carry


def end_with_parent(lifeline: Connection) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def serve(listening: socket.socket, application: str) -> None:
    import uvicorn

    # Django logs errors for the server too. No access log: it would push the address off the screen.
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_FOR_REQUESTS,
    )

    class Server(uvicorn.Server):
        _wake: Callable[[], object] = staticmethod(lambda: None)  # before there is anything to wake

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            stop_requested.set()  # open streams end, and their clients reconnect
            super().handle_exit(sig, frame)
            self._wake()

        async def main_loop(self) -> None:
            """Look once a second whether to go on, instead of ten times; a signal wakes it."""
            asked = asyncio.Event()
            self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, asked.set)
            looks = 0
            while not await self.on_tick(looks * LOOKS_A_SECOND):
                looks += 1
                with suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), 1)

    Server(config).run(sockets=[listening])


def run_child(
    *arguments: str,
    name: str,
    connection_seconds: int,
    overrides: Mapping[str, Any],
    listening: socket.socket | None,
    lifeline: Connection,
    closing: Iterable[int],
) -> None:
    """Become that process, with these settings instead of the installation's. What only others may hold is closed."""
    os.setsid()  # the supervisor stops it with everything that it starts
    set_process_name(f"lqops-{name}")
    for handle in closing:
        os.close(handle)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=end_with_parent, args=(lifeline,), daemon=True).start()
    django.setup()
    connections.settings[DEFAULT_DB_ALIAS]["CONN_MAX_AGE"] = connection_seconds
    for setting, value in overrides.items():
        setattr(settings, setting, value)
    if listening is not None:
        serve(listening, *arguments)
        return
    if arguments[0] == "qcluster":
        from agents.queue import load_tasks  # a new interpreter has not loaded them, nor the guard of the cluster

        load_tasks()
    execute_from_command_line(["manage.py", *arguments])
