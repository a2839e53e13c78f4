"""One expression for many literals.

Owns the grouping by first character: at each position of a text one character decides, not every literal in turn.
"""

from collections.abc import Iterable


def grouped(expressions: Iterable[str]) -> str:
    """An alternation of expressions that each begin with a literal character, longest first within a group."""
    groups: dict[str, set[str]] = {}
    for expression in expressions:
        first = expression[:2] if expression[0] == "\\" else expression[0]
        groups.setdefault(first, set()).add(expression[len(first) :])
    return "|".join(
        f"{first}(?:{'|'.join(sorted(rests, key=lambda rest: (-len(rest), rest)))})"
        for first, rests in sorted(groups.items())
    )
