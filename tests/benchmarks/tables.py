"""Puts the measures of build/bench.jsonl into docs/performance.md, as tables: `python -m tests.benchmarks.tables`.

What was not measured stays as it is.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.paired import OUT

PAGE = Path("docs/performance.md")
BEGINS, ENDS = "<!-- measured -->\n", "<!-- end of measured -->\n"
RATIOS = "| Measure | Ratio | Quartiles | ms | Divided by |\n|---|---|---|---|---|"
PAGES = "| Page | Ratio | Quartiles | ms with the most rows | Statements |\n|---|---|---|---|---|"
VALUES = "| Measure | Value | Unit | Ratio | Quartiles | Divided by |\n|---|---|---|---|---|---|"
# Subjects by the beginning of the names of their measures, in the order of the page.
TITLES = {
    "raw": "Guarded calls",
    "guard": "Guarded calls",
    "peer": "Guarded calls",
    "pages": "Pages",
    "audit": "Audit log",
    "walk": "Runs through the queue",
    "tick": "Ticks and wakes",
    "wake": "Ticks and wakes",
    "loops": "Loops beside a slow model",
    "streams": "Streams",
    "text": "Texts",
    "document": "Documents",
    "up": "`manage.py up`",
}

Measure = dict[str, Any]


def ratio_row(measure: Measure) -> str:
    last = measure.get("queries", measure["reference"])
    return (
        f"| {measure['name']} | {measure['ratio']:.2f} | {measure['low']:.2f} to {measure['high']:.2f} "
        f"| {measure['ms']:.2f} | {last} |"
    )


def value_row(measure: Measure) -> str:
    ratio = "" if measure["ratio"] is None else f"{measure['ratio']:.2f}"
    quartiles = f"{measure['low']:.2f} to {measure['high']:.2f}" if measure["rounds"] > 1 else ""
    value = f"{measure['value']:,.0f}" if measure["value"] >= 1_000 else f"{measure['value']:.2f}"
    return f"| {measure['name']} | {value} | {measure['unit']} | {ratio} | {quartiles} | {measure['reference']} |"


def table(measures: list[Measure]) -> str:
    """One table for measures of one form: pages, ratios alone, or values."""
    if "unit" in measures[0]:
        return "\n".join([VALUES, *map(value_row, measures)])
    return "\n".join([PAGES if "queries" in measures[0] else RATIOS, *map(ratio_row, measures)])


def tables(measures: list[Measure], present: str = "") -> str:
    """The tables of these measures, in the place of those that are `present`. The others stay."""
    found = _sections(present)
    for title in dict.fromkeys(TITLES.values()):
        of_subject = [m for m in measures if TITLES[m["name"].partition(".")[0]] == title]
        for database in dict.fromkeys(measure["database"] for measure in of_subject):
            here = [measure for measure in of_subject if measure["database"] == database]
            for has_unit in (False, True):
                if these := [measure for measure in here if ("unit" in measure) == has_unit]:
                    _put(found.setdefault(title, []), _heading(database, these), table(these))
    ordered = dict.fromkeys([*TITLES.values(), *found])
    return "\n\n".join(part for title in ordered if title in found for part in (f"### {title}", *found[title])) + "\n"


def _sections(text: str) -> dict[str, list[str]]:
    """The paragraphs and tables of a page, by the title above them."""
    found = {}
    for section in text.split("### ")[1:]:
        title, _, rest = section.partition("\n")
        found[title] = [part.strip("\n") for part in rest.split("\n\n") if part.strip("\n")]
    return found


def _put(parts: list[str], heading: str, new: str) -> None:
    """Put a table in the place of the one of the same database and form, or behind all others."""
    of_database = heading.partition(",")[0]
    for place, part in enumerate(parts[1:], 1):
        if parts[place - 1].startswith(of_database) and part.partition("\n")[0] == new.partition("\n")[0]:
            parts[place - 1 : place + 1] = [heading, _merged(part, new)]
            return
    parts += [heading, new]


def _merged(old: str, new: str) -> str:
    """The rows of a table, with those that were measured again in the place of their old ones."""
    head, rows = new.split("\n")[:2], {row.split(" | ")[0]: row for row in new.split("\n")[2:]}
    kept = {row.split(" | ")[0]: row for row in old.split("\n")[2:]}
    return "\n".join([*head, *(kept | rows).values()])


def _heading(database: str, measures: list[Measure]) -> str:
    rounds = sorted({measure["rounds"] for measure in measures})
    told = f"{rounds[0]} to {rounds[-1]} rounds" if len(rounds) > 1 else f"{rounds[0]} round{'s' * (rounds[0] > 1)}"
    return f"Without a database, {told}" if database == "none" else f"**{database}**, {told}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    measures = [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []
    if not measures:
        sys.exit(f"{OUT} holds no measures: run make bench first.")
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGINS)
    present, _, after = rest.partition(ENDS)
    PAGE.write_text(f"{before}{BEGINS}\n{tables(measures, present)}\n{ENDS}{after}")


if __name__ == "__main__":
    main()
