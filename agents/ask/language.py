"""A short request as words, and patterns that it must match as a whole. Pure.

A word too many (a negation, a condition, a question about it, a second request) means that no pattern matches, and the
request goes to the model. The patterns themselves are in phrases.py.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Final

logger = logging.getLogger(__name__)


MAX_CHARS: Final = 300
MAX_WORDS: Final = 40
_MAX_NAME_WORDS: Final = 200
_MAX_NAME_CHARS: Final = 2_000
_TOKEN: Final = re.compile(
    r"\"([^\"]*)\"|“([^”]*)”|„([^“”\"]*)[“”\"]|[«»]([^«»]*)[«»]|`([^`]*)`"
    r"|(?<!\w)['\u2018\u201a]([^'\u2018\u2019]*)['\u2018\u2019](?!\w)|([^\s\"“”„«»`]+)|([\"“”„«»`])"
)
_QUOTES: Final = 6  # the first groups of _TOKEN
_EDGES: Final = re.compile(r"^([(\[{]*)(.*?)([)\]},.;:!?…]*)$")
_ID: Final = re.compile(r"#?(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{0,63}")
_COUNT: Final = re.compile(r"[1-9]\d{0,2}")
_SEPARATORS: Final = frozenset(",:")
_CONTRACTIONS: Final = {
    "what's": ("what", "is"),
    "whats": ("what", "is"),
    "how's": ("how", "is"),
    "i'd": ("i", "would"),
    "i've": ("i", "have"),
    "we've": ("we", "have"),
}
# Courtesies before and after a request.
_GREETING: Final = re.compile(
    r"(?:[\s,.!…]*(?:(?:hi|hello|hey)(?:\s+there)?|good\s+(?:morning|afternoon|evening)|lqops|ok|okay|please|pls|kindly|just|"
    r"quickly|(?:can|could|would|will)\s+you|i\s+(?:want|need)\s+(?:you\s+)?to|i(?:'d|\s+would)\s+like\s+(?:you\s+)?to|"
    r"go\s+ahead\s+and|let(?:'s|\s+us)|be\s+so\s+kind\s+and)(?=[\s,.!…]|$))*[\s,.!…]*",
    re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    r"(?:[\s,.!?…]+(?:please|pls|thanks(?:\s+a\s+lot)?|many\s+thanks|thank\s+you(?:\s+very\s+much)?|thx|cheers|for\s+me|"
    r"if\s+you\s+(?:can|would|could)|if\s+possible|(?:right\s+)?now|right\s+away|immediately|at\s+once|asap)"
    r"(?=[\s,.!?…]|$))*[\s,.!?…]*$",
    re.IGNORECASE,
)
_POLITE_QUESTION: Final = re.compile(r"\b(?:can|could|would|will)\s+you\b", re.IGNORECASE)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- Requests ---


@dataclass(frozen=True)
class Word:
    """A word in lower case, and its position in the text. A quoted word can only be a name or an id."""

    text: str
    start: int
    end: int
    quoted: bool = False

    @property
    def is_id(self) -> bool:
        return _ID.fullmatch(self.text) is not None

    @property
    def slot(self) -> str:
        """What a pattern sees. Slots are in upper case, which no word is."""
        if self.is_id:
            return "COUNT" if _COUNT.fullmatch(self.text) else "ID"
        return "QUOTED" if self.quoted else self.text


@dataclass(frozen=True)
class Request:
    """One short request without its courtesies. "Can you …?" is not a question."""

    text: str
    words: tuple[Word, ...]
    is_question: bool = False

    @property
    def slots(self) -> str:
        return "".join(f"{word.slot} " for word in self.words)

    @property
    def vocabulary(self) -> frozenset[str]:
        return frozenset(word.text for word in self.words)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(word.text.lstrip("#") for word in self.words if word.is_id)

    def without(self, places: frozenset[int]) -> "Request":
        """Leave out the words at these places."""
        return replace(self, words=tuple(word for place, word in enumerate(self.words) if place not in places))


def read(text: str) -> Request | None:
    """Read a text as one short request; None if it is longer, has several sentences or odd characters."""
    if len(text) > 4 * MAX_CHARS or len(stripped := text.strip()) > MAX_CHARS or "\n" in stripped:
        return None
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"} and char not in "\t\r" for char in stripped):
        return None
    request = _request(text)
    if not 0 < len(request.words) <= MAX_WORDS or any(_is_mark(word) for word in request.words):
        return None
    return request


def read_loosely(text: str) -> Request | None:
    """Read a short text of any form, without its punctuation, to see how it begins."""
    if len(text.strip()) > MAX_CHARS:
        return None
    request = _request(text)
    plain = [word for word in request.words if not _is_mark(word)][:MAX_WORDS]
    return replace(request, words=tuple(plain)) if plain else None


def read_names(text: str) -> Request:
    """Read the first words of a text of any length, to look for names in them."""
    found = [word for word in _tokens(text[:_MAX_NAME_CHARS]) if word.quoted or word.text[:1].isalnum()]
    return Request(text, tuple(found[:_MAX_NAME_WORDS]))


def _request(text: str) -> Request:
    """The words and punctuation between greeting and thanks."""
    plain = text.replace("\u2019", "'")
    greeting = _GREETING.match(plain)
    start = greeting.end() if greeting else 0
    closing = _CLOSING.search(plain, start)
    end = closing.start() if closing else len(plain)
    is_question = "?" in plain[end:] and not _POLITE_QUESTION.search(plain[:start])
    found = [word for word in _tokens(plain, start, end) if word.quoted or word.text not in _SEPARATORS]
    return Request(text, tuple(found), is_question)


def _tokens(text: str, start: int = 0, end: int | None = None) -> list[Word]:
    """Words and punctuation marks, in order."""
    found: list[Word] = []
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        quoted = next((group for group in match.groups()[:_QUOTES] if group is not None), None)
        if quoted is not None:
            found.append(Word(" ".join(quoted.casefold().split()), match.start() + 1, match.end() - 1, quoted=True))
            continue
        edges = _EDGES.match(match[0])
        before, core, after = edges.groups() if edges else ("", match[0], "")
        begin = match.start() + len(before)
        found += [Word(mark, match.start(), match.start() + 1) for mark in before]
        parts = _CONTRACTIONS.get(core.casefold(), (core.casefold(),)) if core else ()
        found += [Word(part, begin, begin + len(core)) for part in parts]
        found += [Word(mark, match.end() - 1, match.end()) for mark in after]
    return found


def _is_mark(word: Word) -> bool:
    return not word.quoted and len(word.text) == 1 and not word.text.isalnum() and word.text not in _SEPARATORS


# --- Patterns ---


@dataclass(frozen=True)
class Pattern:
    """Phrases in one expression. `loose` takes any words for a name, to see whether names are worth looking up."""

    exact: re.Pattern[str]
    loose: re.Pattern[str]
    is_action: bool

    def matches(self, request: Request) -> bool:
        return not (self.is_action and request.is_question) and self.exact.fullmatch(request.slots) is not None

    def may_match(self, request: Request) -> bool:
        return not (self.is_action and request.is_question) and self.loose.fullmatch(request.slots) is not None


def compile_phrases(phrases: Iterable[str], groups: Mapping[str, str], *, is_action: bool) -> Pattern:
    """Compile phrases: `[x]` is optional, `(x|y)` a choice, `*` and `+` repeat it, `{x}` is a group of words.

    Slots: ID is an id or a number, COUNT a number up to 999, NAME the name of something that the person has.
    """
    expression = "|".join(f"(?:{_expression(phrase, groups)})" for phrase in phrases)
    exact = expression.replace("ID ", "(?:ID |COUNT )")
    return Pattern(re.compile(exact), re.compile(exact.replace("NAME ", r"(?:\S+ ){1,12}")), is_action)


def _expression(phrase: str, groups: Mapping[str, str]) -> str:
    while "{" in phrase:
        phrase = re.sub(r"\{(\w+)\}", lambda group: f"({groups[group[1]]})", phrase)
    phrase = re.sub(r"[^\s\[\]()|*+]+", lambda word: f"{re.escape(word[0])}\0", phrase)
    opened = re.sub(r"\s", "", phrase).replace("]*", ")*").replace("[", "(?:").replace("]", ")?")
    return re.sub(r"\((?!\?)", "(?:", opened).replace("\0", " ")


# --- Typing errors in requests that only read ---


MIN_TYPO_CHARS: Final = 4
MAX_TYPOS: Final = 2
_SIMILAR: Final = 0.87
_CORRECTABLE: Final = words(
    "help triggers trigger schedules schedule automations sessions session receipt receipts approvals approval "
    "precedents precedent patterns pattern costs spending expenses budget status health commands agents agent summary "
    "overview pending running failed active waiting queued scheduled paused completed yesterday available"
)
# Words of their own that resemble one of those.
_NOT_TYPOS: Final = words("coasts sending filed heath healthy competed scheduler command pause pauses")


def corrected(request: Request) -> Request | None:
    """The request without its typing errors; None if there are none, or too many."""
    new = tuple(_corrected(word) for word in request.words)
    typos = sum(one is not other for one, other in zip(new, request.words, strict=True))
    return replace(request, words=new) if 0 < typos <= MAX_TYPOS else None


def _corrected(word: Word) -> Word:
    typed = word.text
    if word.quoted or len(typed) < MIN_TYPO_CHARS or typed in _NOT_TYPOS or typed in _CORRECTABLE:
        return word
    alike = [known for known in sorted(_CORRECTABLE) if known[0] == typed[0] and abs(len(known) - len(typed)) <= 1]
    swapped = [known for known in alike if sorted(known) == sorted(typed)]
    meant = swapped or (len(typed) > MIN_TYPO_CHARS and get_close_matches(typed, alike, n=1, cutoff=_SIMILAR))
    return replace(word, text=meant[0]) if meant else word


# --- Recurring times as people say them, and the cron fields that mean the same. Pure ---
#
# Cron has no seconds, and keeps only intervals that divide the next larger unit. What it cannot keep is an error.


_NUMBERS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60, "other": 2,
}  # fmt: skip
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_WEEKDAY: Final = rf"(?:{'|'.join(_WEEKDAYS)})"
_NUMBER: Final = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_UNIT: Final = r"(?:minute|min|hour|hr|day|week|month|morning|evening|night|weekday|workday|weekend)"
_EVERY: Final = re.compile(rf"\b(?:every|each)\s+(?:({_NUMBER})\s+)?({_UNIT})s?\b", re.IGNORECASE)
_EVERY_WEEKDAY: Final = re.compile(
    rf"\b(?:(?:every|each)\s+|on\s+(?={_WEEKDAY}s))"
    rf"({_WEEKDAY}s?(?:\s*(?:,|and|&)\s*(?:every\s+|on\s+)?{_WEEKDAY}s?){{0,6}})\b",
    re.IGNORECASE,
)
_TIMES_A: Final = re.compile(rf"\b(once|twice)\s+(?:a|an|every|each|per)\s+({_UNIT})\b", re.IGNORECASE)
_ON_DAYS: Final = re.compile(r"\bon\s+(weekday|workday|weekend)s\b", re.IGNORECASE)
_ADVERB: Final = re.compile(r"\b(hourly|daily|nightly|weekly|monthly)\b", re.IGNORECASE)
CLOCK: Final = re.compile(
    r"\bat\s+(?:(\d{1,2})(?:[:.](\d{2}))?\s*(am|pm|o'clock)?\b(?!\s*(?:%|percent))|(noon|midnight)\b)", re.IGNORECASE
)
# Without the adverbs, which may also describe a thing: "the daily summary".
RECURRING: Final = (_EVERY, _EVERY_WEEKDAY, _TIMES_A, _ON_DAYS)
_SYNONYMS: Final = {
    "min": "minute", "hr": "hour", "workday": "weekday",
    "hourly": "hour", "daily": "day", "nightly": "night", "weekly": "week", "monthly": "month",
}  # fmt: skip
_DEFAULT_HOUR: Final = 6
_HOURS: Final = {"evening": 18, "night": 0}
_DAYS: Final = {"week": "* * 1", "month": "1 * *", "weekday": "* * 1-5", "weekend": "* * 0,6"}
_PER_UNIT: Final = {"minute": 60, "hour": 24}
_HALF_DAY: Final = 12

TimeOfDay = tuple[int, int] | None


@dataclass(frozen=True)
class When:
    """A recurring time: its cron, the words for it and where they are. `error` says why there is no cron."""

    cron: str
    words: str
    spans: tuple[tuple[int, int], ...]
    error: str = ""

    def places(self, request: Request) -> frozenset[int]:
        """The places of these words in a request."""
        return frozenset(
            place
            for place, word in enumerate(request.words)
            if any(start <= word.start and word.end <= end for start, end in self.spans)
        )


def when_of(text: str) -> When | None:
    """The first recurring time in a text, with its time of day; None if there is none."""
    found = next((match for pattern in (*RECURRING, _ADVERB) if (match := pattern.search(text))), None)
    if found is None:
        return None
    clock = CLOCK.search(text)
    apart = clock is not None and (clock.end() <= found.start() or found.end() <= clock.start())
    spans = (found.span(), clock.span()) if clock and apart else (found.span(),)
    words = " ".join(" ".join(text[start:end].split()) for start, end in sorted(spans))
    try:
        return When(_cron(found, _time_of_day(clock) if clock else None), words, spans)
    except ValueError as error:
        return When("", words, spans, str(error))


def _time_of_day(clock: re.Match[str]) -> TimeOfDay:
    hour, minute, half, word = (part and part.lower() for part in clock.groups())
    if word:
        return (12, 0) if word == "noon" else (0, 0)
    hours, minutes = int(hour), int(minute or 0)
    if half in {"am", "pm"}:
        valid = 1 <= hours <= _HALF_DAY
        hours = hours % _HALF_DAY + (_HALF_DAY if half == "pm" else 0)
    else:
        valid = hours < _PER_UNIT["hour"]
    if not valid or minutes >= _PER_UNIT["minute"]:
        raise ValueError(f"{clock[0]!r} is no time of day")
    return hours, minutes


def _cron(found: re.Match[str], time: TimeOfDay) -> str:
    """The five fields. Raises ValueError for what cron cannot keep."""
    *before, last = (part and part.lower() for part in found.groups())
    if found.re is _EVERY_WEEKDAY:
        return _on(f"* * {','.join(str(number) for number, day in enumerate(_WEEKDAYS) if day in last)}", time)
    unit = _SYNONYMS.get(last, last)
    if before == ["twice"]:
        if unit != "day" or time is not None:
            raise ValueError("only a day is divided in two")
        return "0 6,18 * * *"
    count = _count(before[0]) if found.re is _EVERY else 1
    if unit in _PER_UNIT:
        return _interval(count, unit, time)
    if count != 1:
        raise ValueError(f"every {count} {unit}s cannot be kept: say every {unit}")
    return _on(_DAYS.get(unit, "* * *"), time or (_HOURS.get(unit, _DEFAULT_HOUR), 0))


def _count(text: str | None) -> int:
    if text is None:
        return 1
    return _NUMBERS[text] if text in _NUMBERS else int(text)


def _interval(count: int, unit: str, time: TimeOfDay) -> str:
    whole = _PER_UNIT[unit]
    if time is not None:
        raise ValueError(f"a time of day does not go with every {count} {unit}s")
    if count == whole:
        return "0 * * * *" if unit == "minute" else _on("* * *", None)
    if count < 1 or whole % count:
        valid = ", ".join(str(number) for number in range(1, whole) if whole % number == 0)
        raise ValueError(f"every {count} {unit}s cannot be kept: choose one of {valid}")
    step = "*" if count == 1 else f"*/{count}"
    return f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"


def _on(days: str, time: TimeOfDay) -> str:
    hour, minute = time or (_DEFAULT_HOUR, 0)
    return f"{minute} {hour} {days}"


# --- Which of five strategies fits a request: rules over its words, without a model. Pure ---
#
# The order of the rules is the order of priority: SCHEDULED_TASK, SUB_AGENT, SCRIPT, GOAL, and DIRECT_RESPONSE for
# the rest. The text is never changed. Each pattern looks ahead a bounded way, so that time stays linear in the
# length.


MIN_CHARS: Final = 7
MAX_CLASSIFIED_CHARS: Final = 400
_MAX_PIECES: Final = 20
_PIECE_CHARS: Final = 120
_SPACE: Final = re.compile(r"[^\S\n]+")


class Strategy(StrEnum):
    DIRECT_RESPONSE = "DIRECT_RESPONSE"
    GOAL = "GOAL"
    SCHEDULED_TASK = "SCHEDULED_TASK"
    SUB_AGENT = "SUB_AGENT"
    SCRIPT = "SCRIPT"


def _pattern(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


# --- Schedules ---

_OFTEN: Final = r"(?:hourly|daily|nightly|weekly|monthly)"
_TIME_OF_DAY: Final = r"(?:\d{1,2}(?:[:.]\d{2})?\s?(?:am|pm)?|noon|midnight)"
_FUTURE_DAY: Final = r"(?:tomorrow|tonight|next\s\w{3,10}|on\s\w{3,6}day)"
# Only a time: what is left without it is the task.
_TIMES: Final = (
    *RECURRING,
    # An adverb ("check it daily"), not "the daily summary".
    _pattern(rf"\b{_OFTEN}(?=\s{{0,9}}(?:$|[.,;!?]|(?:at|on|from|by|and)\b))"),
    _pattern(
        r"\bin\s(?:\d{1,3}|an?|two|three|five|ten)\s(?:minute|hour|day|week|month)s?(?=\s{0,9}(?:$|[.,;!?]|from\b))"
    ),
    _pattern(rf"\b{_FUTURE_DAY}\s(?:at|around|before)\s\w|\bat\s{_TIME_OF_DAY}\s{_FUTURE_DAY}"),
)
_SCHEDULES: Final = (
    *_TIMES,
    _pattern(rf"\b(?:a|an)\s(?:new\s)?{_OFTEN}\s\w"),
    _pattern(r"\bremind\s(?:me|us)\b|\bset\s(?:up\s)?an?\s(?:reminder|alarm|timer)\b"),
    _pattern(r"(?:^|\b(?:please|you|and|to)\s)(?:re)?schedule\s(?:an?|the|this|that|it|my|our|me)\b"),
    _pattern(
        r"\bcron(?:\s?job|tab)?\b|\brecurring\s(?:task|run|job|check)\b|\bon\sa\sschedule\b|\bat\sregular\sintervals\b"
    ),
)

# --- Agents, scripts and goals ---

_WORKER: Final = r"(?:sub-?\s?agents?|agents?|assistants?|bots?|workers?)\b"
_NEW: Final = r"(?:an|a\snew|another|a\sseparate|a\sdedicated)\s(?:\w{1,20}\s)?"
_SUB_AGENTS: Final = (
    _pattern(
        r"\b(?:create|make|build|spawn|launch|deploy|hire|add|set\sup|spin\sup|start|want|need|(?:get|give)\sme)\s",
        r"(?:(?!(?:the|my|our|this|that|to|from|by|for|with|of)\b)[\w-]{1,20}\s){0,4}",
        _WORKER,
        r"(?!\s(?:reports?|lists?|licen[cs]e|fees?|agreements?)\b)",
    ),
    _pattern(r"\bdelegate\s(?:this|it|that|the|these|all)\b|\bassign\s(?:(?:this|it|that)\sto\s)?", _NEW, _WORKER),
    _pattern(r"\b(?:have|let|use)\s", _NEW, _WORKER),
)
_CODE: Final = r"(?:script|code|snippet|command|program|function|query|sql|python|shell|bash|skill)\b"
_SCRIPTS: Final = (
    _pattern(r"\b(?:run|execute|evaluate|eval)\s(?:[\w-]{1,20}\s){0,4}", _CODE),
    _pattern(r"\b(?:use|call|invoke|apply)\s(?:[\w-]{1,40}\s){0,3}(?:skill|function|tool)\b"),
    _pattern(r"<skill>"),
    _pattern(r"\b(?:calculate|compute|work\sout|add\sup|multiply|divide|convert)\b[^!?\n]{0,120}\d"),
    _pattern(r"\b(?:fetch|download|scrape|crawl|open|load|read|get)\b[^!?\n]{0,60}\bhttps?://"),
)
_WORK: Final = (
    r"(?:review|analy[sz]e|audit|investigate|research|compare|prepare|compile|draft|extract|collect|gather|plan|"
    r"organi[sz]e|monitor|evaluate|assess|verify|check|find|identify|negotiate|migrate|clean\sup|sort\sout|"
    r"figure\sout|make\ssure|ensure|go\sthrough|work\sthrough|put\stogether|set\sup)\b"
)
_GOALS: Final = (
    _pattern(r"^\W{0,3}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey)\W{1,3}){0,3}", _WORK),
    _pattern(r"\b(?:please|you|you\sto|i\swant\sto|we\sneed\sto|need\sto|help\sme(?:\sto)?|can\syou)\s", _WORK),
    _pattern(r"\b(?:and\sthen|after\sthat|afterwards|step\sby\sstep|until\s(?:it|all|every)|one\sby\sone)\b"),
    _pattern(r"\bfirst\b[^?\n]{1,200}\bthen\b"),
    _pattern(r"^\W{0,3}(?:goal|objective|mission|task)\s?:"),
    _pattern(r"(?:^|\n)\s{0,4}1[.)]\s[^\n]{1,300}\n\s{0,4}2[.)]\s"),
)

# --- Questions and refusals, which ask for nothing to be done. "Can you …?" and "why don't you …?" do ask ---

_QUESTION: Final = _pattern(
    r"^\W{0,3}(?:(?:so|and|but|hi|hello|hey|ok|okay|please)\W{1,3}){0,2}",
    r"(?:why(?!\sdon'?t\syou)|what|what's|whats|who|whose|whom|when|where|which|how|is|are|am|was|were|do(?!\sthis)|",
    r"does|did|has|have(?!\s(?:an?|another)\b)|had|should|shall|may|might|(?:can|could|would)\s(?:i|we|it|they|an?|the)|",
    r"will\s(?:it|they|the)|explain|describe|tell\sme\s(?:about|why|how|what|when|who)|define|translate|",
    r"summari[sz]e|rephrase|proofread)\b(?!:)",
)
_REFUSAL: Final = _pattern(
    r"\b(?:don'?t|do\snot|never|no\sneed\sto|stop|without|instead\sof|forget\sabout|not\sto)\s(?:\w{1,20}\s){0,2}",
    r"(?:schedul|remind|creat|mak|run|execut|check|send|review|start|us(?:e|ing)|ask|delegat|spawn|set|monitor|build|",
    r"fetch|analy[sz])\w{0,12}\b",
)

# --- Tasks: "Every morning check the inbox" is one, "I drink coffee every day" is not ---

_VERBS: Final = (
    "add|alert|analy[sz]e|answer|apply|archive|ask|assess|audit|back|begin|book|bring|build|calculate|call|cancel|check|"
    "clean|clear|close|collect|compare|compile|compute|confirm|convert|copy|count|create|delete|deliver|do|download|draft|"
    "email|ensure|evaluate|execute|export|extract|fetch|file|fill|find|flag|follow|forward|gather|generate|get|give|go|"
    "hand|identify|import|inform|inspect|investigate|keep|launch|let|list|listen|load|log|look|mail|make|measure|message|"
    "monitor|move|notify|open|organi[sz]e|ping|plan|poll|post|prepare|print|process|produce|publish|pull|push|put|query|"
    "rank|read|rebuild|recheck|reconcile|record|refresh|remind|remove|repeat|reply|report|request|rerun|research|reset|"
    "restart|retry|review|run|save|scan|schedule|score|scrape|search|see|send|set|share|show|sort|start|store|submit|"
    "summari[sz]e|sweep|sync|take|tell|test|text|track|translate|trigger|try|update|upload|use|validate|verify|wake|"
    "warn|watch|write"
)
_REQUEST: Final = _pattern(
    r"\bplease\b|\b(?:can|could|would|will)\syou\b|\bwhy\sdon'?t\syou\b|\b(?:i|we)(?:\swould|'d)\slike\b|",
    r"\b(?:i|we)\s(?:want|need)\b|\b(?:should|must|has\sto|have\sto|needs?\sto)\sbe\b|\byou\s(?:should|must|have\sto)\b|",
    rf"\bmake\ssure\b|\blet\sme\sknow\b|\bremind\s(?:me|us)\b|\b(?:{_VERBS})\s(?:me|us)\b|\bon\sa\sschedule\b|\bcron",
)
# A sentence with a subject is a statement.
_STATEMENT: Final = _pattern(
    r"^\W{0,4}(?:(?:and|also|ok|okay|hi|hello|hey|so|well|but)\W{1,3}){0,3}",
    r"(?:i|we|he|she|they|it|you|there|this|that|these|those|the|my|our|his|her|its|their|some|most|many|people|",
    r"somebody|someone|everybody|everyone|nobody|if|when|because|since|while|although)\b",
)
# A known verb, or any word that can be one with its object behind it.
_IMPERATIVE: Final = _pattern(
    r"(?:^|[.!?;:,\n])\W{0,4}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey|just|so)\W{1,3}){0,4}",
    rf"(?:(?:{_VERBS})\b|",
    r"(?!\w{0,20}(?:s|[^e]ed|ing)\b)\w{3,20}\s(?:the|my|our|all|these|those|them|me|us|any)\b)",
)

# --- Parts of a long text that are read beside its first sentence ---

_SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n")
_URL: Final = _pattern(r"\bhttps?://[^\s<>\"']{1,500}")
_ENTITY: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}"  # an address
    r"|\b[\w-]{1,60}\.(?:pdf|docx?|txt|md|csv|xlsx?|html?|py|sh)\b"  # a file
    r"|\b[A-Z][\w&-]{1,40}(?: [A-Z][\w&-]{1,40}){1,4}\b"  # a name of several words
)

_RULES: Final = (
    (Strategy.SCHEDULED_TASK, _SCHEDULES),
    (Strategy.SUB_AGENT, _SUB_AGENTS),
    (Strategy.SCRIPT, _SCRIPTS),
    (Strategy.GOAL, _GOALS),
)


def classify(text: str) -> Strategy:
    """Choose the strategy for a request. Never raises: after an error it is DIRECT_RESPONSE."""
    try:
        return _classify(text)
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE


def _classify(text: str) -> Strategy:
    plain = _SPACE.sub(" ", text).strip().replace("\u2019", "'")
    if len(plain) < MIN_CHARS:
        return Strategy.DIRECT_RESPONSE
    excerpt = shortened(plain)
    if _QUESTION.search(excerpt) or _REFUSAL.search(excerpt):
        return Strategy.DIRECT_RESPONSE
    for strategy, patterns in _RULES:
        if any(pattern.search(excerpt) for pattern in patterns) and (
            strategy != Strategy.SCHEDULED_TASK or _has_task(excerpt)
        ):
            return strategy
    return Strategy.DIRECT_RESPONSE


def _has_task(text: str) -> bool:
    """Whether a text with a time also says what to do then."""
    for pattern in (*_TIMES, CLOCK):
        text = pattern.sub(" ", text)
    task = _SPACE.sub(" ", text).strip(" ,.;:")
    if _REQUEST.search(task):
        return True
    return not _STATEMENT.match(task) and _IMPERATIVE.search(task) is not None


def shortened(text: str) -> str:
    """Reduce a long text to its first sentence and the times, entities and addresses of the rest."""
    if len(text) <= MAX_CLASSIFIED_CHARS:
        return text
    end = _SENTENCE_END.search(text)
    first = text[: min(end.end() if end else MAX_CLASSIFIED_CHARS, MAX_CLASSIFIED_CHARS)]
    rest = text[len(first) :]
    kept = [piece for pattern in (*_SCHEDULES, _ENTITY, _URL) for piece in _pieces(pattern, rest)]
    return " ".join([first, *kept])


def _pieces(pattern: re.Pattern[str], text: str) -> list[str]:
    return [match[0][:_PIECE_CHARS] for match in islice(pattern.finditer(text), _MAX_PIECES)]


# --- The phrases of the thirteen fast paths: one table. Pure ---
#
# `[x]` is optional, `(x|y)` a choice, `*` and `+` repeat it, `{x}` is a group of words; slots are in upper case: see
# `compile_phrases`. The key is a path, with the action after a colon where a path has several.


# --- Groups of words ---

GROUPS: Final = {
    "show": (
        "(show|list|display|give|get|view|see|print|fetch|retrieve|tell|pull up|bring up|let me (see|know)|"
        "(can|could|may) i (see|have)|i (want|need|would like)) [me|us]"
    ),
    "the": "the|my|our|all|of|any|current|currently",
    "period": "today|today's|yesterday|yesterday's|(this|last|previous) (week|week's|month|month's)",
    "exist": "{have_any}|exist|exists",
    "have_any": "are there|is there|do i have|do we have|have i got|have we got",
    "ongoing": "running|active|in progress|under way|queued|sleeping|failed|failing|fail",
    "run": "session|sessions|run|runs|job|jobs",
    # The installation
    "system": "system|service|services|installation|platform|server|lqops|everything|things|you",
    "well": "up|running|ok|okay|fine|healthy|alive|working|online|operational|well|alright|down|broken",
    "trouble": "problem|problems|issue|issues|error|errors|trouble",
    "automated": "scheduled|automated",
    # Halts and decisions
    "halt": "halt|stop|cancel|abort|kill|terminate|end|shut down|interrupt|call off",
    "approve": "approve|accept|allow|authorise|authorize|grant|permit",
    "deny": "reject|deny|refuse|decline|disapprove|veto",
    "ticket": "[the|this|that] [pending] [approval|request|ticket|call] [number|id] ID [[with] digest] [ID]",
    "tickets": "it|all|everything|[the|this|that|my|all]* [pending] (approval|request|ticket|call|approvals|requests)",
    # Approvals and questions that wait
    "anything": "[is] [there] (anything|something)|what|who|which (calls|requests)",
    "me": "me|[my|a] (approval|decision|sign off)",
    "asker": "anybody|anyone|somebody|someone|agent|agents",
    "to_be": "(has|have|needs|need|is|are) to be|must be",
    # Costs
    "cost": "cost|costs|spend|spending|spendings|expense|expenses|bill|budget|budgets",
    "costs": "{cost} [{summary}]",
    "summary": "summary|report|overview|breakdown|total",
    "spent": "spent|spend|spending|cost|used|burned",
    "spender": "i|we|you|it|[all] this|everything|{the}* agents|{period}|{agent}",
    "so_far": "[us|me|so far|already|in total]* [[for|in|of] {period}] [so far]",
    # Things with a name
    "agent": "[the|my|this] [agent] [called|named] NAME [agent]",
    "agents": "{agent}|[the|my] (agent|agents)",
    "kind": "trigger|schedule|watch|playbook|skill|collection|folder|document|file",
    "named": "[the|my|a]* [{kind}] NAME [{kind}]",
    "on": "on|over|against|for|with|using|by|of|in|through|to",
    "start": "run|start|launch|execute|fire|begin|kick off|rerun|re-run|perform",
    "check": "check|review|audit|analyse|analyze|test|apply|use|scan|inspect|examine",
}


def _list(plural: str, which: str, singular: str = "") -> str:
    """Ways to ask for a list: show my …, which … are …, how many … are there, do I have any …"""
    nouns = f"({plural}|{singular})" if singular else f"({plural})"
    which = f"({which})"
    return f"""
        {{show}} {{the}}* [[a|an] (list|overview) of] {{the}}* {which}* {nouns} [that|which] [are] [of] [the] {which}*
        [[a|an] (list|overview) of] {{the}}* {which}* ({plural}) [of] [the] {which}*
        [{{show}}] (what|which) {{the}}* {which}* {nouns} [are|is|have|has|did] [still|been|currently]* {which}+
        [{{show}}] (what|which|how many) {{the}}* {which}* {nouns} {{exist}}
        what (are|is) (the|my|our) {which}* {nouns}
        how many {{the}}* {which}* {nouns} [are|is|have|has|did] [still|been|currently]* {which}*
        {{have_any}} {{the}}* [still] {which}* {nouns} {which}*
        (are|is|have|has|did) {{the}}* {nouns} [still|been|currently]* {which}+
    """


_STATUSES: Final = (
    "running|active|open|live|ongoing|unfinished|in progress|under way|queued|waiting|sleeping|completed|finished|done|"
    "halted|stopped|failed|fail|failing|crashed"
)

# --- The table ---

LOOKUPS: Final = {
    "help": """
        [i (need|want)] [some] help [me] [menu]
        [{show}] what (can you|you can|are you able to) (do|help [me] with)
        what can i (do|say|ask [you|for])
        how can you help [me]
        how (does this work|do i use this)
        what (are my options|do you understand)
        [{show}] [the|your|all]* [available|possible] commands
        (what|which) commands ({exist}|can i use|are available|do you (know|understand))
    """,
    "service_status": """
        [{show}|what is|check] {the}* [overall|general] [{system}] (status|health|healthcheck|uptime) [check|report]
        [{show}|what is|check] {the}* (status|health|state|condition) of {the}* {system}
        what (state|condition) is {the}* {system} in
        (is|are) {the}* {system} [all] [still] {well}
        how (is|are|healthy is) {the}* {system} [doing|going|running]
        (does|do) {the}* {system} [all] [still] (work|run)
        [(is|are) there] [any] {trouble} (with|in) {the}* {system}
        is (anything|something) (wrong|broken) with {the}* {system}
    """,
    "service_status:agents": f"""
        {_list("agents", "running|active|enabled|disabled|paused|on|off|working", "agent")}
        what are {{the}}* agents (doing|up to)
    """,
    "list_triggers": f"""
        {_list("triggers|schedules|watches|automations|cronjobs", "active|enabled|disabled|paused|live|scheduled",
               "trigger|schedule")}
        [is] (what|which|anything|something) [is|are|currently]* {{automated}} [to run]
        {{show}} {{the}}* (what|everything|runs|jobs|tasks) [that|which] [is|are] {{automated}}
        [{{show}}] {{the}}* {{automated}} (runs|jobs|tasks)
        (what|which) [things] (runs|run|is run|are run) automatically
    """,
    "list_sessions": f"""
        {_list("sessions|runs|jobs|failures",
               _STATUSES + "|recent|recently|last|latest|newest|{period}|COUNT", "session|job")}
        [{{show}}] [is|has|did] (what|which|anything|something) [is|are|has|did|been|still]* {{ongoing}} [{{period}}]
        (what|which) [has|have] (ran|run|been run) {{period}}
    """,
    "show_receipt": """
        [{show}|open] [a] {the}* [last|latest|newest|[most] recent] (receipt|receipts)
        [{show}|open|what is] [a] {the}* (receipt|receipts) [of|for|from] {the}* [last|latest] [{run}] [number] ID [ID]*
        [{show}|open] {the}* (receipt|receipts) (of|for|from) {the}* (last|latest|newest) {run}
        ID receipt
        what did {the}* [{run}] ID (do|cost)
    """,
    "list_approvals": f"""
        {_list("approvals|questions", "pending|open|waiting|outstanding|undecided|unresolved|unanswered",
               "approval|question")}
        [{{show}}|what is in] {{the}}* approval queue
        [{{show}}|what are|{{have_any}}] {{the}}* (pending|open|outstanding) (requests|decisions)
        [{{show}}] {{anything}} [is|are] [still] (waiting|waits|pending) [(for|on) {{me}}]
        [{{show}}] {{anything}} [is|are] (need|needs|requires|awaits|awaiting|waiting for) {{me}}
        [{{show}}] {{anything}} {{to_be}} (approved|decided|signed off)
        {{anything}} [is there] [i (need|have)] to (approve|decide|sign off)
        what (do i (need|have) to|must i) (approve|decide|sign off)
        do i (need|have) to (approve|decide|sign off) (anything|something)
        (do|does|did|has|is) {{the}}* {{asker}} (ask|asks|asked|asking) (me|us) [anything|something|a question]
        (what|who) (asks|is asking) (me|us) [something]
    """,
    "list_precedents": f"""
        {_list("precedents|patterns",
               "recurring|repeated|recent|latest|last|new|known|observed|seen|recorded|found|so far",
               "precedent|pattern")}
        what (recurs|(is|keeps) recurring)
    """,
    "cost_summary": """
        [{show}|what (is|are) (the|my|our)] [a] {the}* [{period}|daily|weekly|monthly] [total] {costs} {so_far}
        [{show}] [a|an] {the}* {summary} of {the}* {cost} {so_far}
        (what|how much) [money] (have|has|did|are) {spender} {spent} {so_far}
        how much [money] (was|is|has been) spent {so_far}
        {show} what {spender} spent {so_far}
        how expensive (was|is|has) {period} [been]
        how much (money|budget) (is left|remains|do (i|we) have [left]) {so_far}
        [{show}|what is] {the}* [total] ({cost}|spent) (of|for|by) {agent} {so_far}
    """,
    "cost_summary:agents": """
        [{show}] {the}* ({cost}|spent) (per|by|[for] each) (agent|agents) {so_far}
        {show} {the}* {period} {cost} (per|by) agent
    """,
}  # fmt: skip
ACTIONS: Final = {
    # In a chat: the message that is being answered.
    "halt_session:this": "{halt} [(it|this|that|answering|working) [session|run|job]]",
    "halt_session": """
        {halt} [the|this|that|my|all|every]* [running|active|current|last|latest]* {run} [with] [id|number] [ID]*
        {halt} ID [ID]*
        [{run}] ID {halt}
        shut [the|my] [{run}] ID down
        {halt} (everything|all) [running]
    """,
    # Words release nothing: the answer says how.
    "halt_session:release": """
        (release|unhalt) [it|everything|all|[all] [the] work] [again]
        (lift|undo|end|cancel|remove|release) [the|this] halt [of (everything|all [work])]
    """,
    "decide_approval:approve": """
        ([i] {approve}|say yes to) {ticket}
        ID [ID] {approve}
        {approve} [{tickets}]
    """,
    "decide_approval:deny": """
        ([i] {deny}|say no to) {ticket}
        ID [ID] {deny}
        {deny} [{tickets}]
    """,
    "switch_agent:pause": """
        (pause|suspend|disable|deactivate|freeze) {agents}
        (switch|turn) (off {agents}|{agents} off)
        (put|place) {agents} on (hold|pause)
        take {agents} offline
    """,
    "switch_agent:resume": """
        (resume|unpause|enable|activate|reactivate|re-activate|re-enable|reenable|unfreeze|unsuspend) {agents} [again]
        (switch|turn) (on {agents}|{agents} [back] on)
        bring {agents} [back] online
    """,
    "switch_agent:stop": "(stop|halt) {agents}",
    "switch_agent:start": "(start|launch) {agents} [again]",
    "run_now": """
        {start} {named} [{on} {named}] [again|once]
        {start} [the|my|a] (trigger|playbook|skill)
        {check} {named} {on} {named}
        trigger [the|my] NAME
    """,
    "create_schedule": """
        ({start}|{check}|schedule|repeat) {named} [{on} {named}]
        (create|add|make|set up) a [new] (schedule|run|check|review) [{on}|to run|that runs] [{named} [{on} {named}]]
        (let|have) {named} {start} [{on} {named}]
    """,
}  # fmt: skip


def _compiled(phrases: str, *, is_action: bool) -> Pattern:
    return compile_phrases([line for line in phrases.splitlines() if line.strip()], GROUPS, is_action=is_action)


PATTERNS: Final = {
    **{key: _compiled(phrases, is_action=False) for key, phrases in LOOKUPS.items()},
    **{key: _compiled(phrases, is_action=True) for key, phrases in ACTIONS.items()},
}
