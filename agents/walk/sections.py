"""Reading in sections: documents of any length are put to a model in parts, one guarded question for each.

What was asked and answered stands in the journal, by the path of its section, so a run that was interrupted goes on
with the next one and pays for none twice. An answer that cannot be read is asked for once more; one that has no end is
asked for again in halves. What still cannot be read was not checked, and is reported so: it is never passed off as a
result.

What is missing from a document that was cut up shows only when all of it was read: its sections name what they deal
with, and one last question asks for the rest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from agents.enums import Outcome
from agents.models import ToolCall
from agents.policy.guardrails import CUT_OFF, Stop
from agents.text.clean import one_line
from agents.text.sections import halves, section_spans
from agents.walk.intake import Passage
from agents.walk.parsing import ITEMS, MOST_NOTES, Analysis, ParsedFinding, parse_analysis

Item = TypeVar("Item")

SECTION_CHARS: Final = 60_000  # of a model whose context window is not declared
MOST_SECTION_CHARS: Final = 200_000
LEAST_SECTION_CHARS: Final = 2_000
MARK_CHARS: Final = 160  # around a document in a question, beside its name
CHARS_PER_TOKEN: Final = 3  # at least so many, in most languages
USUAL_ANSWER_TOKENS: Final = 1_000
MOST_HALVINGS: Final = 2
MOST_PARTS: Final = 100  # of one answer
MOST_LONG: Final = 3  # parts that used all their tokens; a model that repeats itself without end is not paid for more
MOST_FINDINGS: Final = 1_000  # of one run

SECTION: Final = "section:"
CLOSING: Final = "closing"
ONLY: Final = "analysis"  # the key of a run that reads all in one section
REPAIR: Final = "repair"

# Why a section was not checked, beside what a model server says.
UNREADABLE: Final = "the model's answer could not be read"
ENDLESS: Final = "the model's answer was cut off"
NO_MONEY: Final = "the rest of the run's money is too little for it"
EMPTY_ANSWER: Final = "the model's answer was empty"


@dataclass(frozen=True)
class Section:
    """Passages for one question. The path is its number; that of a half ends with which one it is."""

    path: str
    passages: tuple[Passage, ...]
    total: int = 1

    def __str__(self) -> str:
        number, _, half = self.path.partition(".")
        return f"Section {number} of {self.total}" + (f", part {half}" if half else "")

    @property
    def key(self) -> str:
        return ONLY if self.total == 1 and self.path == "1" else f"{SECTION}{self.path}"

    @property
    def chars(self) -> int:
        return sum(len(passage.text) for passage in self.passages)

    def halved(self) -> "tuple[Section, ...]":
        """Return two sections instead of this one; none if it is too short, or a half of halves already."""
        if self.path.count(".") >= MOST_HALVINGS or self.chars < LEAST_SECTION_CHARS:
            return ()
        if len(self.passages) == 1:
            [passage] = self.passages
            groups = [[_part(passage, *span)] for span in halves(passage.text, 0, len(passage.text))]
        else:
            groups = list(_grouped(self.passages, -(-sum(map(marked_chars, self.passages)) // 2)))
        first, rest = groups[0], [passage for group in groups[1:] for passage in group]
        return tuple(
            replace(self, path=f"{self.path}.{number}", passages=tuple(group))
            for number, group in enumerate((first, rest), 1)
        )


def marked_chars(passage: Passage) -> int:
    """Return how many characters of a question a passage takes, with the marks around it."""
    return len(passage.text) + len(passage.name) + MARK_CHARS


def sections_of(passages: Sequence[Passage], *, room: int) -> tuple[Section, ...]:
    """Return what is read in sections, in order; one without a document if there is none."""
    groups = list(_grouped(passages, room)) or [[]]
    return tuple(Section(str(number), tuple(group), len(groups)) for number, group in enumerate(groups, 1))


def _grouped(passages: Iterable[Passage], room: int) -> Iterator[list[Passage]]:
    """Yield passages that fit together. One that is too long is cut up, and its parts stand alone."""
    group: list[Passage] = []
    left = room
    for passage in passages:
        if len(passage.text) > left and group:
            yield group
            group, left = [], room
        if len(passage.text) <= left:
            group.append(passage)
            left -= marked_chars(passage)
        else:
            yield from (
                [_part(passage, *span)] for span in section_spans(passage.text, 0, len(passage.text), room=room)
            )
    if group:
        yield group


def _part(passage: Passage, start: int, end: int) -> Passage:
    return replace(passage, start=passage.start + start, text=passage.text[start:end])


# --- Answers, as the journal has them ---


@dataclass(frozen=True)
class Unread:
    """A part of a document that was not checked, and why."""

    name: str
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        return f"{self.name}, characters {self.start:,} to {self.end:,}: {self.why}"


@dataclass(frozen=True)
class Answer:
    """What a model has answered about a section so far.

    `analysis` if it can be read; `why` if it never will be; neither if something is to be asked: `goes_on` if the
    answer was cut off, `is_asked` if it is to be given again, the first question otherwise.
    """

    analysis: Analysis | None = None
    why: str = ""
    is_asked: bool = False
    goes_on: bool = False
    is_endless: bool = False
    text: str = ""
    part: int = 1


def answer_to(key: str, made: Mapping[str, ToolCall]) -> Answer:
    """Read the calls under this key."""
    parts, failed = _parts(key, made)
    if failed:
        return Answer(why=failed)
    if not parts:
        return Answer()
    stops = [part.get("stop_reason") for part in parts]
    text = _whole(parts)
    analysis = parse_analysis(text)
    if analysis.is_structured:
        return Answer(analysis, is_asked=True, text=text)
    if stops[-1] in CUT_OFF:
        goes_on = stops.count(Stop.MAX_TOKENS) < MOST_LONG and len(parts) < MOST_PARTS
        why = "" if goes_on else ENDLESS
        return Answer(why=why, is_asked=True, goes_on=goes_on, is_endless=not goes_on, text=text, part=len(parts) + 1)
    return _repaired(made.get(f"{key}:{REPAIR}"), text)


def _repaired(call: ToolCall | None, text: str) -> Answer:
    """Read the second answer, for which a model was asked because the first cannot be read."""
    if call is None:
        return Answer(is_asked=True, text=text)
    if call.outcome != Outcome.SUCCESS or not isinstance(call.result, dict):
        return Answer(why=call.error or str(call.outcome), is_asked=True)
    analysis = parse_analysis(str(call.result.get("text") or ""))
    if analysis.is_structured:
        return Answer(analysis, is_asked=True)
    return Answer(why=UNREADABLE if text.strip() else EMPTY_ANSWER, is_asked=True)


def _parts(key: str, made: Mapping[str, ToolCall]) -> tuple[list[Mapping[str, Any]], str]:
    """Return the parts of an answer so far: one, unless it was cut off and continued; or why there is none."""
    parts: list[Mapping[str, Any]] = []
    for number in range(1, MOST_PARTS + 1):
        call = made.get(f"{key}:{number}")
        if call is None:
            break
        if call.outcome != Outcome.SUCCESS or not isinstance(call.result, dict):
            return [], call.error or str(call.outcome)
        parts.append(call.result)
    return parts, ""


def _whole(parts: Sequence[Mapping[str, Any]]) -> str:
    """Join the parts. A model that began anew instead of going on has given its whole answer in the last one."""
    texts = [str(part.get("text") or "") for part in parts]
    return texts[-1] if len(texts) > 1 and parse_analysis(texts[-1]).is_structured else "".join(texts)


# --- All sections together ---


def unread_of(section: Section, why: str) -> Iterator[Unread]:
    for passage in section.passages:
        yield Unread(passage.name, passage.start, passage.start + len(passage.text), one_line(why, 500))


def merged(analyses: Sequence[Analysis]) -> Analysis:
    """Return one analysis for all sections. What two of them say in the same words counts once."""
    if len(analyses) == 1:
        return analyses[0]
    dropped: dict[str, int] = {}
    for analysis in analyses:
        for name, number in analysis.dropped.items():
            dropped[name] = dropped.get(name, 0) + number
    found: dict[tuple[str, ...], ParsedFinding] = {}
    for finding in (finding for one in analyses for finding in one.findings):
        found.setdefault(_sameness(finding), finding)
    findings = tuple(found.values())
    if len(findings) > MOST_FINDINGS:
        dropped["findings"] = dropped.get("findings", 0) + len(findings) - MOST_FINDINGS
    return Analysis(
        findings=findings[:MOST_FINDINGS],
        dropped=dropped,
        has_verdict=all(one.has_verdict for one in analyses),
        memories=_together("suggested_memories", (one.memories for one in analyses)),
        precedents=_together("suggested_precedents", (one.precedents for one in analyses)),
        artifacts=_together("artifacts", (one.artifacts for one in analyses)),
        privilege_concerns=_together("privilege_concerns", (one.privilege_concerns for one in analyses)),
        scope_concerns=_together("scope_concerns", (one.scope_concerns for one in analyses)),
        notes=tuple(dict.fromkeys(note for one in analyses for note in one.notes))[:MOST_NOTES],
    )


def _together(name: str, lists: Iterable[tuple[Item, ...]]) -> tuple[Item, ...]:
    """Return the items of all lists, each once, as many as one answer may have."""
    return tuple(dict.fromkeys(item for one in lists for item in one))[: ITEMS[name][1]]


def _sameness(finding: ParsedFinding) -> tuple[str, ...]:
    words = (finding.title, finding.quote or finding.content, finding.document_id)
    return tuple(" ".join(text.casefold().split()) for text in words)
