"""Only agents/net/ opens connections; every other module that may is listed here with its reason."""

import ast
from collections.abc import Iterator

import pytest

from .source import ROOT, nodes, shown, source_files

GATE = "agents/net/"
# Modules that open connections, or fetch.
OPENERS = (
    "aiohttp", "anyio", "django.core.mail", "ftplib", "h11", "http.client", "httpcore", "httpx", "httpx_sse", "imaplib",
    "nntplib", "poplib", "pycurl", "requests", "smtplib", "socket", "telnetlib", "urllib.request", "urllib3",
    "websocket", "websockets", "xmlrpc.client",
)  # fmt: skip
# Calls of modules that are used for other things too.
CALLS = {"open_connection", "open_unix_connection", "create_connection", "create_datagram_endpoint"}
# Only tests may set these: they send a checked address elsewhere.
TEST_HOOKS = {"reroute"}

# File, module, reason.
OPERATORS_MODEL = "the address of a model is the operator's setting, never a user's or a model's"
LISTED: dict[str, dict[str, str]] = {
    "agents/management/child.py": {"socket": "takes over the socket that the parent listens on"},
    "agents/management/commands/up.py": {"socket": "names the type of the socket that the web process is given"},
    "agents/management/supervisor.py": {
        "http.client": "asks the web process on this machine whether it is up",
        "socket": "listens for the web process; connects to nothing",
    },
    "agents/people/senders.py": {
        "django.core.mail": "the mail server is the operator's setting, never a user's or a model's"
    },
    "agents/builtin_skills/outside.py": {
        "django.core.mail": "the mail server is the operator's setting, never a user's or a model's"
    },
    "agents/sensors/mailbox.py": dict.fromkeys(
        ("imaplib", "socket", "create_connection"),
        "the gate checks the host; it connects to addresses that passed",
    ),
    "agents/skills/fetching.py": {
        "socket": "a pair of sockets to the process of an isolated skill; connects to nothing"
    },
    "agents/skills/isolation_report.py": {"socket": "listens on this machine for its own probe; connects to nothing"},
    "agents/skills/probe.py": {"socket": "tries whether an isolated skill can reach that; sends nothing"},
    "agents/skills/system_calls.py": {"socket": "names the type of socket that is refused"},
    "agents/tasks.py": {"socket": "asks for the name of this machine"},
    "agents/ticker.py": {"socket": "asks for the name of this machine"},
    "agents/providers/http.py": {"httpcore": OPERATORS_MODEL, "httpx": OPERATORS_MODEL},
    "agents/providers/proxies.py": {"urllib.request": "reads the proxies of the environment; opens nothing"},
    "agents/providers/transport.py": {"httpcore": OPERATORS_MODEL, "httpx": OPERATORS_MODEL},
}


def openings(found_in: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield what a file could open a connection with, and the line, also through import_module."""
    for node in found_in:
        for name in _names(node):
            for module in OPENERS:
                if name == module or name.startswith(f"{module}."):
                    yield module, node.lineno
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in CALLS:
                yield called, node.lineno
            yield from ((keyword.arg, node.lineno) for keyword in node.keywords if keyword.arg in TEST_HOOKS)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in {"import_module", "__import__"}:
            yield str(node.args[0].value)


def unlisted(place: str, found_in: list[ast.AST]) -> list[tuple[str, int]]:
    if place.startswith(GATE):
        return []
    listed = LISTED.get(place, {})
    return [(name, line) for name, line in openings(found_in) if name not in listed]


def test_listed_modules_are_still_needed():
    for name, modules in LISTED.items():
        if (ROOT / name).exists():
            used = {module for module, _ in openings(nodes((ROOT / name).read_text(encoding="utf-8")))}
            assert set(modules) <= used, f"{name} needs less now"
    assert all(len(reason.split()) > 3 for modules in LISTED.values() for reason in modules.values())


def test_connections_of_the_gate_are_found():
    files = [path.read_text(encoding="utf-8") for path in source_files() if shown(path).startswith(GATE)]
    used = {name for text in files for name, _ in openings(nodes(text))}

    assert {"socket", "httpcore", "httpx", "websockets"} <= used


@pytest.mark.parametrize(
    "source",
    [
        "import socket",
        "import socket as s",
        "from socket import create_server",
        "import http.client",
        "from http import client",
        "import urllib.request",
        "from urllib import request",
        "from urllib.request import urlopen",
        "import requests.sessions",
        "import httpx",
        "from httpx import AsyncClient",
        "def f():\n    import websockets",
        "importlib.import_module('httpx')",
        "__import__('socket')",
        "asyncio.open_connection('h', 1)",
        "loop.create_connection(f, 'h', 1)",
        "SafeClient(reroute=f)",
    ],
)
def test_opened_connection_is_found(source):
    assert list(openings(nodes(source))) != []


@pytest.mark.parametrize(
    "source",
    [
        "import http",
        "from urllib.parse import quote",
        "from django import requests_x",
        "x = 'socket'",
        "from .socket import x",
    ],
)
def test_other_imports_are_ignored(source):
    assert list(openings(nodes(source))) == []
