"""Verify an lqops audit export without lqops: python docs/verify_export.py [--links-only] export.jsonl

Exit 0: every row is as it was written, and none is missing except possibly the newest. Exit 1: the first bad line is
named. --links-only is for the export of one chain, which lacks the rows of `system` that open and close it.
"""

import hashlib
import json
import sys
from pathlib import Path


def verify(lines, *, links_only):
    first, last, opened, closed = {}, {}, {}, {}
    number = 0
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            found, chain, seq, kind, details = (row.pop("hash"), *map(row.get, ("chain", "seq", "kind", "details")))
            text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
            follows = (seq - 1, row["prev_hash"]) == last.get(chain, (0, "0" * 64))
            if not follows or hashlib.sha256(text.encode()).hexdigest() != found:
                what = "was changed" if follows else "does not follow the row before it"
                return f"line {number}: row {seq} of chain {chain} {what}"
            first.setdefault(chain, found)
            last[chain] = (seq, found)
            if (chain, kind) == ("system", "audit.chain_opened"):
                twice = opened.setdefault(details["opened"], details["first_hash"]) != details["first_hash"]
            elif (chain, kind) == ("system", "audit.chain_closed"):
                end = (details["last_seq"], details["last_hash"])
                twice = closed.setdefault(details["closed"], end) != end
            else:
                continue
        except (AttributeError, KeyError, TypeError, ValueError):
            return f"line {number}: not a row of an export"
        if twice:
            return f"line {number}: row {seq} of `system` opens or closes a chain again, differently"
    if not number:
        return "line 1: the file is empty"
    wrong = [chain for chain in {*first, *opened} - {"system"} if first.get(chain) != opened.get(chain)]
    wrong += [chain for chain in closed if last.get(chain) != closed[chain]]
    if wrong and not links_only:
        return f"line {number}: end of file, and chain {min(wrong)} does not match its rows in `system`"
    return ""


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[-1].startswith("--"):
        sys.exit(__doc__)
    try:
        with Path(sys.argv[-1]).open(encoding="ascii", errors="replace") as export:
            problem = verify(export, links_only="--links-only" in sys.argv)
    except OSError as error:
        print(f"{sys.argv[-1]} cannot be read: {error.strerror}")
        sys.exit(2)
    print(problem or "Verified: all events intact")
    sys.exit(1 if problem else 0)
