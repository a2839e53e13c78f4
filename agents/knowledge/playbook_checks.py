"""What a playbook may hold: sizes, characters, no secrets. Gives back the values as the rendered text says them.

Reads and writes nothing. A refusal names the place as in YAML, `positions[2].guidance`, the limit and the value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Final

from agents.definitions.playbook_text import Playbook, Position, parse_playbook, render_playbook
from agents.exceptions import Invalid
from agents.text.strict_yaml import UNSTORABLE
from audit.redaction import redact

NAME_CHARS: Final = 120
MAX_POSITIONS: Final = 200
MAX_LISTED: Final = 50
TEXT_CHARS: Final = 20_000
LIMITS: Final = {"issue": 200, "severity": 32}


def checked_name(name: object) -> str:
    """The name on one line."""
    return " ".join(_text("name", name, NAME_CHARS, needed=True).split())


def checked_positions(positions: Sequence[Position]) -> tuple[Position, ...]:
    """The positions in order, with the blank space that a reader of the text would not see taken out."""
    if not 0 < len(positions) <= MAX_POSITIONS:
        raise Invalid(f"positions: a playbook has 1 to {MAX_POSITIONS} of them, not {len(positions)}.")
    for number, position in enumerate(positions):
        for place, value in _texts(position, f"positions[{number}]"):
            field = place.rpartition(".")[2]
            _text(place, value, LIMITS.get(field, TEXT_CHARS), needed=field == "issue")
    return parse_playbook(render_playbook(Playbook("", 1, tuple(positions)))).positions


def _texts(position: Position, path: str) -> Iterator[tuple[str, object]]:
    for field in fields(position):
        value = getattr(position, field.name)
        if not isinstance(value, list | tuple):
            yield f"{path}.{field.name}", value
            continue
        if len(value) > MAX_LISTED:
            raise Invalid(f"{path}.{field.name}: at most {MAX_LISTED} are kept, not {len(value)}.")
        yield from ((f"{path}.{field.name}[{number}]", item) for number, item in enumerate(value))


def _text(place: str, value: object, limit: int, *, needed: bool = False) -> str:
    if not isinstance(value, str):
        raise Invalid(f"{place}: expected text, found {type(value).__name__}.")
    plain = value.replace("\r\n", "\n").replace("\r", "\n")
    if len(plain) > limit:
        raise Invalid(f"{place}: {len(plain)} characters; at most {limit} are kept: shorten it.")
    if unstorable := UNSTORABLE.search(plain):
        raise Invalid(f"{place}: the character U+{ord(unstorable[0]):04X} cannot be kept.")
    if needed and not plain.strip():
        raise Invalid(f"{place}: is missing.")
    if redact(plain) != plain:
        raise Invalid(f"{place}: holds what looks like a secret; write it without.")
    return plain
