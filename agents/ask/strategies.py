"""Recurring times in words, and which of five strategies fits a request. Rules over words, without a model. Pure."""

import logging
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

logger = logging.getLogger(__name__)


# --- Recurring times, and the cron fields that mean the same ---
#
# Cron has no seconds, and keeps only intervals that divide the next larger unit. What it cannot keep is an error.


_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_WEEKDAY: Final = rf"(?:{'|'.join(_WEEKDAYS)})"
_ADVERBS: Final = {"hourly": "hour", "daily": "day", "nightly": "night", "weekly": "week", "monthly": "month"}
RECURRING: Final = re.compile(
    r"\b(?:(?:every|each|once\s+an?)\s+(?:(?P<count>\d{1,4})\s+)?"
    r"(?P<unit>minute|hour|day|morning|evening|night|weekday|week|month)s?|on\s+(?P<weekdays>weekdays)"
    rf"|(?:(?:every|each)\s+|on\s+(?={_WEEKDAY}s))(?P<days>{_WEEKDAY}s?(?:(?:,|\s+and)\s+{_WEEKDAY}s?){{0,6}}))\b",
    re.IGNORECASE,
)
# May also describe a thing: "the daily summary".
_ADVERB: Final = re.compile(rf"\b(?P<adverb>{'|'.join(_ADVERBS)})\b", re.IGNORECASE)
CLOCK: Final = re.compile(
    r"\bat\s+(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s*(?P<half>am|pm)?|(?P<word>noon|midnight))\b",
    re.IGNORECASE,
)
_CRONS: Final = {
    "minute": "*/{count} * * * *",
    "hour": "0 */{count} * * *",
    "weekday": "{minute} {hour} * * 1-5",
    "week": "{minute} {hour} * * 1",
    "month": "{minute} {hour} 1 * *",
}
_DAILY: Final = "{minute} {hour} * * *"
_DEFAULT_HOUR: Final = 6
_HOURS: Final = {"evening": 18, "night": 0, "noon": 12, "midnight": 0}
_PER_UNIT: Final = {"minute": 60, "hour": 24}
_HALF_DAY: Final = 12


@dataclass(frozen=True)
class When:
    """A recurring time: its cron, the words for it, and the text without them. `error` says why there is no cron."""

    cron: str
    words: str
    rest: str
    error: str = ""


def when_of(text: str) -> When | None:
    """The first recurring time in a text, with its time of day; None if there is none."""
    found = RECURRING.search(text) or _ADVERB.search(text)
    if found is None:
        return None
    clock = CLOCK.search(text)
    parts = sorted([found, *([clock] if clock else [])], key=lambda part: part.start())
    words = " ".join(" ".join(part[0].split()) for part in parts)
    rest = text
    for part in reversed(parts):
        rest = f"{rest[: part.start()]} {rest[part.end() :]}"
    try:
        return When(_cron(found.groupdict(), clock), words, rest)
    except ValueError as error:
        return When("", words, rest, str(error))


def _cron(parts: dict[str, str | None], clock: re.Match[str] | None) -> str:
    """The five fields. Raises ValueError for what cron cannot keep."""
    unit = (parts.get("unit") or _ADVERBS.get((parts.get("adverb") or "").lower(), "weekday")).lower()
    count = int(parts.get("count") or 1)
    whole = _PER_UNIT.get(unit)
    valid = [number for number in range(1, whole) if whole % number == 0] if whole else [1]
    if count not in valid:
        raise ValueError(f"every {count} {unit}s cannot be kept: choose one of {', '.join(map(str, valid))}")
    if clock and whole:
        raise ValueError(f"a time of day does not go with every {count} {unit}s")
    hour, minute = _time_of_day(clock) if clock else (_HOURS.get(unit, _DEFAULT_HOUR), 0)
    if named := (parts.get("days") or "").lower():
        return f"{minute} {hour} * * {','.join(str(number) for number, day in enumerate(_WEEKDAYS) if day in named)}"
    return _CRONS.get(unit, _DAILY).format(count=count, hour=hour, minute=minute).replace("*/1 ", "* ")


