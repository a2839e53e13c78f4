"""The thirteen common requests that are answered without a model. Each calls the service or selector that any other
interface calls, so the same permissions hold and the same record is left; nothing is written here.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeVar

from django.contrib.auth.models import User

from agents.ask import actions, language, lookups
from agents.ask.actions import GO_BY, READ, choices, draft, which_agent, which_approval, which_session
from agents.ask.language import RELEASE, Grammar, Request, Word, is_covered, mended, opening, read, when_of, words
from agents.ask.naming import CUES, Answer, Asker, Kind, Names, is_id, lines, names_in, rows_of, told
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_told

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
        if language.is_covered(request, self.grammars):
            return True
        return self.names is not None and by is not None and bool(self.names(request, by))

    def fits(self, request: Request) -> bool:
        return bool(request.said & self.verbs) or language.is_covered(request, self.grammars)


def _help(request: Request, who: Asker) -> Answer:
    head = "Say it in your own words; these are answered at once. Anything else goes to the model."
    said = [f"{path.name.replace('_', ' ')}: {path.example}" for path in FAST_PATHS]
    return told(lines(head, said), paths=[path.name for path in FAST_PATHS])


def _verbs(grammars: tuple[Grammar, ...]) -> frozenset[str]:
    return frozenset().union(*(grammar.needs[0] for grammar in grammars))


FAST_PATHS: Final = (
    FastPath("help", "help", _help, language.HELP),
    FastPath("service_status", "is everything ok?; list agents", lookups.status, (*language.STATUS, *language.AGENTS)),
    FastPath("list_triggers", "show my triggers", lookups.triggers, language.TRIGGERS),
    FastPath("list_sessions", "which sessions are running?", lookups.sessions, language.SESSIONS),
    FastPath("show_receipt", "show receipt 1f2e3d4c", lookups.receipt, language.RECEIPT),
    FastPath("halt_session", "halt session 1f2e3d4c", actions.halt, language.HALT, scope="write"),
    FastPath(
        "switch_agent",
        "pause agent Clerk; resume Clerk; stop Clerk",
        actions.switch_agent,
        verbs=_verbs((*language.PAUSE, *language.RESUME, *language.STOP, *language.START)),
        scope="write",
    ),
    FastPath("list_approvals", "what waits for my approval?", lookups.waiting, language.APPROVALS),
    FastPath("decide_approval", "approve 1f2e3d4c; reject 1f2e3d4c", actions.decide, language.DECIDE, scope="decide"),
    FastPath("list_precedents", "list precedents", lookups.precedents, language.PRECEDENTS),
    FastPath(
        "cost_summary",
        "what have I spent?; cost per agent last week",
        lookups.costs,
        language.COSTS,
        verbs=language.COST_WORDS,
        names=lookups.agent_meant,
    ),
    FastPath(
        "run_now",
        "run playbook Lease on collection Leases",
        actions.run,
        verbs=_verbs((*language.RUN, *language.CHECK, *language.TRIGGER)),
        scope="write",
    ),
    FastPath(
        "create_schedule",
        "every 6 hours run playbook Lease on collection Leases",
        actions.schedule,
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
    return request is not None and language.is_covered(request, language.HALT_THIS)


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


# Orders that pull a lever and cannot be made out: they are answered with what could be meant, never by a model.
#
# Somebody who says halt, pause, approve or run wants that, now. A model could not do it, would take its time, and
# costs money. What asks about a lever, or begins with such a word and speaks of something else, goes to the model.


_ALIKE: Final = 0.8  # two words that differ by a slip of a finger, not by what they mean
_BETWEEN: Final = words("the a an my our this that on over in with using by against for and or then if to of")
_NOUNS: Final = CUES.keys() | words("session sessions run runs agents approval approvals request")
_POINTING: Final = words("it that this these those them one ones first last latest all both everything everybody")
_BARE: Final = 3  # words, without those in between
_OTHERWISE: Final = "To put something to a model, begin a chat, or say it in other words."


def lever_missed(text: str, who: Asker) -> Answer | None:
    """What could be meant by an order that no fast path understood; None if it is no such order."""
    request = opening(text)
    if request is None or request.is_question or request.words[0].quoted:
        return None
    if is_covered(request, RELEASE):
        return replace(_release(), path="halt_session")
    said = request.words[0].said
    if said in _MISSED and not _is_order(request, who):
        return None
    names = names_in(request, who.by, ["agent", "trigger", *GO_BY, *READ])
    if said in _MISSED:
        path, answered = _MISSED[said]
        return replace(answered(request, names, who), path=path)
    meant = get_close_matches(said, _MISSED.keys() - {"every"}, n=1, cutoff=_ALIKE)
    if not meant or not (names.found or request.ids or request.said & _NOUNS):
        return None
    repeat = f"{meant[0]}{request.text[request.words[0].end :]}".strip()
    answer = told(f"Nothing was done: there is no order {said!r}. Did you mean: {repeat}", repeat=repeat)
    return replace(answer, path=_MISSED[meant[0]][0])


def _is_order(request: Request, who: Asker) -> bool:
    """It is bare, or points at something, or speaks of what lqops has. `Stop using long words` is for somebody else."""
    rest = {word.said for word in request.words[1:]}
    if len(rest - _BETWEEN) < _BARE or request.ids or rest & (_NOUNS | _POINTING):
        return True
    if request.words[0].said == "every" and when_of(request.text) is not None:
        return True
    return bool(names_in(request, who.by, ["agent", "trigger", *GO_BY]).found)


def _release() -> Answer:
    """Nothing is released by words: who does it takes the lever, which asks whether they may."""
    halt = current_halt()
    if halt is None:
        return told("Nothing was done: nothing is halted.", halted=False)
    return told(f"Nothing was released. {halt_told(halt)} {TO_RELEASE}", halted=True)


def _halt(request: Request, names: Names, who: Asker) -> Answer:
    return which_session(who)


def _agent(request: Request, names: Names, who: Asker) -> Answer:
    verb = request.words[0].said
    missing = _unknown(request, names)
    because = f"Nothing was done: there is no agent {missing}." if missing else "Nothing was done."
    return which_agent(verb, who, names.of("agent"), because)


def _approval(request: Request, names: Names, who: Asker) -> Answer:
    return which_approval("approve" if request.words[0].said == "approve" else "reject", who)


def _run(request: Request, names: Names, who: Asker) -> Answer:
    """Names the first thing that is not there, and what there is of its kind."""
    cued = [(place, CUES[word.said]) for place, word in enumerate(request.words) if word.said in CUES]
    for place, kind in cued:
        named = _words(request, names, place + 1)
        if named:
            return _known(kind, f"Nothing was done: there is no {kind} {named}.", who)
    if cued and not names.found:
        return choices(cued[0][1], who)
    text = "Nothing was done. Say what is to run, and on what: run playbook <name> on collection <name>."
    return told(f"{text} {_OTHERWISE}", missing=["playbook", "collection"])


def _every(request: Request, names: Names, who: Asker) -> Answer:
    if when_of(request.text) is None:
        return draft(None, names, who)
    text = "Nothing was done. Say nothing but how often, what is to run and on what: "
    return told(f"{text}every 6 hours run playbook <name> on collection <name>. {_OTHERWISE}")


# By the word that an order begins with: the fast path that it misses, and what is answered.
_MISSED: Final[dict[str, tuple[str, Callable[[Request, Names, Asker], Answer]]]] = {
    "halt": ("halt_session", _halt),
    "stop": ("halt_session", _halt),
    "pause": ("switch_agent", _agent),
    "resume": ("switch_agent", _agent),
    "approve": ("decide_approval", _approval),
    "reject": ("decide_approval", _approval),
    "deny": ("decide_approval", _approval),
    "run": ("run_now", _run),
    "start": ("run_now", _run),
    "every": ("create_schedule", _every),
}


def _unknown(request: Request, names: Names) -> str:
    """The words after the verb that name nothing."""
    place = next((place for place, word in enumerate(request.words) if word.said in CUES), 0)
    return _words(request, names, place + 1)


def _words(request: Request, names: Names, start: int) -> str:
    """The words from here to the next one that is known, as they are written."""
    found: list[Word] = []
    for place, word in enumerate(request.words[start:], start):
        if place in names.places or (found and not word.quoted and word.said in _BETWEEN | CUES.keys()):
            break
        if word.quoted or word.said not in _BETWEEN:
            found.append(word)
    return request.text[found[0].start : found[-1].end] if found else ""


def _known(kind: str, because: str, who: Asker) -> Answer:
    rows: list[Any] = rows_of(kind, who.by)
    data = [{"kind": kind, "name": row.name, "id": str(row.public_id)} for row in rows]
    head = f"{because} Known:" if rows else f"{because} You have none."
    return told(lines(head, [row.name for row in rows]), choices=data)
