"""The protections of isolated skills on this system, tried in a real process. `doctor` shows them."""

import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from agents.conf import clock
from agents.exceptions import OutcomeUnknown
from agents.skills.isolation import SkillFailed
from agents.skills.places import private_places
from agents.skills.probe import FILLED, fill, probe
from agents.skills.process import environment
from agents.skills.running import SkillTimeout, run_isolated
from agents.skills.skill import SkillContext

MAX_FILES: Final = 20
PROTECTIONS: Final = ("environment", "limits", "disk", "memory", "files", "metadata", "network", "processes")


def isolation_report() -> dict[str, str]:
    """Return for each protection why it is off; "" if it is on. Raises SkillFailed if no process can be started."""
    context = SkillContext(0, uuid.uuid4(), 0, uuid.uuid4(), "probe", clock(), infer=NotImplemented)
    with _listening() as (port, path), tempfile.NamedTemporaryFile() as outside:
        arguments = {
            "variables": sorted({*environment("", ()), "LC_CTYPE"}),
            "files": [outside.name, *_private_files()],
            "port": port,
            "path": path,
            "file": outside.name,
        }
        try:
            answer = run_isolated(probe, context, arguments, strict=False)
        except (SkillTimeout, OutcomeUnknown) as error:
            raise SkillFailed(str(error)) from error
    possible = {**answer.output, "disk": _disk(context)}
    return {name: _reason(name, possible, answer.unprotected) for name in PROTECTIONS}


def _disk(context: SkillContext) -> list[str]:
    """Return the damage that a skill can do to the disk: none, if it is ended while it fills its folder."""
    try:
        run_isolated(fill, context, {}, strict=False)
    except OutcomeUnknown as error:
        if "folder_mb" in str(error):
            return []
        raise SkillFailed(str(error)) from error
    return [FILLED]


def _reason(name: str, possible: Mapping[str, list[str]], unprotected: Mapping[str, str]) -> str:
    could = f"a skill can {', '.join(possible[name])}" if possible[name] else ""
    return "; ".join(filter(None, (unprotected.get(name, ""), could)))


def _private_files() -> list[str]:
    """Return where keys, the database and documents are, and some of the files there."""
    places = [place for place in private_places() if place.exists()]
    inside = [part for place in places if place.is_dir() for part in islice(place.iterdir(), MAX_FILES)]
    return [str(place) for place in (*places, *inside)]


@contextmanager
def _listening() -> Iterator[tuple[int, str]]:
    """Listen on loopback, and at a path, as a database does."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as tcp, socket.socket(socket.AF_UNIX) as local:
        path = str(Path(folder) / "socket")
        tcp.bind(("127.0.0.1", 0))
        local.bind(path)
        for server in (tcp, local):
            server.listen()
        yield tcp.getsockname()[1], path
