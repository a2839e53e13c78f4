"""Verify an audit export of lqops without lqops. Needs Python 3.11 and the package `cryptography`.

    python verify_export.py --key KEY export.jsonl          (or export.csv)

KEY is the public key, 64 hex digits; best one that you noted long ago. --kept FILE is a copy of the checkpoint file, or
with --witness-key KEY a file of counter-signatures made with that key: the export must agree with it and be newer.
Exit 0: this is what the installation signed, and nothing was changed, added or removed. Exit 1: says what is wrong.
"""

import argparse
import csv
import hashlib
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = (0, "0" * 64)


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
    """Return what a line is, checkpoint, event or manifest, and its content."""
    if not columns:
        value = json.loads(line)
        return next(((what, value[what]) for what in ("checkpoint", "manifest") if what in value), ("event", value))
    row = dict(zip(columns, (cell.removeprefix("'") for cell in next(csv.reader([line]))), strict=True))
    row["details"] = json.loads(row["details"])
    if row["chain"] in {"checkpoint", "manifest"}:
        return row["chain"], row["details"]
    micros = (datetime.fromisoformat(row["at"]) - EPOCH) // timedelta(microseconds=1)
    return "event", {**row, "seq": int(row["seq"]), "at": micros}


class Export:
    """Takes the lines of an export in their order; `known` are digests of checkpoints by their number."""

    def __init__(self, key, known):
        self.key, self.known = key, known
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
        self.before, self.skipped = (line["n"], digest), self.skipped or line["n"] > number + 1
        for chain, start, end in line.get("restored", {}).get("missing", []):  # accepted by a person, on record
            self.named = {at: row for at, row in self.named.items() if at[0] != chain or not start <= at[1] <= end}
            print(f"Note: checkpoint {line['n']}: rows {start} to {end} of chain {chain} were lost by a restore")
        for chain, (seq, row) in {**line["open"], "system": (line["system"]["seq"], line["system"]["hash"])}.items():
            need(not seq or self.named.setdefault((chain, seq), row) == row, f"signs another row {seq} of {chain}")

    def event(self, row):
        """Its hash is right, it is the row that checkpoints signed, and it follows the row before it."""
        found, chain, seq, kind, details = row.pop("hash"), *map(row.get, ("chain", "seq", "kind", "details"))
        name = f"(row {seq} of chain {chain})"
        need(hashlib.sha256(canonical(row)).hexdigest() == found, f"{name} was changed")
        need(self.named.pop((chain, seq), found) == found, f"{name} is not the row that a checkpoint signed")
        if (seq - 1, row["prev_hash"]) != self.last.get(chain, START):
            self.gap = self.gap or f"{name} does not follow the row before it"
        self.count, self.last[chain] = self.count + 1, (seq, found)
        self.first.setdefault(chain, found)
        if (chain, kind) == ("system", "audit.chain_opened"):  # the first counts
            self.opened.setdefault(details["opened"], details["first_hash"])
        elif (chain, kind) == ("system", "audit.chain_closed"):
            self.closed.setdefault(details["closed"], (details["last_seq"], details["last_hash"]))

    def manifest(self, line, digest):
        """It is signed, and what it says of the lines before it is so. Returns what the export is."""
        check_signature(line, self.key)
        need(line["format"] == "lqops-audit-export/1", "is of an unknown format")
        need((line["sha256"], line["events"]) == (digest, self.count), "is for other lines: some were changed or cut")
        chain, newest = line["filters"]["chain"], self.before[0]
        if line["filters"]["since"] or line["filters"]["kind"]:
            return f"{self.count} events of a selection, exported {line['at']}; what lies between them is left out"
        need(not self.gap, f"is for lines of which one {self.gap}")
        heads = {name: list(self.last.get(name, START)) for name in line["heads"]}
        need(line["heads"] == heads, f"names another last row of chain {chain}")
        gone = [f"row {at[1]} of chain {at[0]}" for at in sorted(self.named) if chain in {"", at[0]}]
        need(not gone, f"comes without {''.join(gone[:1])}, which a checkpoint signed")
        lost = [n for n in self.known if n > newest or not chain]
        need(not lost and (chain or not self.skipped), "comes without all checkpoints, or is older than those you have")
        if not chain:
            wrong = [name for name in {*self.first, *self.opened} if self.first.get(name) != self.opened.get(name)]
            wrong = {*wrong, *(name for name in self.closed if self.last.get(name) != self.closed[name])} - {"system"}
            need(not wrong, f"comes with chain {min(wrong, default='')}, which does not match its rows in `system`")
        return f"{self.count} events of {chain or 'all chains'}, up to checkpoint {newest}, exported {line['at']}"


def verify(lines, key, known):
    export, digest, columns, result = Export(key, known), hashlib.sha256(), None, None
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
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} {error if type(error) is ValueError else 'is malformed'}") from None
        digest.update(raw)
    need(result, "there is no manifest: the end was cut off")
    return result


def kept_checkpoints(file, witness_key):
    """Return digests by number: of the lines of a checkpoint file, or as a second host has counter-signed them."""
    known = {}
    for number, raw in enumerate(Path(file).read_bytes().splitlines() if file else (), 1):
        try:
            line = json.loads(raw)
            if witness_key:
                check_signature(line, witness_key)
            known[line["n"]] = line["checkpoint"] if witness_key else hashlib.sha256(raw).hexdigest()
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError):
            what = "counter-signature" if witness_key else "checkpoint"
            raise ValueError(f"line {number} of {file} is no {what}") from None
    return known


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
        with Path(given.export).open("rb") as file:
            found = verify(file, given.key, kept_checkpoints(given.kept, given.witness_key))
    except (InvalidSignature, ValueError, OSError) as error:
        sys.exit(f"Refused: {str(error) or 'a counter-signature is wrong'}")
    print(f"Verified: {found}")
