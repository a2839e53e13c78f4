"""Seals: signed statements of what was archived, and what the audit log has to remember of dropped rows.

A seal names the rows of a segment by chain and range, the files that hold them, and the seal before it. The newest one
also carries what the dropped part of `system` said and verification still needs: the name of the log, the last dropped
row of `system`, openings and closings of chains that are still there, replaced keys, the digest of old skill audits.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import Sum

from audit.keys import is_signed, public_key
from audit.models import SYSTEM_CHAIN, DroppedSegment, Seal, SealedChain
from audit.rows import CHUNK, GENESIS, UnreadableRow, canonical, digest

SEALED: Final = "audit.sealed"
FORMAT: Final = "lqops-audit-seal/1"
LOOKED_UP: Final = 500


class UnreadableSeal(UnreadableRow):
    """The statement of a seal is not one that lqops can have written."""


class Range(NamedTuple):
    """Rows of a chain, first and last included."""

    chain: str
    first_seq: int
    last_seq: int
    first_hash: str
    last_hash: str

    @property
    def rows(self) -> int:
        return self.last_seq - self.first_seq + 1

    @property
    def is_system(self) -> bool:
        return self.chain == SYSTEM_CHAIN


@dataclass(frozen=True)
class Seam:
    """What the newest seal says of the part of the audit log that is no longer here. `carried` has, by chain, the hash
    of its first row, and the number and hash of its last one if it was closed.
    """

    number: int = 0
    digest: str = GENESIS
    log: str = ""
    system_seq: int = 0
    system_hash: str = GENESIS
    carried: dict[str, tuple[str, int | None, str | None]] | None = None
    keys: tuple[dict[str, Any], ...] = ()
    unlinked: tuple[dict[str, Any], ...] = ()

    @property
    def openings(self) -> dict[str, tuple[str, int | None, str | None]]:
        return self.carried or {}

    @classmethod
    def of(cls, seal: Seal) -> "Seam":
        said = seal.statement
        try:
            return cls(
                number=seal.number,
                digest=seal.digest,
                log=said["log"],
                system_seq=int(said["system"][0]),
                system_hash=said["system"][1],
                carried={chain: (first, seq, last) for chain, (first, seq, last) in said["carried"].items()},
                keys=tuple(said["keys"]),
                unlinked=tuple({"rows": one["rows"], "digest": one["digest"]} for one in said["unlinked"]),
            )
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise UnreadableSeal(f"seal {seal.number} was changed: its statement cannot be read") from error


def newest_seam(*, dropped: bool = False) -> Seam:
    """Return what the newest seal says; with `dropped` the newest one whose rows were dropped."""
    rows = Seal.objects.filter(dropped__isnull=False) if dropped else Seal.objects.all()
    seal = rows.order_by("-number").first()
    return Seam() if seal is None else Seam.of(seal)


def unfinished() -> list[Seal]:
    """Return the seals whose rows were not dropped yet, oldest first."""
    return list(Seal.objects.filter(dropped__isnull=True).order_by("number"))


def dropped_rows() -> int:
    """Return how many events were dropped."""
    return int(DroppedSegment.objects.aggregate(rows=Sum("events"))["rows"] or 0)


def sealed_ranges(chains: Collection[str], *, dropped: bool = True) -> dict[str, list[Range]]:
    """Return the archived rows of these chains; by default only those that are no longer in the database."""
    wanted = sorted(chains)
    found: dict[str, list[Range]] = {}
    for start in range(0, len(wanted), LOOKED_UP):
        rows = SealedChain.objects.filter(chain__in=wanted[start : start + LOOKED_UP]).order_by("chain", "first_seq")
        rows = rows.filter(seal__dropped__isnull=False) if dropped else rows
        for values in rows.values_list(*Range._fields):
            found.setdefault(values[0], []).append(Range(*values))
    return found


def dropped_seals() -> Iterator[tuple[dict[str, Any], list[Range]]]:
    """Yield the statements whose rows are no longer here, in their order, each with its ranges."""
    for seal in Seal.objects.filter(dropped__isnull=False).order_by("number").iterator(chunk_size=LOOKED_UP):
        yield seal.statement, sorted(Range(*values) for values in seal.chains.values_list(*Range._fields))


@dataclass(frozen=True)
class Archived:
    """Where the rows of a run are: since when, in which file with which digest, and the head of its chain."""

    at: datetime
    file: str
    sha256: str
    content_file: str
    content_sha256: str
    last_seq: int
    last_hash: str


def archived(chain: str) -> Archived | None:
    """Return where a run's rows are, if they were archived and dropped."""
    rows = SealedChain.objects.filter(chain=chain, seal__dropped__isnull=False)
    row = rows.select_related("seal__dropped").order_by("-first_seq").first()
    if row is None:
        return None
    said = row.seal.statement
    names = ("file", "sha256", "content_file", "content_sha256")
    return Archived(
        at=row.seal.dropped.at, **{name: said[name] for name in names}, last_seq=row.last_seq, last_hash=row.last_hash
    )


