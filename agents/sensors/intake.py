"""Files of a watched folder as documents of a collection.

A file is added when it has not changed for a moment, so that what is still being copied is not read half. Bytes that
the owner has already are the same document: after a crash, adding the same files again changes nothing.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from django.db import connections

from agents.conf import clock, sensor_roots
from agents.exceptions import LqopsError, StorageFailed
from agents.knowledge.documents import document_add
from agents.knowledge.search import collection_named
from agents.models import Agent, Collection
from agents.sensors.paths import PathRefused, opened, resolve_path
from agents.sensors.sensing import Failed
from agents.text.formats.limits import MAX_BYTES

SETTLE_SECONDS: Final = 2.0
MOST_AT_ONCE: Final = 20
_UNFINISHED: Final = (".part", ".partial", ".crdownload", ".tmp", ".swp", "~")


@dataclass
class Intake:
    """What became of new files: the documents by name, problems, and files that are left for the next look."""

    added: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)

    @property
    def problem(self) -> str:
        return "; ".join(self.problems)


def take_in(path: str, collection: str, names: Sequence[str], *, agent_id: int) -> Intake:
    """Add files below a path to a collection of the agent's owner. Runs in a thread."""
    taken = Intake()
    wanted = [name for name in names if not _is_unfinished(name)]
    taken.left = set(wanted[MOST_AT_ONCE:])
    try:
        agent = Agent.objects.select_related("owner").get(pk=agent_id)
        row = collection_named(owner_id=agent.owner_id, name=collection)
        if row is None:
            raise Failed(f"{agent.owner} has no collection {collection!r}: create it, or save the definition again")
        for name in wanted[:MOST_AT_ONCE]:
            _take(path, name, agent, row, taken)
    finally:
        connections.close_all()
    return taken


def _take(path: str, name: str, agent: Agent, collection: Collection, taken: Intake) -> None:
    try:
        data = _settled_bytes(path, name)
        if data is None:
            taken.left.add(name)
            return
        document, _ = document_add(
            owner=agent.owner, name=name.rpartition("/")[2], data=data, by=None, now=clock(), collection=collection
        )
    except (StorageFailed, OSError, PathRefused) as error:  # may be better the next time
        taken.left.add(name)
        taken.problems.append(f"{name} could not be added: {getattr(error, 'strerror', None) or error}")
    except LqopsError as error:
        taken.problems.append(f"{name} was not added: {error}")
    else:
        taken.added[name] = str(document.public_id)


def _settled_bytes(path: str, name: str) -> bytes | None:
    """Return the content of a file; None while it is being written."""
    root, steps = resolve_path(path, sensor_roots())
    with opened(root, (*steps, *name.split("/"))) as (handle, _):
        if 0 <= clock().timestamp() - os.fstat(handle).st_mtime < SETTLE_SECONDS:
            return None
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(MAX_BYTES + 1)  # one more than allowed shows that it is too long


def _is_unfinished(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") or last.endswith(_UNFINISHED)
