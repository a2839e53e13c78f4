"""The web process as a child of `up`: started on a socket that is already open, and asked until it answers.

The socket is opened by the parent and kept, so a taken port is known before anything else happens, nobody can take it
in between, and a web process that is started again finds it.
"""

import http.client
import socket
import time

from django.conf import settings

from agents.management.supervisor import Child, ChildError

START_SECONDS = 60


def open_socket(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class Web(Child):
    def __init__(self, listening: socket.socket, application: str = "") -> None:
        handle = listening.fileno()
        module, _, name = str(settings.ASGI_APPLICATION).rpartition(".")
        super().__init__("web", ["web", str(handle), application or f"{module}:{name}"], pass_fds=[handle])
        self._listening = listening
        host, self.port = listening.getsockname()[:2]
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 recognised, not opened

    @property
    def address(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if (code := self.ended()) is not None:
                raise ChildError(f"The web process ended with code {code}.")
            try:
                self.get("/healthz", timeout=0.5)  # the parent keeps the socket, so nobody refuses: ask again
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise ChildError(f"The web process did not answer within {START_SECONDS} seconds.")

    def get(
        self, path: str, *, headers: dict[str, str] | None = None, timeout: float = START_SECONDS
    ) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()
