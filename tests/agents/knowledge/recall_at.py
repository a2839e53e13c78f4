"""The labelled questions, and how many of them a search answers among its first hits."""

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FIRST: Final = 5
KINDS: Final = ("same", "mixed", "other")


@dataclass(frozen=True)
class Labelled:
    """A passage, stored as the document `name`, and a question that it answers."""

    name: str
    text: str
    question: str
    kind: str


def labelled_questions() -> list[Labelled]:
    content = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
    return [Labelled(**one) for one in content["passage"]]


def answered(questions: Sequence[Labelled], search: Callable[[str], Sequence[str]]) -> Counter[str]:
    """Count by kind the questions whose passage is among the first hits. `search` returns names, best first."""
    return Counter(one.kind for one in questions if one.name in search(one.question)[:FIRST])
