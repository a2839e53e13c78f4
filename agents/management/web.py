"""The web process as a child of `up`: started on a socket that is already open, asked until it answers, stopped.

The socket is opened by the parent, so a taken port is known before anything else happens, and nobody can take it in
between. The child holds a pipe to its parent and ends with it, even when the parent is killed.
"""

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

import uvicorn

START_SECONDS = 60
STOP_SECONDS = 15
GRACE_SECONDS = 5


class WebError(RuntimeError):
    """The web process ended, or never answered."""


def open_socket(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class WebProcess:
    """`with WebProcess(listening, application) as web:` runs it inside the block."""

    def __init__(self, listening: socket.socket, application: str, *, root: Path) -> None:
        self._listening = listening
        self._application = application
        self._root = root
        host, self.port = listening.getsockname()[:2]
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 recognised, not opened

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def __enter__(self) -> "WebProcess":
        path = os.pathsep.join([str(self._root), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._listening as listening:
            self._process = subprocess.Popen(  # noqa: S603 our own interpreter and module
                [sys.executable, "-m", __name__, str(listening.fileno()), self._application],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                env={**os.environ, "PYTHONPATH": path},
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._process as process:  # whose own exit closes the pipe and waits
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def wait(self) -> None:
        """Returns never, unless the process ends by itself."""
        code = self._process.wait()
        raise WebError(f"The web process ended by itself, with code {code}.")

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                self.get("/healthz", timeout=START_SECONDS)
            except OSError:
                if self._process.poll() is not None:
                    raise WebError(f"The web process ended with code {self._process.returncode}.") from None
                time.sleep(0.05)
            else:
                return
        raise WebError(f"The web process did not answer within {START_SECONDS} seconds.")

    def get(self, path: str, *, headers: dict[str, str] | None = None, timeout: float = 10) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()


# --- In the child ---


def serve(listening: socket.socket, application: str, *, parent: int) -> None:
    # Django's logging speaks for the server too; a line per request would only push the address off the screen.
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=_end_with_parent, args=(server, parent), daemon=True).start()
    server.run(sockets=[listening])


def _end_with_parent(server: uvicorn.Server, parent: int) -> None:
    os.read(parent, 1)  # nothing is ever written: it returns when the parent is gone
    server.should_exit = True


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], parent=sys.stdin.fileno())