def ranges_digest(ranges: Iterable[Range]) -> str:
    """Return the digest of ranges, which stand in the order of their chains."""
    found = hashlib.sha256()
    for one in ranges:
        found.update(canonical(list(one)).encode("ascii") + b"\n")
    return found.hexdigest()


# --- Verification of the seals themselves ---


class SealFault(NamedTuple):
    number: int
    what: str


def seal_faults(keys: Collection[str] = ()) -> Iterator[SealFault]:
    """Yield what is wrong with the seals. `keys` are former keys of the installation, as genuine checkpoints name them.

    A seal is genuine if it is signed with the present key or a former one, or if a genuine seal after it names it.
    """
    trusted = {public_key(), *keys}
    named = ""
    number = None
    for seal in Seal.objects.order_by("-number").iterator(chunk_size=LOOKED_UP):
        if number is not None and seal.number != number - 1:
            yield SealFault(number - 1, "it is missing")
        number = seal.number
        if (found := _fault(seal, trusted, named)) is not None:
            yield SealFault(number, found)
        named = str(seal.statement.get("prev", "")) if isinstance(seal.statement, dict) else ""
    if number is not None and (number != 1 or named != GENESIS):
        yield SealFault(1, "it is missing" if number != 1 else "it does not start from nothing")
    yield from _system_faults()


def newest_seal_fault(keys: Collection[str] = ()) -> SealFault | None:
    """Return what is wrong with the newest seal, if anything. The next one would vouch for it."""
    seal = Seal.objects.order_by("-number").first()
    found = None if seal is None else _fault(seal, {public_key(), *keys}, "")
    return None if seal is None or found is None else SealFault(seal.number, found)


def _fault(seal: Seal, trusted: Collection[str], named: str) -> str | None:
    """Return what is wrong with a seal. `named` is the digest by which the seal after it names it."""
    said = seal.statement
    is_whole = isinstance(said, dict) and digest(said) == seal.digest and is_signed(said)
    if not is_whole or said.get("n") != seal.number:
        return "it was changed, or its signature is wrong"
    if said["key"] not in trusted and named != seal.digest:
        return "it is signed with a key that is not one of this installation"
    if named and named != seal.digest:
        return "it is not the one that the seal after it names"
    return _range_fault(seal)


def _range_fault(seal: Seal) -> str | None:
    rows = SealedChain.objects.filter(seal=seal).order_by("chain", "first_seq").values_list(*Range._fields)
    found = [Range(*values) for values in rows.iterator(chunk_size=CHUNK)]
    # A database may sort otherwise; the digest is over the order of characters.
    if ranges_digest(sorted(found)) != seal.statement["ranges"]:
        return "its ranges were changed, added or removed"
    if sum(one.rows for one in found) != seal.statement["events"]:
        return "its ranges hold another number of events than it says"
    return None


def _system_faults() -> Iterator[SealFault]:
    """The sealed ranges of `system` follow each other, from row 1 on."""
    seq = 0
    rows = SealedChain.objects.filter(chain=SYSTEM_CHAIN).order_by("first_seq")
    for number, first, last in rows.values_list("seal_id", "first_seq", "last_seq"):
        if first != seq + 1 or last < first:
            yield SealFault(number, f"its rows of `system` do not follow row {seq}")
        seq = last
