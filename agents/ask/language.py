"""Requests in words: the phrases of the fast paths, recurring times, and the strategy for all other texts. Pure."""

import logging
import re
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

logger = logging.getLogger(__name__)


# --- The phrases of the thirteen fast paths ---
#
# A request must match one of them as a whole: with a word too many (a negation, a condition, a second request) it is
# none. `[x]` is optional, `(x|y)` a choice, `<id>` an id, `<name>` the name of something that the person has. The key
# is a path, with the action after a colon where a path has several.


_SHOW: Final = "[show|list|give|do i have|are there] [me] [the|my|all|any]"
_HAVE: Final = "(do i have|do we have|are there|exist)"
_PERIOD: Final = "(today|yesterday|(this|last) (week|month))"
_STATUS: Final = "(running|active|queued|waiting|sleeping|completed|halted|failed|partial)"
_TRIGGERS: Final = "(triggers|schedules|watches)"
_RUNS: Final = "(runs|sessions)"
_COST: Final = "(cost|costs|spending)"
_NAMED: Final = "[the|my] [trigger|schedule|playbook|skill|collection|document] <name>"
_HALT: Final = "(halt|stop|cancel|abort|kill)"
_TICKET: Final = "[[the] (approval|request|call)] <id> [[with] digest] [<id>]"
_TICKETS: Final = "[it|all|everything|the request|[the|all] [pending] (approval|approvals)]"

LOOKUPS: Final = {
    "help": """
        [show] help [me]
        what can (you do|i ask|i say)
        [show|list] [me] [the] [available] commands
    """,
    "service_status": """
        [show|check|what is] [me] [the] [system|service] (status|health) [check]
        (is|are) (everything|you|[the] (system|service)) (ok|okay|fine|up|down|running|healthy)
        how is (everything|[the] (system|service)) [doing|going]
    """,
    "service_status:agents": f"""
        {_SHOW} [active|running|paused] agents
        (what|which|how many) agents ({_HAVE}|are (on|off|active|running|paused))
        what are (the|my) agents doing
    """,
    "list_triggers": f"""
        {_SHOW} [active|enabled|disabled|paused] {_TRIGGERS}
        (what|which|how many) {_TRIGGERS} ({_HAVE}|are (active|enabled|disabled|paused))
        what is scheduled
    """,
    "list_sessions": f"""
        {_SHOW} [last|latest|recent] [{_STATUS}] {_RUNS} [[of|from] {_PERIOD}]
        (what|which|how many) {_RUNS} ({_HAVE}|are {_STATUS}|failed) [{_PERIOD}]
        (what is|is anything) (running|active|queued)
        what (ran|failed|happened) [{_PERIOD}|last night|overnight]
        did anything fail [{_PERIOD}|last night|overnight]
    """,
    "show_receipt": """
        [show|open|print|give] [me] [the] [last|latest] (receipt|receipts)
        [show|open|print|give] [me] [the] receipt [of|for] [the] [run|session] <id>
        [show|open|print|give] [me] [the] receipt (of|for) the (last|latest) (run|session)
    """,
    "list_approvals": f"""
        {_SHOW} [pending|open] (approvals|questions)
        (what|which|how many) (approvals|questions) ({_HAVE}|are (pending|open))
        (what|who) (needs|waits for|is waiting for|waits on) (me|my approval)
        (is anything|what is) (pending|waiting for (me|my approval))
        (what|is there anything) [is there] [do i have] to approve
    """,
    "list_precedents": f"""
        {_SHOW} [recurring|recent] (precedents|patterns)
        (what|which|how many) [recurring] (precedents|patterns) {_HAVE}
    """,
    "cost_summary": f"""
        [show|give|what (is|are)] [me] [the|my|our] [total] {_COST} [summary] [{_PERIOD}]
        (what|how much) (have|did|has) (i|we|[agent] <name>) (spent|spend|cost) [{_PERIOD}]
        (what|how much) did {_PERIOD} cost
        [show] [me] [the] {_COST} (of|for) [agent] <name> [{_PERIOD}]
    """,
    "cost_summary:agents": f"[show] [me] [the] {_COST} (per|by) agent [{_PERIOD}]",
}  # fmt: skip
ACTIONS: Final = {
    # In a chat: the message that is being answered.
    "halt_session:this": f"{_HALT} [it|this|that] [run]",
    "halt_session": f"""
        {_HALT} [the|this|my|all] (run|session|runs|sessions) [<id>]
        {_HALT} <id>
        {_HALT} (everything|all)
    """,
    # Words release nothing: the answer says how.
    "halt_session:release": """
        release [everything|all [work]]
        (lift|release|end) the halt
    """,
    "decide_approval:approve": f"""
        [i] approve {_TICKET}
        approve {_TICKETS}
    """,
    "decide_approval:deny": f"""
        [i] (deny|reject) {_TICKET}
        (deny|reject) {_TICKETS}
    """,
    "switch_agent:pause": """
        (pause|disable|switch off|turn off) [the] [agent] <name>
        (switch|turn) [the] [agent] <name> off
        (pause|disable) [the|my] agent
    """,
    "switch_agent:resume": """
        (resume|unpause|enable|switch on|turn on) [the] [agent] <name>
        (switch|turn) [the] [agent] <name> [back] on
        (resume|enable) [the|my] agent
    """,
    "switch_agent:stop": "(stop|halt) ([the] [agent] <name>|[the|my] agent)",
    "switch_agent:start": "start ([the] [agent] <name>|[the|my] agent)",
    "run_now": f"""
        (run|start) {_NAMED} [(on|over|against) {_NAMED}] [again]
        (run|start) [the|my|a] (trigger|playbook|skill)
        (check|review) {_NAMED} (against|with) {_NAMED}
    """,
    "create_schedule": f"""
        (run|schedule|check|review) {_NAMED} [(on|over|against|with) {_NAMED}]
        (create|add|set up) a schedule [for {_NAMED} [on {_NAMED}]]
    """,
}  # fmt: skip

