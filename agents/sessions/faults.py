"""Faults that the rows of runs do not show: failing models, and hosts with a full disk, other keys, a version that the
database does not allow, or a checkpoint file that cannot be written.

Every host reports itself in a row of its own, several times a minute: only it can see its disk, its files and its keys.
"""

import hashlib
import hmac
import platform
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from django.conf import settings
from django.db import connection

from agents import __version__
from agents.database_clock import AGREES, both_clocks, claim_limit, difference_text
from agents.definitions.catalogue import declaration_of
from agents.enums import Outcome
from agents.exceptions import KeysDiffer
from agents.ledger.journal import KEY_REFUSED
from agents.models import Host, InferenceLog, ToolCall
from agents.sessions.schema import UNREPORTED, oldest_allowed, release, require_allowed_version
from audit.checkpoints import checkpoint_fault

HOST_GONE: Final = timedelta(minutes=2)  # a host that has not reported for so long counts as stopped
REPORT_OLD: Final = timedelta(seconds=15)
HOST_KEPT: Final = timedelta(days=1)
MEGABYTE: Final = 1_000_000
REQUESTS_READ: Final = 200
FAILING_FROM: Final = 3  # failed requests in a row
FAILING_WITHIN: Final = timedelta(minutes=15)


# --- Models ---


@dataclass(frozen=True)
class Failing:
    """Models whose last requests failed: each one of several lately, or the last one because of its key."""

    all_requests: tuple[str, ...]
    key_refused: tuple[str, ...]


def failing_models(now: datetime) -> Failing:
    """Return the models that fail.

    A refused key is certain after one request, and no later one mends it. A model that is not declared any more needs
    none.
    """
    newest = list(
        InferenceLog.objects.order_by("-id").values_list("model", "outcome", "created_at", "session_id")[:REQUESTS_READ]
    )
    failed: Counter[str] = Counter()
    answered: set[str] = set()
    last_failed: dict[str, int | None] = {}
    for model, outcome, at, session_id in newest:
        if outcome == Outcome.SUCCESS:
            answered.add(model)
        if outcome == Outcome.GATEWAY_ERROR and model not in answered:
            last_failed.setdefault(model, session_id)
            failed[model] += at >= now - FAILING_WITHIN
    declared = {model: session_id for model, session_id in last_failed.items() if declaration_of(model)}
    refused = set(_keys_refused(declared)) if declared else set()
    often = {model for model, count in failed.items() if count >= FAILING_FROM}
    return Failing(tuple(sorted(often - refused)), tuple(sorted(refused)))


def _keys_refused(last_failed: Mapping[str, int | None]) -> Iterator[str]:
    calls = ToolCall.objects.filter(detail=KEY_REFUSED, session_id__in=set(last_failed.values()))
    refused = set(calls.values_list("model", "session_id"))
    return (model for model, session_id in last_failed.items() if (model, session_id) in refused)


# --- Hosts ---


def host_name() -> str:
    return platform.node()[-96:]


def keys_fingerprint() -> str:
    """Return a digest for each key, by which hosts compare their keys; it tells nothing about them."""
    keys = {
        "LQOPS_SECRET_KEY": settings.SECRET_KEY,
        "LQOPS_AUDIT_KEY": settings.LQOPS_AUDIT_KEY,
        "LQOPS_WEBHOOK_KEY": settings.LQOPS_WEBHOOK_KEY,
    }
    digests = {name: hmac.new(key.encode(), b"lqops host", hashlib.sha256).hexdigest() for name, key in keys.items()}
    return " ".join(f"{name}={digest[:16]}" for name, digest in digests.items())


def differing_keys(one: str, other: str) -> list[str]:
    """Return the names of the keys that differ between two fingerprints."""
    mine, theirs = (dict(part.split("=") for part in text.split()) for text in (one, other))
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))


def host_here(now: datetime) -> Host:
    """Return what this host sees of itself. Nothing is stored."""
    return Host(
        name=host_name(),
        seen_at=now,
        keys=keys_fingerprint(),
        free_bytes=free_bytes(_folders()),
        checkpoint_fault=checkpoint_fault()[:200],
        version=__version__,
        clock_ahead_ms=both_clocks().ahead // timedelta(milliseconds=1),
    )


