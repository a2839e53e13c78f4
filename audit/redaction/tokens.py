"""Finds credentials by their own spelling: the vendor tables, web tokens and private key blocks.

Owns the compiled rules and the literal pre-filter that keeps clean text cheap. Must not look at key names or context.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import zip_longest

from audit.redaction.alternation import grouped
from audit.redaction.patterns import BOUNDED, DISTINCT, MARKED
from audit.redaction.spans import Span

# What may stand before a token although it ends in a letter or digit: an escape or a colour code.
_ESCAPES = (
    r"%[0-9A-Fa-f]{2}",
    r"\\[abefnrtv]",
    r"\\u00[0-9A-Fa-f]{2}",
    r"\\x[0-9A-Fa-f]{2}",
    r"\[\dm",
    r"\[\d\dm",
    r";\d\dm",
    r"\[m",
)


@dataclass(frozen=True)
class Rule:
    """One literal and the expression tried where it occurs; a run of `left` before it belongs to the token too.

    Most literals never occur in a process: an expression is compiled when its literal is first met.
    """

    kind: str
    literal: str
    written: str
    bounded: bool = False
    left: re.Pattern[str] | None = None
    most: int = 0

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.written)


def _after_boundary(literal: str, *, also: str = "") -> str:
    """The literal, not glued to a word. The look-behind follows it, so that the search keeps its literal prefix."""
    escaped = re.escape(literal)
    behind = "|".join([f"(?<![A-Za-z0-9{also}]{escaped})", *(f"(?<={escape}{escaped})" for escape in _ESCAPES)])
    return f"{escaped}(?:{behind})"


def _rules() -> tuple[Rule, ...]:
    rules = [
        Rule(kind, literal, re.escape(literal) + body)
        for kind, literals, body in DISTINCT
        for literal in literals.split()
    ]
    rules += [
        Rule(kind, literal, _after_boundary(literal) + body, bounded=True)
        for kind, literals, body in BOUNDED
        for literal in literals.split()
    ]
    for kind, mark, left, least, most, body in MARKED:
        escaped = re.escape(mark)
        written = rf"{escaped}(?<={left}{{{least}}}{escaped}){body}"
        rules.append(Rule(kind, mark, written, left=re.compile(left), most=most))
    # The run before `eyJ` must end there: a chain of them is then read once, not once per link.
    web_token = _after_boundary("eyJ", also="_-") + (
        r"(?a:[\w-]{8,}+=*+\.(?:[\w-]*+=*+\.[\w-]*+(?:\.[\w-]*+){0,2}|eyJ[\w-]{8,}+))"
    )
    rules.append(Rule("jwt", "eyJ", web_token, bounded=True))
    return tuple(rules)


RULES = _rules()
# The shortest token, prefix included, has this many characters.
_RUN = re.compile(r"[A-Za-z0-9_.+/=~$%:-]{15,}+")
_MARKS = tuple(rule for rule in RULES if len(rule.literal) == 1)
_OTHERS = tuple(rule for rule in RULES if len(rule.literal) > 1)
_MAY_HIDE_BOUNDARY = re.compile(r"[%\\\x1b\[]")


@cache
def _any_literal(*, bounded: bool) -> re.Pattern[str]:
    """A quick proof that no literal occurs. Where escapes may hide a boundary, none is asked for."""
    if not bounded:
        return re.compile(grouped(re.escape(rule.literal) for rule in _OTHERS))
    glued = grouped(re.escape(rule.literal) for rule in _OTHERS if not rule.bounded)
    free = grouped(re.escape(rule.literal) for rule in _OTHERS if rule.bounded)
    return re.compile(rf"{glued}|(?<![A-Za-z0-9])(?:{free})")


def _widened(rule: Rule, text: str, start: int) -> int | None:
    """Where a marked token begins, or None when the run before the mark is longer than the format allows."""
    if rule.left is None:
        return start
    run = start
    while run > 0 and start - run <= rule.most and rule.left.match(text, run - 1):
        run -= 1
    return run if start - run <= rule.most else None


def _rules_for(text: str) -> Iterator[Rule]:
    """The rules whose literal occurs in a run that is long enough for a token."""
    runs = "\n".join(_RUN.findall(text))
    if runs:
        yield from (rule for rule in _MARKS if rule.literal in runs)
        if _any_literal(bounded=not _MAY_HIDE_BOUNDARY.search(text)).search(runs):
            yield from (rule for rule in _OTHERS if rule.literal in runs)


def token_spans(text: str) -> Iterator[Span]:
    """Every token of a known format."""
    for rule in _rules_for(text):
        for found in rule.expression.finditer(text):
            start = _widened(rule, text, found.start())
            if start is not None:
                yield Span(start, found.end(), rule.kind)


_EDGE = re.compile(
    r"-{4,5}[ +]?(BEGIN|END)(?:[ +]|%20)(?:[A-Z0-9]{1,12}(?:[ +]|%20)){0,4}PRIVATE(?:[ +]|%20)KEY"
    r"(?:(?:[ +]|%20)BLOCK)?[ +]?-{4,5}"
)
_BREAK = r"(?:\s|\\{1,8}+[nrt]|%0[aAdD]|&#1[03];|[\"'+,>|])"
# A block without an end: whole lines of it, then a last short piece if nothing else follows on that line.
_OPEN_BODY = re.compile(
    rf"(?:{_BREAK}{{0,64}}+(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]{{0,120}}+|[A-Za-z0-9+/=_]{{20,}}+))*+"
    rf"(?:{_BREAK}{{0,64}}+[A-Za-z0-9+/=_]{{1,64}}+(?=[\s\"'`]*+(?:\Z|[\n\\<}}])))?"
)
_PUTTY = re.compile(r"Private-Lines: ?\d{1,4}(?:\s|\\[nr])++(?:[A-Za-z0-9+/=]{1,80}+(?:\s|\\[nr])*+){1,400}+")


def block_spans(text: str) -> Iterator[Span]:
    """Private key blocks, whole or cut off."""
    if "PRIVATE" in text:
        edges = list(_EDGE.finditer(text))
        for edge, following in zip_longest(edges, edges[1:]):
            if edge[1] == "END":
                continue
            if following is not None and following[1] == "END":
                yield Span(edge.start(), following.end(), "private-key")
            else:
                body = _OPEN_BODY.match(text, edge.end())
                yield Span(edge.start(), body.end() if body else edge.end(), "private-key")
    if "Private-Lines:" in text:
        for found in _PUTTY.finditer(text):
            yield Span(found.start(), found.end(), "private-key")