def _time_of_day(clock: re.Match[str]) -> tuple[int, int]:
    if clock["word"]:
        return _HOURS[clock["word"].lower()], 0
    hour, minute, half = int(clock["hour"]), int(clock["minute"] or 0), (clock["half"] or "").lower()
    valid = 1 <= hour <= _HALF_DAY if half else hour < _PER_UNIT["hour"]
    if not valid or minute >= _PER_UNIT["minute"]:
        raise ValueError(f"{clock[0]!r} is no time of day")
    if half:
        hour = hour % _HALF_DAY + (_HALF_DAY if half == "pm" else 0)
    return hour, minute


# --- Which of five strategies fits a request: rules over its words, without a model ---
#
# The order of the rules is the order of priority, and DIRECT_RESPONSE is the rest. The text is never changed. A phrase
# may stand anywhere: `<start>` is the beginning without courtesies, `~` any word, `...` up to eight words.


MIN_CHARS: Final = 7
MAX_CLASSIFIED_CHARS: Final = 400


class Strategy(StrEnum):
    DIRECT_RESPONSE = "DIRECT_RESPONSE"
    GOAL = "GOAL"
    SCHEDULED_TASK = "SCHEDULED_TASK"
    SUB_AGENT = "SUB_AGENT"
    SCRIPT = "SCRIPT"


_BEFORE: Final = re.compile(r"(?:(?:hi|hello|hey|ok|please|(?:can|could|would|will) you)\b[\s,!]*)*", re.IGNORECASE)


def _courtesy_end(text: str) -> int:
    before = _BEFORE.match(text)
    return before.end() if before else 0


def _expression(phrase: str) -> str:
    """The phrase for words that are each followed by one space: `[x]` is optional, `(x|y)` a choice."""
    words = re.sub(r"[^\s\[\]()|]+", lambda word: f"{re.escape(word[0])}\0", phrase)
    return re.sub(r"\s", "", words).replace("(", "(?:").replace("[", "(?:").replace("]", ")?").replace("\0", " ")


def _anywhere(phrases: str) -> re.Pattern[str]:
    found = "|".join(_expression(phrase) for phrase in phrases.strip().splitlines())
    return re.compile(rf"(?:^|(?<= ))(?:{found})".replace(r"\~", r"\S+").replace(r"\.\.\. ", r"(?:\S+ ){0,8}"))


