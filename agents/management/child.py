"""The program of a supervised child: the web process, the workers or the ticker. It ends with its parent.

Standard input is a pipe from the parent, which never writes to it. When the parent ends, however it ends, the read
returns: the child gets SIGTERM and, some seconds later, it and everything that it started are killed.
"""

import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

import django
from django.core.management import execute_from_command_line

from agents.process_end import stop_requested

GRACE_SECONDS = 15
GRACE_FOR_REQUESTS = 5


def end_with_parent(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # its own group: the supervisor starts each child in a session of its own


def serve(listening: int, application: str) -> None:
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
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            stop_requested.set()  # open streams end, and their clients reconnect
            super().handle_exit(sig, frame)

    Server(config).run(sockets=[socket.socket(fileno=listening)])


def main(arguments: list[str]) -> None:
    threading.Thread(target=end_with_parent, args=(sys.stdin.fileno(),), daemon=True).start()
    if arguments[0] == "web":
        serve(int(arguments[1]), arguments[2])
        return
    django.setup()
    if arguments[0] == "qcluster":
        from agents.queue import load_tasks

        load_tasks()
    execute_from_command_line(["manage.py", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
