"""Puts the measures of build/bench.jsonl into docs/performance.md, as tables: `python -m tests.benchmarks.tables`."""

import json
from pathlib import Path

from tests.benchmarks.paired import OUT

PAGE = Path("docs/performance.md")
BEGINS, ENDS = "<!-- measured -->\n", "<!-- end of measured -->\n"
HEADS = {
    "guard": "| Measure | Ratio | Quartiles | ms | Divided by |\n|---|---|---|---|---|",
    "pages": "| Page | Ratio | Quartiles | ms with the most rows | Statements |\n|---|---|---|---|---|",
}


def row(measure: dict[str, object]) -> str:
    last = measure.get("queries", measure["reference"])
    return (
        f"| {measure['name']} | {measure['ratio']:.2f} | {measure['low']:.2f} to {measure['high']:.2f} "
        f"| {measure['ms']:.2f} | {last} |"
    )


def tables(measures: list[dict[str, object]]) -> str:
    parts = []
    for database in dict.fromkeys(measure["database"] for measure in measures):
        for kind, head in HEADS.items():
            found = [m for m in measures if m["database"] == database and (kind == "pages") == ("queries" in m)]
            if found:
                parts.append(f"**{database}**, {found[0]['rounds']} rounds\n\n{head}\n" + "\n".join(map(row, found)))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    measures = [json.loads(line) for line in OUT.read_text().splitlines()]
    PAGE.write_text(f"{before}{BEGINS}\n{tables(measures)}\n{ENDS}{after}")


if __name__ == "__main__":
    main()