_MAKE: Final = "(create|make|build|spawn|launch|hire|add|set up|want|need|give|have|let|use)"
_WORKER: Final = "(agent|agents|sub-agent|assistant|assistants|bot|bots|worker|workers)"
_CODE: Final = "(script|code|command|program|function|query|sql|python|skill)"
_WORK: Final = (
    "(review|analyse|analyze|audit|investigate|research|compare|prepare|compile|draft|extract|collect|gather|plan|"
    "organise|organize|monitor|evaluate|assess|verify|check|find|identify|make sure|go through|put together|set up)"
)
_RULES: Final = {
    Strategy.SCHEDULED_TASK: _anywhere("""
        <time>
        remind (me|us)
        schedule (a|an|the|this|that|it|my|our)
        a [new] (recurring|schedule)
        on a schedule
    """),
    Strategy.SUB_AGENT: _anywhere(f"""
        {_MAKE} [me] (a|an|another|one|two|three) [~] [~] {_WORKER}
        delegate (this|it|that|the)
    """),
    Strategy.SCRIPT: _anywhere(f"""
        (run|execute|evaluate|use|call) [~] [~] [~] [~] {_CODE}
        (calculate|compute|convert) ... <number>
        (fetch|download|open|read|get) ... <url>
    """),
    Strategy.GOAL: _anywhere(f"""
        <start> ({_WORK}|goal)
        (you|you to|want to|need to|help me) {_WORK}
        (and then|after that|step by step|one by one)
        first ... then
    """),
}
# Questions and refusals ask for nothing to be done. "Can you …?" does.
_ASKS_NOTHING: Final = _anywhere("""
    <start> [so|and|but] (why|what|what's|who|whose|when|where|which|how|is|are|am|was|were|does|did|has|had|should|may)
    <start> [so|and|but] (do|have|can|could|would|will) (i|we|you|it|they|the)
    <start> (explain|describe|define|translate|summarise|summarize|tell me (about|why|how|what|when|who))
    (don't|do not|never|no need to)
    <start> stop
""")
# A sentence with a subject is a statement, and no task, unless it asks for something.
_STATEMENT: Final = _anywhere("""
    <start> (i|we|he|she|they|it|you|there|this|that|these|those|the|my|our|his|her|their|is|if|when|because)
""")
_ASKS: Final = _anywhere("""
    please
    (i|we) (want|need|would like)
    (i'd|we'd) like
    (should|must|has to|have to) be
    you (should|must|have to)
    (remind|tell) (me|us)
""")
# An adverb is a time in "check it daily" and "a daily check", but not in "the daily summary".
_OFTEN: Final = rf"(?:{'|'.join(_ADVERBS)})"
_TIME: Final = re.compile(
    rf"{RECURRING.pattern}|\b{_OFTEN}(?=\s?(?:$|[.,;!?]|at\b|on\b|and\b))|\ban?\s(?:new\s)?{_OFTEN}\b", re.IGNORECASE
)
# Parts of a long text that are read beside its first sentence and its times.
_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n")
_ENTITY: Final = re.compile(
    r"\bhttps?://[^\s<>\"']{1,500}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}"  # an address
    r"|\b[\w-]{1,60}\.(?:pdf|docx?|xlsx?|pptx?|odt|rtf|eml|msg|txt|md|csv|html?|py|sh)\b"  # a file
    r"|\b[A-Z][\w&-]{1,40}(?: [A-Z][\w&-]{1,40}){1,4}\b"  # a name of several words
)


def classify(text: str) -> Strategy:
    """Choose the strategy for a request. Never raises: after an error it is DIRECT_RESPONSE."""
    try:
        return _classify(text)
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE


def _classify(text: str) -> Strategy:
    plain = text.strip().replace("\u2019", "'")
    excerpt = shortened(plain)
    if len(plain) < MIN_CHARS or _ASKS_NOTHING.search(_marked(excerpt)):
        return Strategy.DIRECT_RESPONSE
    words = _marked(excerpt) + ("<time> " if _TIME.search(excerpt) else "")
    task = _marked(CLOCK.sub(" ", _TIME.sub(" ", excerpt)))
    is_statement = _STATEMENT.search(task) and not _ASKS.search(task)
    for strategy, phrases in _RULES.items():
        if phrases.search(words) and not (strategy == Strategy.SCHEDULED_TASK and is_statement):
            return strategy
    return Strategy.DIRECT_RESPONSE


def _marked(text: str) -> str:
    """The words of a text, in lower case, with slots for its start, numbers and addresses."""
    plain = text.strip(" ,.;:")
    start = _courtesy_end(plain)
    words = [*plain[:start].split(), "<start>", *plain[start:].split()]
    return "".join(f"{_slot(word)} " for word in words)


def _slot(word: str) -> str:
    plain = word.lower().strip(".,;:!?()\"'")
    if plain.startswith(("http://", "https://")):
        return "<url>"
    return "<number>" if any(char.isdigit() for char in plain) else plain


def shortened(text: str) -> str:
    """Reduce a long text to its first sentence and the times, entities and addresses of the rest."""
    if len(text) <= MAX_CLASSIFIED_CHARS:
        return text
    end = _SENTENCE_END.search(text)
    first = text[: min(end.end() if end else MAX_CLASSIFIED_CHARS, MAX_CLASSIFIED_CHARS)]
    rest = text[len(first) :]
    return " ".join([first, *(match[0] for pattern in (_TIME, _ENTITY) for match in pattern.finditer(rest))])
