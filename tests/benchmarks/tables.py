"""Puts the measures of build/bench.jsonl into docs/performance.md, as tables: `python -m tests.benchmarks.tables`."""

import json
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


def tables(measures: list[Measure]) -> str:
    parts = []
    for title in dict.fromkeys(TITLES.values()):
        of_subject = [m for m in measures if TITLES[m["name"].partition(".")[0]] == title]
        parts += [f"### {title}"] if of_subject else []
        for database in dict.fromkeys(measure["database"] for measure in of_subject):
            here = [measure for measure in of_subject if measure["database"] == database]
            for has_unit in (False, True):
                if found := [measure for measure in here if ("unit" in measure) == has_unit]:
                    parts.append(f"{_heading(database, found)}\n\n{table(found)}")
    return "\n\n".join(parts) + "\n"


def _heading(database: str, measures: list[Measure]) -> str:
    rounds = sorted({measure["rounds"] for measure in measures})
    told = f"{rounds[0]} to {rounds[-1]} rounds" if len(rounds) > 1 else f"{rounds[0]} round{'s' * (rounds[0] > 1)}"
    return f"Without a database, {told}" if database == "none" else f"**{database}**, {told}"


def main() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    measures = [json.loads(line) for line in OUT.read_text().splitlines()]
    PAGE.write_text(f"{before}{BEGINS}\n{tables(measures)}\n{ENDS}{after}")


if __name__ == "__main__":
    main()
