"""One case of a corpus: a position or rule, a document, and the verdict that a person gives."""

from dataclasses import dataclass

from agents.definitions.playbooks import Position, Rule


@dataclass(frozen=True)
class Case:
    name: str
    position: Position | Rule
    document: str
    verdict: str
    quoted: str = ""


def position(issue, standard, *fallbacks, **more):
    return Position(issue, "warn", standard, fallbacks, **more)


def rule(form, text="", *phrases):
    return Rule(form, text, phrases)
