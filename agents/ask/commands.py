"""The thirteen common requests that are answered without a model, and the words that bring the Halt button.

Each has one short form; `_ALIASES` are other wordings of it. A request that is none of these is for the console.
Nothing is changed here: what changes something becomes a proposed action.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from agents.ask import lookups, requests
from agents.ask.naming import INSTRUCTIONS, SOURCES, Answer, AskContext, Match, lines, message

MAX_CHARS: Final = 300
ID: Final = re.compile(r"#?(?:run:|approval:)?((?=[a-f-]*\d)(?:[0-9a-f]{8}-[0-9a-f-]{1,27}|[0-9a-f]{6,64}))", re.ASCII)


@dataclass(frozen=True)
class FastPath:
    """One common request. `words` are those that may stand behind it; `names`: the kinds of rows that may.

    `verbs` are the words that it begins with, each with its action.
    """

    name: str
    form: str
    handle: Callable[[Match, AskContext], Answer | None]
    verbs: dict[str, str]
    words: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    takes_id: bool = False


def _help(match: Match, context: AskContext) -> Answer:
    head = "These requests are answered at once, without a model. Anything else is a question to the console."
    return message(lines(head, [path.form for path in FAST_PATHS]), paths=[path.name for path in FAST_PATHS])


_PERIODS: Final = frozenset("today yesterday overnight this last week month night".split())  # noqa: SIM905
_STATES: Final = frozenset(
    "running active queued waiting sleeping completed halted failed partial".split()  # noqa: SIM905
)

_THIS: Final = frozenset({"it", "this", "that", "run"})

FAST_PATHS: Final[tuple[FastPath, ...]] = (
    FastPath("help", "help", _help, {"help": ""}),
    FastPath("service_status", "status; agents", lookups.status, {"status": "", "agents": "agents"}),
    FastPath(
        "list_triggers",
        "triggers [active | paused | enabled | disabled]",
        lookups.triggers,
        {"triggers": ""},
        words=frozenset({"active", "paused", "enabled", "disabled"}),
    ),
    FastPath(
        "list_sessions",
        "runs [active | failed | halted | …] [today | yesterday | last night | this week | …]",
        lookups.sessions,
        {"runs": ""},
        words=_PERIODS | _STATES,
    ),
    FastPath(
        "show_receipt",
        "receipt <id>; receipt last",
        lookups.receipt,
        {"receipt": ""},
        frozenset({"last"}),
        takes_id=True,
    ),
    FastPath(
        "halt_session",
        "halt <run id or agent>",
        requests.halt,
        {"halt": ""},
        words=_THIS,
        names=("agent",),
        takes_id=True,
    ),
    FastPath(
        "switch_agent",
        "pause or resume <run id, agent or trigger>; start or stop <agent or trigger>",
        requests.switch,
        {verb: verb for verb in ("pause", "resume", "start", "stop")},
        words=_THIS,
        names=("agent", "trigger"),
        takes_id=True,
    ),
    FastPath("list_approvals", "approvals", lookups.waiting, {"approvals": "", "questions": "questions"}),
    FastPath(
        "decide_approval",
        "approve <id>; deny <id>",
        requests.decide,
        {"approve": "approve", "deny": "deny"},
        takes_id=True,
    ),
    FastPath("list_precedents", "precedents", lookups.precedents, {"precedents": ""}),
    FastPath(
        "cost_summary",
        "costs [per agent | <agent>] [today | last week | …]",
        lookups.costs,
        {"costs": ""},
        words=_PERIODS | {"per", "agent"},
        names=("agent",),
    ),
    FastPath(
        "run_now",
        "run <trigger>; run <playbook> on <collection>",
        requests.run,
        {"run": ""},
        names=("trigger", *INSTRUCTIONS, *SOURCES),
    ),
    FastPath(
        "create_schedule",
        "schedule <playbook> on <collection> every 6 hours",
        requests.schedule,
        {"schedule": ""},
        names=(*INSTRUCTIONS, "collection"),
    ),
)

# Other wordings of the whole request.
_ALIASES: Final = {
    "?": "help",
    "commands": "help",
    "what can you do": "help",
    "what can i ask": "help",
    "health": "status",
    "is everything ok": "status",
    "is everything fine": "status",
    "how is everything": "status",
    "how are things": "status",
    "list agents": "agents",
    "show agents": "agents",
    "list triggers": "triggers",
    "show triggers": "triggers",
    "schedules": "triggers",
    "what is scheduled": "triggers active",
    "list runs": "runs",
    "show runs": "runs",
    "sessions": "runs",
    "list sessions": "runs",
    "which runs are active": "runs active",
    "which sessions are running": "runs active",
    "what is running": "runs active",
    "is anything running": "runs active",
    "what failed": "runs failed",
    "did anything fail": "runs failed",
    "what happened last night": "runs last night",
    "show receipt": "receipt last",
    "pending approvals": "approvals",
    "list pending approvals": "approvals",
    "list approvals": "approvals",
    "list questions": "questions",
    "what needs my approval": "approvals",
    "what is waiting for me": "approvals",
    "what waits for me": "approvals",
    "list precedents": "precedents",
    "patterns": "precedents",
    "cost": "costs",
    "spending": "costs",
    "what have i spent": "costs",
    "what did i spend": "costs",
    "what did today cost": "costs today",
    "cost per agent": "costs per agent",
    "which agents are running": "agents",
    "which agents do i have": "agents",
    "who halted everything": "status",
    "is everything halted": "status",
}
# Other wordings that end with a period, or hold one. With an empty period they stand for all of them.
_PERIOD_ALIASES: Final = {
    "what did it cost {}": "costs {}",
    "how much did it cost {}": "costs {}",
    "what did we spend {}": "costs {}",
    "what did i spend {}": "costs {}",
    "how much did we spend {}": "costs {}",
    "how much did i spend {}": "costs {}",
    "which runs failed {}": "runs failed {}",
    "what failed {}": "runs failed {}",
    "did anything fail {}": "runs failed {}",
    "why did {}'s run fail": "runs failed {}",
    "why did {}'s runs fail": "runs failed {}",
}
_NAMED_PERIODS: Final = ("", "today", "yesterday", "last night", "this week", "last week", "this month", "last month")
# Other first words.
_SYNONYMS: Final = {
    "reject": "deny",
    "cancel": "halt",
    "abort": "halt",
    "kill": "halt",
    "disable": "pause",
    "enable": "resume",
    "unpause": "resume",
    "cost": "costs",
    "sessions": "runs",
}
_DROPPED: Final = frozenset({"please", "the", "my"})
_PLAIN_ALIASES: Final = {
    " ".join(word for word in alias.format(period).split() if word not in _DROPPED): form.format(period).strip()
    for period in _NAMED_PERIODS
    for alias, form in (_ALIASES | _PERIOD_ALIASES).items()
}
_KIND_WORDS: Final = frozenset({"run", "session", "agent", "trigger", "approval", "playbook", "skill", "collection"})


def fast_answer(context: AskContext) -> Answer | None:
    """The answer of the path that the request has the form of; None if it has none, or names nothing that exists."""
    for path, match in matches(context):
        answer = path.handle(match, context)
        if answer is not None:
            return replace(answer, path=path.name)
    return None


def matches(context: AskContext) -> Iterator[tuple[FastPath, Match]]:
    words = _words(context.text)
    if not words:
        return
    verb, *rest = words
    for path in FAST_PATHS:
        if verb in path.verbs and (match := _match(path, path.verbs[verb], rest, context)) is not None:
            yield path, match


def _words(text: str) -> list[str]:
    """The words of a request in lower case, without courtesies, in its short form."""
    if len(text) > MAX_CHARS:
        return []
    plain = text.lower().replace("\u2019", "'").replace("what's", "what is").strip(" \t\n.!?,;")
    words = [word.strip(",;:\"'`") for word in (plain or text.strip()).split()]
    words = [word for word in words if word not in _DROPPED]
    words = _PLAIN_ALIASES.get(" ".join(words), " ".join(words)).split()
    return [_SYNONYMS.get(words[0], words[0]), *words[1:]] if words else []


def _match(path: FastPath, action: str, rest: list[str], context: AskContext) -> Match | None:
    """Return the words after the verb, if the command can use them."""
    if not rest or all(word in path.words for word in rest):
        return Match(action, " ".join(rest))
    found = [ID.fullmatch(word) for word in rest]
    if path.takes_id:
        ids = tuple(one[1] for one in found if one)
        others = [word for word, one in zip(rest, found, strict=True) if not one]
        if ids and set(others) <= _KIND_WORDS | {"digest"}:
            return Match(action, " ".join(rest), ids)
    return _named(path, action, rest, context) if path.names else None


def _named(path: FastPath, action: str, rest: list[str], context: AskContext) -> Match | None:
    """The rows that the words name. `on`, and a time, divide them."""
    if path.name == "create_schedule":
        return Match(action, " ".join(rest))
    kept = [word for word in rest if word not in path.words]
    parts = " ".join(kept).split(" on ") if path.name == "run_now" else [" ".join(kept)]
    rows = [row for part in parts for row in requests.rows_for(part, path.names, context)]
    return Match(action, " ".join(rest), rows=tuple(rows)) if rows else None


# --- Emergencies: words that bring the Halt button at once, without a model ---


_STOP: Final = "stop|halt|kill|abort|freeze|cancel|end|terminate|shut ?down|shut off|turn off|switch off|shutdown"
_ALL: Final = (
    "everything|every thing|it all|this all|them all|all of (?:it|them|this)|all|"
    "(?:all|every)(?: of)?(?: the| my| our)? (?:agents?|runs?|work|sessions?|jobs?|bots?|things?|of it)|"
    "the (?:agents|whole thing|system)"
)
_ANYWHERE: Final = re.compile(
    rf"\b(?:(?:{_STOP}) (?:{_ALL})\b(?! from| for me| about)|(?:shut|turn|switch) (?:{_ALL}) (?:down|off)"
    r"|make (?:it|them|this|that|everything) (?:all )?stop|pull the plug|(?:kill|panic|emergency) ?(?:switch|button)"
    r"|emergency (?:stop|halt|shutdown|brake))\b"
)
_ALONE: Final = frozenset(
    """
    stop|stop it|stop now|stop this|stop it now|halt|halt it|halt now|abort|abort now|emergency|panic|mayday|help stop|
    there is an emergency|this is an emergency|we have an emergency|it is an emergency
    """.replace("\n", "")
    .replace("    ", "")
    .split("|")
)
# A sentence that begins like this tells or asks about something; it does not want everything stopped.
_ASKS: Final = re.compile(
    r"(?:who|when|what|which|why|did|does|do|is|are|was|were|has|have|had|list|find|show|search|summari[sz]e|the|a)\b"
)
_OPENERS: Final = re.compile(r"^(?:(?:please|ok|hey|omg|oh no|no|quick|now|hurry)\b[\s,!.]*)+")


def is_emergency(text: str, *, in_chat: bool = False) -> bool:
    """Whether the words want everything stopped. In a chat, a mere `stop` is for the message being answered."""
    plain = " ".join(re.sub(r"[^\w'\s]", " ", text.lower().replace("\u2019", "'")).split())
    plain = _OPENERS.sub("", plain) or plain
    if len(plain) > MAX_CHARS:
        return False
    alone = re.sub(r"(?: (?:now|please|immediately|right now|at once))+$", "", plain)
    if alone in _ALONE:
        return not in_chat or alone not in {"stop", "stop it", "stop this", "halt", "halt it", "abort"}
    return _ANYWHERE.search(plain) is not None and not _ASKS.match(plain)


# --- The nearest commands, for when there is no model ---


def nearest_commands(text: str, *, limit: int = 3) -> list[str]:
    """The forms of the paths that share most words with the text."""
    words = set(re.findall(r"[a-z]{4,}", text.lower())) - {"what", "this", "that", "have", "does"}
    scored = [(len(words & _path_words(path)), -place, path.form) for place, path in enumerate(FAST_PATHS)]
    best = sorted((one for one in scored if one[0]), reverse=True)[:limit]
    return [form for _, _, form in best] or [FAST_PATHS[0].form]


def _path_words(path: FastPath) -> set[str]:
    wordings = [re.sub(r"\[.*?\]", "", path.form)]
    wordings += [alias for alias, form in (_ALIASES | _PERIOD_ALIASES).items() if form.split()[0] in path.verbs]
    wordings += [word for word, verb in _SYNONYMS.items() if verb in path.verbs]
    return set(re.findall(r"[a-z]{3,}", " ".join(wordings).lower()))
