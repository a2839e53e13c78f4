"""Megabytes per second of what reads every text: redaction, the anonymizer, and the parser of skill calls.

`python -m tests.benchmarks.text [--rounds 9]`; needs no database. The reference is a regular expression that finds the
words of the same text: the least that Python can do with each of them.
"""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.guard import connection  # noqa: F401 sets Django up

# isort: split
from agents.anonymize.anonymizer import Anonymizer
from agents.skills.parsing import parse_skill_calls
from audit.redaction import redact
from tests.benchmarks.paired import measure, record

CHARS = 50_000
WORDS = re.compile(r"\w+")
SECRETS = "The key is sk-proj-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c, and password=hunter2hunter2 opens it.\n"
PEOPLE = "Contact Dr. Ada Lovelace at ada@example.org or +49 30 1234567, IBAN DE89370400440532013000, Northgate Ltd.\n"
CALLS = '<skill>contract_check(document="supplier agreement", clause=7, limits=[1, 2.5], strict=True)</skill>\n'


def long(text: str) -> str:
    return (text * (CHARS // len(text) + 1))[:CHARS]


def texts() -> dict[str, tuple[str, Callable[[str], object]]]:
    prose = "\n".join(path.read_text() for path in sorted(Path("samples/documents").glob("*.md")))
    replies = long(prose[:900] + "\n" + CALLS)
    replies = replies[: replies.rindex("</skill>") + len("</skill>")]
    return {
        "redaction.clean": (long(prose), redact),
        "redaction.secrets": (long(prose[:2_000] + SECRETS), redact),
        "anonymizer.clean": (long(prose), lambda text: Anonymizer().hide(text)),
        "anonymizer.names": (long(prose[:2_000] + PEOPLE), lambda text: Anonymizer().hide(text)),
        "skill_calls.prose": (long(prose), parse_skill_calls),
        "skill_calls.calls": (replies, parse_skill_calls),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    for name, (text, read) in texts().items():
        contenders = {"words": lambda text=text: WORDS.findall(text), name: lambda text=text, read=read: read(text)}
        rows = measure(contenders, rounds=rounds, steps=3, warm=1)
        size = len(text.encode()) / 1e6
        record(
            f"text.{name}", [size / row[name] for row in rows], unit="MB/s", database="none",
            ratios=[row[name] / row["words"] for row in rows], reference="finding the words",
        )  # fmt: skip


if __name__ == "__main__":
    main()