Phrases = tuple[re.Pattern[str], ...]


def _compile(phrases: str) -> Phrases:
    return tuple(re.compile(_expression(phrase.strip())) for phrase in phrases.strip().splitlines())


def _expression(phrase: str) -> str:
    """The phrase for words that are each followed by one space."""
    words = re.sub(r"[^\s\[\]()|]+", lambda word: f"{re.escape(word[0])}\0", phrase)
    return re.sub(r"\s", "", words).replace("(", "(?:").replace("[", "(?:").replace("]", ")?").replace("\0", " ")


def _by_path() -> dict[str, dict[str, Phrases]]:
    found: dict[str, dict[str, Phrases]] = {}
    for key, phrases in (LOOKUPS | ACTIONS).items():
        path, _, action = key.partition(":")
        found.setdefault(path, {})[action] = _compile(phrases)
    return found


# By path and action.
PHRASES: Final = _by_path()


# --- Requests ---


MAX_CHARS: Final = 300
_BEFORE: Final = re.compile(r"(?:(?:hi|hello|hey|ok|please|(?:can|could|would|will) you)\b[\s,!]*)*", re.IGNORECASE)
_AFTER: Final = re.compile(
    r"(?:[\s,.!?]+(?:please|thanks|thank you|(?:right )?now|at once)\b)*[\s.!?]*$", re.IGNORECASE
)
_POLITE: Final = re.compile(r"\b(?:can|could|would|will) you\b", re.IGNORECASE)
QUOTE: Final = "[\"'`“”„«»\u2018\u2019]?"
_ID: Final = re.compile(
    rf"(?<!\S){QUOTE}#?((?=[a-f-]*\d)(?:[0-9a-f]{{8}}-[0-9a-f-]{{1,27}}|[0-9a-f]{{6,64}})){QUOTE}(?=[\s,:]|$)",
    re.IGNORECASE,
)
_MIN_TYPO_CHARS: Final = 4
_SIMILAR: Final = 0.85
_VOCABULARY: Final = sorted(
    word for word in set(re.findall(r"[a-z]+", f"{LOOKUPS} {ACTIONS}")) if len(word) >= _MIN_TYPO_CHARS
)


@dataclass(frozen=True)
class Request:
    """A short request without its courtesies. "Can you …?" is not a question."""

    text: str
    is_question: bool = False


def read(text: str) -> Request | None:
    """Read a text as a request; None if it is too long for one."""
    plain = " ".join(text.replace("\u2019", "'").split())
    if len(plain) > MAX_CHARS:
        return None
    start = _courtesy_end(plain)
    after = _AFTER.search(plain, start)
    end = after.start() if after else len(plain)
    return Request(plain[start:end], "?" in plain[end:] and not _POLITE.search(plain[:start]))


def _courtesy_end(text: str) -> int:
    before = _BEFORE.match(text)
    return before.end() if before else 0


def words_of(text: str) -> tuple[str, tuple[str, ...]]:
    """A request as phrases see it, in lower case, each word with a space behind it; and the ids in it."""
    plain = re.sub(r"[,:](?=\s|$)", "", _ID.sub("<id>", text)).lower().replace("what's", "what is")
    return "".join(f"{word} " for word in plain.split()), tuple(match[1].lower() for match in _ID.finditer(text))


def corrected(text: str) -> str:
    """The text with words of the phrases in the place of words that resemble them."""
    return re.sub(rf"\b[a-z]{{{_MIN_TYPO_CHARS},}}\b", _corrected, text, flags=re.IGNORECASE)


def _corrected(word: re.Match[str]) -> str:
    plain = word[0].lower()
    alike = [] if plain in _VOCABULARY else get_close_matches(plain, _VOCABULARY, n=1, cutoff=_SIMILAR)
    return alike[0] if alike else word[0]


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
