"""Detects pages that call another host, log errors to the console, or answer with an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OWN_SCHEMES = ("data:", "blob:", "about:")


class Watch:
    """Notes every fault of the pages in a context of the browser. A Content-Security-Policy reports to the console."""

    def __init__(self, context: Any, address: str) -> None:
        self.address = address
        self.faults: list[str] = []
        self.requests = 0
        context.on("request", self._request)
        context.on("response", self._response)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.faults.append(f"script: {error.error}"))

    def _request(self, request: Any) -> None:
        self.requests += 1
        if not request.url.startswith((f"{self.address}/", *OWN_SCHEMES)):
            self.faults.append(f"request: {request.url}")

    def _response(self, response: Any) -> None:
        if response.status >= 400:
            self.faults.append(f"answer: {response.status} {response.url}")

    def _console(self, message: Any) -> None:
        """The icon of a site is what the browser asks for by itself where a page, such as a refusal, names none."""
        if message.type in {"error", "warning"} and message.location["url"] != f"{self.address}/favicon.ico":
            self.faults.append(f"console: {message.text}")

    def take(self) -> list[str]:
        """The faults so far, each of them once."""
        taken, self.faults = self.faults, []
        return taken

    @contextmanager
    def expects(self, *words: str) -> Iterator[None]:
        """Within it faults that hold one of the words are wanted: each word has to be seen."""
        before = len(self.faults)
        yield
        seen = self.faults[before:]
        missing = [word for word in words if not any(word in fault for fault in seen)]
        self.faults[before:] = [fault for fault in seen if not any(word in fault for word in words)]
        assert not missing, f"{missing} not among {seen}"
