"""Verify an audit export of lqops, or a file of its archive, without lqops. Needs Python 3.11 and `cryptography`.

    python verify_export.py --key KEY export.jsonl          (or export.csv, or audit-000001-….jsonl.gz)

KEY is the public key, 64 hex digits; best one that you noted long ago. --kept FILE is a copy of the checkpoint file, or
with --witness-key KEY a file of counter-signatures made with that key: the export must agree with it and be newer.
Exit 0: this is what the installation signed, and nothing was changed, added or removed. Exit 1: says what is wrong.
"""

import argparse
import csv
import gzip
import hashlib
import json
import re
import sys
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

csv.field_size_limit(2**31 - 1)  # events are as long as they are
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = (0, "0" * 64)
KINDS = ("checkpoint", "seal", "manifest")
# What reading a line can raise that is no line of lqops: also one nested too deep, or with a number that fits nowhere.
MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    csv.Error,
)


def need(condition, what):
    if not condition:
        raise ValueError(what)


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def check_signature(statement, key):
    need(statement.get("key") == key, "is not signed with the key")
    text = canonical({name: value for name, value in statement.items() if name != "signature"})
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(statement["signature"]), text)


def parse(line, columns):
    """Return what a line is, checkpoint, seal, event or manifest, and its content."""
    if not columns:
        value = json.loads(line)
        return next(((what, value[what]) for what in KINDS if what in value), ("event", value))
    row = dict(zip(columns, (cell.removeprefix("'") for cell in next(csv.reader([line]))), strict=True))
    row["details"] = json.loads(row["details"])
    if row["chain"] in KINDS:
        return row["chain"], row["details"]
    micros = (datetime.fromisoformat(row["at"]) - EPOCH) // timedelta(microseconds=1)
    return "event", {**row, "seq": int(row["seq"]), "at": micros}