def host_report(now: datetime, *, writes_checkpoints: bool = False) -> None:
    """Store what this host sees of itself; of the checkpoint file, if it is the one that writes it."""
    here = host_here(now)
    told = ["seen_at", "keys", "free_bytes", "version", "clock_ahead_ms"]
    told += ["checkpoint_fault"] if writes_checkpoints else []
    values = {field: getattr(here, field) for field in told}
    if not Host.objects.filter(name=here.name).update(**values):
        Host.objects.update_or_create(name=here.name, defaults=values)


def hosts_forget(now: datetime) -> int:
    """Delete the hosts that have not reported for a day. Return how many."""
    return Host.objects.filter(seen_at__lt=now - HOST_KEPT).delete()[0]


def host_report_if_old(now: datetime) -> None:
    """Report this host unless its ticker, which does so all the time, has done it lately and with the same keys."""
    recent = Host.objects.filter(name=host_name(), seen_at__range=(now - REPORT_OLD, now))
    if recent.values_list("keys", flat=True).first() != keys_fingerprint():
        host_report(now)


def hosts_live(now: datetime) -> list[Host]:
    return list(Host.objects.filter(seen_at__gte=now - HOST_GONE).order_by("name"))


def host_register(now: datetime) -> None:
    """Report this host at its start. Refuse a database that allows only newer versions, and refuse beside a host with
    other keys: each would destroy the tasks of the other.

    It reports before it looks at the others, so that of two that start together at least one sees the other.
    """
    require_allowed_version()
    host_report(now)
    try:
        keys_require_same(now)
    except KeysDiffer:
        Host.objects.filter(name=host_name()).delete()
        raise


def keys_require_same(now: datetime) -> None:
    """Refuse to go on beside a host with other keys."""
    for host in hosts_live(now):
        if differing := differing_keys(keys_fingerprint(), host.keys):
            raise KeysDiffer(
                f"Not started: host {host.name} uses another value of {', '.join(differing)}. Give all hosts the same "
                f"keys (docs/deployment.md). If that host was stopped, wait {HOST_GONE.total_seconds():.0f} seconds."
            )


def free_bytes(folders: Iterable[Path]) -> int:
    """Return the free space of the fullest file system on which lqops writes."""
    return min(shutil.disk_usage(folder).free for folder in folders if folder.is_dir())


def _folders() -> list[Path]:
    """The folders in which this host writes. The disk of a PostgreSQL server is its own to watch."""
    folders = [Path(settings.VAR_DIR), Path(settings.LQOPS_CHECKPOINT_FILE).parent]
    if connection.vendor == "sqlite":
        folders.append(Path(settings.DATABASES["default"]["NAME"]).parent)
    return folders


def host_faults(hosts: Iterable[Host]) -> list[tuple[str, str]]:
    """Return a code and a sentence for each fault of a host."""
    hosts = list(hosts)
    found = _too_old(hosts)
    first: Host | None = None
    for host in hosts:
        if host.free_bytes < settings.LQOPS_MIN_FREE_MB * MEGABYTE:
            free = host.free_bytes // MEGABYTE
            found.append((f"disk:{host.name}", f"The disk of host {host.name} is almost full: {free} MB are free."))
        ahead = timedelta(milliseconds=host.clock_ahead_ms)
        if abs(ahead) >= AGREES:
            stops = "" if abs(ahead) < claim_limit() else " It claims no work until its clock is right."
            text = f"The clock of host {host.name} is {difference_text(ahead)} the database's: set it (NTP).{stops}"
            found.append((f"clock:{host.name}", text))
        if host.checkpoint_fault:
            text = f"Host {host.name} cannot write checkpoints of the audit log: {host.checkpoint_fault}."
            found.append((f"checkpoint:{host.name}", text))
        first = first or host
        if differing := differing_keys(first.keys, host.keys):
            text = f"Hosts {first.name} and {host.name} use different keys: {', '.join(differing)}."
            found.append((f"keys:{host.name}", text))
    return found


def _too_old(hosts: Sequence[Host]) -> list[tuple[str, str]]:
    """Return the hosts of a version that the database does not allow."""
    if all(host.version == __version__ for host in hosts):
        return []
    least = oldest_allowed()
    text = (
        "Host {} runs lqops {}, and the database allows {} and newer: its runs may fail. Start a newer version there."
    )
    return [
        (f"version:{host.name}", text.format(host.name, host.version or UNREPORTED, least))
        for host in hosts
        if release(host.version) < release(least)
    ]
