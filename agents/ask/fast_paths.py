"""The thirteen common requests that are answered without a model. Each calls the service or selector that any other
interface calls, so the same permissions hold and the same record is left; nothing is written here.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from django.contrib.auth.models import User

from agents.ask import actions, intents, lookups, runs, spending, waits
from agents.ask.ids import is_id
from agents.ask.language import Grammar, Request, read, words
from agents.ask.naming import Answer, Asker, Kind, lines, told
from agents.ask.spelling import mended

logger = logging.getLogger(__name__)

Scope = Literal["read", "write", "decide"]
Judged = TypeVar("Judged")


@dataclass(frozen=True)
class FastPath:
    """`grammars` recognise it; a path whose requests name rows has only its verbs here, and judges the rest itself."""

    name: str
    example: str
    handle: Callable[[Request, Asker], Answer | None]
    grammars: tuple[Grammar, ...] = ()
    verbs: frozenset[str] = frozenset()
    scope: Scope = "read"
    names: Callable[[Request, User], object] | None = None

    def is_meant(self, request: Request, by: User | None) -> bool:
        """Whether it can be said before it is handled that it will be: by its grammars, or by what a person names."""
        if intents.is_covered(request, self.grammars):
            return True
        return self.names is not None and by is not None and bool(self.names(request, by))

    def fits(self, request: Request) -> bool:
        return bool(request.said & self.verbs) or intents.is_covered(request, self.grammars)


def _help(request: Request, who: Asker) -> Answer:
    head = "Say it in your own words; these are answered at once. Anything else goes to the model."
    said = [f"{path.name.replace('_', ' ')}: {path.example}" for path in FAST_PATHS]
    return told(lines(head, said), paths=[path.name for path in FAST_PATHS])


def _verbs(grammars: tuple[Grammar, ...]) -> frozenset[str]:
    return frozenset().union(*(grammar.needs[0] for grammar in grammars))


FAST_PATHS: Final = (
    FastPath("help", "help", _help, intents.HELP),
    FastPath("service_status", "is everything ok?; list agents", lookups.status, (*intents.STATUS, *intents.AGENTS)),
    FastPath("list_triggers", "show my triggers", lookups.triggers, intents.TRIGGERS),
    FastPath("list_sessions", "which sessions are running?", lookups.sessions, intents.SESSIONS),
    FastPath("show_receipt", "show receipt 1f2e3d4c", lookups.receipt, intents.RECEIPT),
    FastPath("halt_session", "halt session 1f2e3d4c", actions.halt, intents.HALT, scope="write"),
    FastPath(
        "switch_agent",
        "pause agent Clerk; resume Clerk; stop Clerk",
        actions.switch_agent,
        verbs=_verbs((*intents.PAUSE, *intents.RESUME, *intents.STOP, *intents.START)),
        scope="write",
    ),
    FastPath("list_approvals", "what waits for my approval?", waits.waiting, intents.APPROVALS),
    FastPath("decide_approval", "approve 1f2e3d4c; reject 1f2e3d4c", actions.decide, intents.DECIDE, scope="decide"),
    FastPath("list_precedents", "list precedents", lookups.precedents, intents.PRECEDENTS),
    FastPath(
        "cost_summary",
        "what have I spent?; cost per agent last week",
        spending.costs,
        intents.COSTS,
        verbs=intents.COST_WORDS,
        names=spending.agent_meant,
    ),
    FastPath(
        "run_now",
        "run playbook Lease on collection Leases",
        runs.run,
        verbs=_verbs((*intents.RUN, *intents.CHECK, *intents.TRIGGER)),
        scope="write",
    ),
    FastPath(
        "create_schedule",
        "every 6 hours run playbook Lease on collection Leases",
        runs.schedule,
        verbs=words("every each hourly daily nightly weekly monthly once twice on"),
        scope="write",
    ),
)


_BY_ID: Final = frozenset({"show_receipt", "halt_session", "decide_approval"})


def fast_answer(text: str, who: Asker, within: Scope | None = None) -> Answer | None:
    """The answer of the first path, of that scope if one is given, that the whole request fits; None if none does."""
    for path, request in _found(text):
        if within is not None and path.scope != within:
            continue
        if who.in_chat and path.name in _BY_ID and not all(map(is_id, request.ids)):
            continue  # a number or a date in what is said to an agent
        answer = path.handle(request, who)
        if answer is not None:
            return replace(answer, path=path.name)
    return None


def fast_answer_in_chat(text: str, who: Asker) -> Answer | None:
    """The same for a message to an agent, who may have asked something: a bare `accept`, `refuse it` is said to it.

    While a message is being worked on, the agent hears nothing: a bare `stop` means that message.
    """
    if who.at_work is not None and _safely(lambda: _means_this(text), otherwise=False):
        return replace(actions.halt_one(who.at_work, who), path="halt_session")
    answer = fast_answer(text, who)
    if answer is None or answer.kind != Kind.ANSWER or answer.changed:
        return answer
    scope = scope_of(text)
    return None if (scope == "decide" and not _names_one(text)) or (scope != "read" and _is_bare(text)) else answer


def _means_this(text: str) -> bool:
    request = read(text)
    return request is not None and intents.is_covered(request, intents.HALT_THIS)


def _is_bare(text: str) -> bool:
    return len(text.split()) == 1


def _names_one(text: str) -> bool:
    """False for `accept it`, said to an agent: nothing is decided without an id."""
    request = read(text)
    return request is not None and bool(request.ids)


def _fitting(text: str) -> Iterator[tuple[FastPath, Request]]:
    """The paths that a text may mean, each with what it reads; a misspelt text can only mean one that looks."""
    request = read(text)
    if request is None:
        return
    yield from ((path, request) for path in FAST_PATHS if path.fits(request))
    corrected = mended(request)
    if corrected is not None:
        yield from ((path, corrected) for path in FAST_PATHS if path.scope == "read" and path.fits(corrected))


def _found(text: str) -> list[tuple[FastPath, Request]]:
    nothing: list[tuple[FastPath, Request]] = []
    return _safely(lambda: list(_fitting(text)), otherwise=nothing)


def _safely(judge: Callable[[], Judged], *, otherwise: Judged) -> Judged:
    """Rules that break decide nothing. What a path does is not judged here: no fault of a lever sends its order on."""
    try:
        return judge()
    except Exception:
        logger.exception("a request could not be read; it is answered directly")
        return otherwise


def scope_of(text: str, by: User | None = None) -> Scope:
    """What a key must be allowed to do for this request: read, write or decide. What no path fits may write.

    A look that names a row is known for one only with the person whose row it is.
    """
    return next((path.scope for path, request in _found(text) if path.is_meant(request, by)), "write")


def scope_in_chat(text: str) -> Scope:
    """The same for a message to an agent. Nothing is decided by an `accept` without an id, which may be said to it."""
    scope = scope_of(text)
    return "write" if scope == "decide" and not _names_one(text) else scope