class Export:
    """Takes the lines of a file in their order; `known` are digests of checkpoints by their number, `rows` the hashes
    of rows that kept checkpoints name.
    """

    def __init__(self, key, known, rows):
        self.key, self.known, self.rows, self.keys = key, known, rows, {key}
        self.seals, self.sealed, self.start = [], {}, {}
        self.trusted, self.before, self.skipped, self.named = False, START, False, {}
        self.count, self.gap, self.first, self.last, self.opened, self.closed = 0, "", {}, {}, {}, {}

    def checkpoint(self, line):
        """It follows the one before it, and is signed; those from before the first with the key are only linked."""
        digest, (number, before) = hashlib.sha256(canonical(line)).hexdigest(), self.before
        need(line["n"] > number and (line["n"] > number + 1 or line["prev"] == before), "does not follow the last one")
        need(self.known.pop(line["n"], digest) == digest, "is not the checkpoint that was kept or counter-signed")
        if self.trusted or line.get("key") == self.key:
            check_signature(line, self.key)
            self.key, self.trusted = line.get("next_key", self.key), True  # the old key names the new one
            self.keys.add(self.key)
        self.before, self.skipped = (line["n"], digest), self.skipped or line["n"] > number + 1
        for chain, start, end in line.get("restored", {}).get("missing", []):  # accepted by a person, on record
            self.named = without(self.named, chain, start, end)
            self.rows = without(self.rows, chain, start, end)
            print(f"Note: checkpoint {line['n']}: rows {start} to {end} of chain {chain} were lost by a restore")
        for chain, (seq, row) in {**line["open"], "system": (line["system"]["seq"], line["system"]["hash"])}.items():
            need(not seq or self.named.setdefault((chain, seq), row) == row, f"signs another row {seq} of {chain}")

    def seal(self, line):
        """What was archived and is not in an export: ranges of rows, and what dropped rows of `system` said."""
        self.seals.append(line["statement"])
        for chain, *ends in line["ranges"]:
            self.sealed.setdefault(chain, []).append(ends)
        digest = hashlib.sha256(b"".join(canonical(one) + b"\n" for one in line["ranges"])).hexdigest()
        need(digest == line["statement"]["ranges"], "is a seal with other ranges than were signed")

    def check_seals(self):
        """Each seal is signed with a known key, or named by the one after it. Returns the last row of `system` gone."""
        named = None
        for said in reversed(self.seals):
            digest = hashlib.sha256(canonical(said)).hexdigest()
            need(named is None or named == digest, f"comes with seal {said['n']}, which the next one does not name")
            check_signature(said, said["key"])
            need(named or said["key"] in self.keys, f"comes with seal {said['n']}, signed with another key")
            named = said["prev"]
        need(named in {None, START[1]}, "comes without all seals")
        for chain, (first, seq, last) in (self.seals[-1]["carried"] if self.seals else {}).items():
            if first:
                self.opened.setdefault(chain, first)
            if seq is not None:
                self.closed.setdefault(chain, (seq, last))
        for chain, ends in self.sealed.items():
            if chain != "system" and chain in self.opened:
                need(chain not in self.first, f"comes with rows of chain {chain}, which was archived")
                self.first[chain], self.last[chain] = ends[0][2], (ends[-1][1], ends[-1][3])
        return tuple(self.seals[-1]["system"]) if self.seals else START

    def is_archived(self, chain, seq, found):
        """Whether a seal covers a row; the hashes of the first and the last one are known."""
        ends = [one for one in self.sealed.get(chain, ()) if one[0] <= seq <= one[1]]
        return bool(ends) and {ends[0][0]: ends[0][2], ends[0][1]: ends[0][3]}.get(seq, found) == found

    def event(self, row):
        """Its hash is right, it is the row that checkpoints signed, and it follows the row before it."""
        found, chain, seq, kind, details = row.pop("hash"), *map(row.get, ("chain", "seq", "kind", "details"))
        name = f"(row {seq} of chain {chain})"
        need(hashlib.sha256(canonical(row)).hexdigest() == found, f"{name} was changed")
        need(self.named.pop((chain, seq), found) == found, f"{name} is not the row that a checkpoint signed")
        need(self.rows.get((chain, seq), found) == found, f"{name} is not the row that a kept checkpoint signed")
        before = (seq - 1, row["prev_hash"])
        if before != self.last.get(chain, before):
            self.gap = self.gap or f"{name} does not follow the row before it"
        self.start.setdefault(chain, before)
        self.count, self.last[chain] = self.count + 1, (seq, found)
        self.first.setdefault(chain, found)
        if (chain, kind) == ("system", "audit.chain_opened"):  # the first counts
            self.opened.setdefault(details["opened"], details["first_hash"])
        elif (chain, kind) == ("system", "audit.chain_closed"):
            self.closed.setdefault(details["closed"], (details["last_seq"], details["last_hash"]))

    def manifest(self, line, digest):
        """It is signed, and what it says of the lines before it is so. Returns what the export is."""
        check_signature(line, self.key)
        need((line["sha256"], line["events"]) == (digest, self.count), "is for other lines: some were changed or cut")
        if line["format"] == "lqops-audit-archive/1":
            return self.archive(line)
        need(line["format"] == "lqops-audit-export/1", "is of an unknown format")
        chain, newest = line["filters"]["chain"], self.before[0]
        if line["filters"]["since"] or line["filters"]["kind"]:
            return f"{self.count} events of a selection, exported {line['at']}; what lies between them is left out"
        need(not self.gap, f"is for lines of which one {self.gap}")
        seam = self.check_seals()
        late = [name for name, at in self.start.items() if at != (seam if name == "system" else START)]
        need(
            not late,
            f"is for lines of which one (the first of chain {''.join(late[:1])}) does not follow the row before",
        )
        heads = {name: list(self.last.get(name, START)) for name in line["heads"]}
        need(line["heads"] == heads, f"names another last row of chain {chain}")
        gone = [f"row {at[1]} of chain {at[0]}" for at in sorted(self.named) if chain in {"", at[0]}
                and not self.is_archived(*at, self.named[at])]  # fmt: skip
        need(not gone, f"comes without {''.join(gone[:1])}, which a checkpoint signed")
        lost = [n for n in self.known if n > newest or not chain]
        need(not lost and (chain or not self.skipped), "comes without all checkpoints, or is older than those you have")
        if not chain:
            wrong = [name for name in {*self.first, *self.opened} if self.first.get(name) != self.opened.get(name)]
            wrong = {*wrong, *(name for name in self.closed if self.last.get(name) != self.closed[name])} - {"system"}
            need(not wrong, f"comes with chain {min(wrong, default='')}, which does not match its rows in `system`")
        return f"{self.count} events of {chain or 'all chains'}, up to checkpoint {newest}, exported {line['at']}"

    def archive(self, line):
        """A file of the archive: whole chains, and a range of `system`. Returns what it is."""
        need(not self.gap, f"is for lines of which one {self.gap}")
        late = [name for name, at in self.start.items() if at != START and name != "system"]
        need(not late, f"comes with chain {''.join(late[:1])} without its first row")
        found = sorted([c, self.start[c][0] + 1, self.last[c][0], self.first[c], self.last[c][1]] for c in self.first)
        ranges = hashlib.sha256(b"".join(canonical(one) + b"\n" for one in found)).hexdigest()
        need((ranges, len(found)) == (line["ranges"], line["chains"]), "is for other chains than these")
        return f"{self.count} events of {len(found)} chains, segment {line['n']} of the archive, written {line['at']}"


def without(rows, chain, first, last):
    """Return the rows without those that a restore has lost: others may stand in their place."""
    return {at: row for at, row in rows.items() if at[0] != chain or not first <= at[1] <= last}


def verify(lines, key, known, rows):
    export, digest, columns, result = Export(key, known, rows), hashlib.sha256(), None, None
    for number, raw in enumerate(lines, 1):
        try:
            need(result is None, "stands after the manifest")
            line = raw.decode("ascii")
            if number == 1 and line.startswith("chain,"):
                columns = next(csv.reader([line]))
            elif (parsed := parse(line, columns))[0] == "manifest":
                result = export.manifest(parsed[1], digest.hexdigest())
            else:
                getattr(export, parsed[0])(parsed[1])
        except InvalidSignature:
            raise ValueError(f"line {number} has a wrong signature") from None
        except MALFORMED as error:
            raise ValueError(f"line {number} {error if type(error) is ValueError else 'is malformed'}") from None
        digest.update(raw)
    need(result, "there is no manifest: the end was cut off")
    return result


def kept_checkpoints(file, witness_key):
    """Return digests by number, of the lines of a checkpoint file or as a second host has counter-signed them, and the
    hashes of the rows that the lines name.
    """
    known, rows = {}, {}
    for number, raw in enumerate(Path(file).read_bytes().splitlines() if file else (), 1):
        try:
            line = json.loads(raw)
            if witness_key:
                check_signature(line, witness_key)
            for chain, first, last in line.get("restored", {}).get("missing", []):
                rows = without(rows, chain, first, last)
            known[line["n"]] = line["checkpoint"] if witness_key else hashlib.sha256(raw).hexdigest()
            heads = {} if witness_key else {**line["open"], "system": (line["system"]["seq"], line["system"]["hash"])}
            rows.update({(chain, seq): row for chain, (seq, row) in heads.items()})
        except MALFORMED as error:
            if type(error) is ValueError:
                raise
            what = "counter-signature" if witness_key else "checkpoint"
            raise ValueError(f"line {number} of {file} is no {what}") from None
    return known, rows


def public_key(text):
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError('a public key has 64 digits 0-9, a-f: the value of "key" in lqops-audit-key')
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--key", required=True, type=public_key)
    parser.add_argument("--kept")
    parser.add_argument("--witness-key", type=public_key)
    parser.add_argument("export")
    given = parser.parse_args()
    try:
        with (gzip.open if given.export.endswith(".gz") else open)(given.export, "rb") as file:
            found = verify(file, given.key, *kept_checkpoints(given.kept, given.witness_key))
    except (InvalidSignature, ValueError, OSError, EOFError, zlib.error) as error:
        sys.exit(f"Refused: {str(error) or 'a counter-signature is wrong'}")
    print(f"Verified: {found}")
