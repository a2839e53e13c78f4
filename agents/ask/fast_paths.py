"""The thirteen common requests that are answered without a model.

Each calls the same function as the other interfaces, so permissions and audit events are the same. Nothing is written
here. An error while matching is logged, and the request goes to the model; an error of an action does not.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, Literal

from django.contrib.auth.models import User
from django.db import DatabaseError

from agents.ask import actions, lookups
from agents.ask.actions import draft, which_agent, which_approval, which_of_kind, which_run
from agents.ask.language import Request, Word, corrected, read, read_loosely, when_of, words
from agents.ask.naming import (
    INSTRUCTIONS,
    KIND_WORDS,
    KINDS,
    SOURCES,
    Answer,
    AskContext,
    Match,
    Names,
    is_id,
    lines,
    match_path,
    message,
    names_in,
)

logger = logging.getLogger(__name__)


Scope = Literal["read", "write", "decide"]


@dataclass(frozen=True)
class FastPath:
    """One common request. `names` are the kinds of rows that it may name; `timed`: it says how often."""

    name: str
    example: str
    handle: Callable[[Match, AskContext], Answer | None]
    scope: Scope = "read"
    names: tuple[str, ...] = ()
    timed: bool = False


def _help(match: Match, context: AskContext) -> Answer:
    head = "Use your own words. These requests are answered at once; anything else goes to the model."
    examples = [f"{path.name.replace('_', ' ')}: {path.example}" for path in FAST_PATHS]
    return message(lines(head, examples), paths=[path.name for path in FAST_PATHS])


FAST_PATHS: Final[tuple[FastPath, ...]] = (
    FastPath("help", "help", _help),
    FastPath("service_status", "is everything ok?; list agents", lookups.status),
    FastPath("list_triggers", "show my triggers", lookups.triggers),
    FastPath("list_sessions", "which runs are active?", lookups.sessions),
    FastPath("show_receipt", "show receipt 1f2e3d4c", lookups.receipt),
    FastPath("halt_session", "halt run 1f2e3d4c", actions.halt, scope="write"),
    FastPath(
        "switch_agent",
        "pause agent Clerk; resume Clerk; stop Clerk",
        actions.switch_agent,
        scope="write",
        names=("agent", "trigger"),
    ),
    FastPath("list_approvals", "what needs my approval?", lookups.waiting),
    FastPath("decide_approval", "approve 1f2e3d4c; deny 1f2e3d4c", actions.decide, scope="decide"),
    FastPath("list_precedents", "list precedents", lookups.precedents),
    FastPath("cost_summary", "what have I spent?; cost per agent last week", lookups.costs, names=("agent",)),
    FastPath(
        "run_now",
        "run playbook Lease on collection Leases",
        actions.run,
        scope="write",
        names=("trigger", *INSTRUCTIONS, *SOURCES),
    ),
    FastPath(
        "create_schedule",
        "every 6 hours run playbook Lease on collection Leases",
        actions.schedule,
        scope="write",
        names=(*INSTRUCTIONS, "collection"),
        timed=True,
    ),
)
_BY_ID: Final = frozenset({"show_receipt", "halt_session", "decide_approval"})


def fast_answer(context: AskContext, scope: Scope | None = None) -> Answer | None:
    """The answer of the first path, of this scope if one is given, that matches the whole request."""
    for path, match in _matches(context.text, context.user):
        if (scope is not None and path.scope != scope) or (context.in_chat and _is_for_agent(path, match)):
            continue
        answer = path.handle(match, context)
        if answer is not None:
            return replace(answer, path=path.name)
    return None


def scope_of(text: str, by: User | None = None) -> Scope:
    """The scope that an API key needs for this request; `write` if no path matches.

    A lookup that names a row matches only for the person who owns it.
    """
    return next((path.scope for path, _ in _matches(text, by)), "write")


def scope_in_chat(text: str) -> Scope:
    """The same for a message to an agent."""
    found = _matches(text, None)
    return next((path.scope for path, match in found if not _is_for_agent(path, match)), "write")


def _is_for_agent(path: FastPath, match: Match) -> bool:
    """Whether a message of a chat answers the agent: `accept it`, or a number or date that is no id."""
    ids = match.request.ids
    return path.name in _BY_ID and (not all(map(is_id, ids)) or (path.scope == "decide" and not ids))


def _matches(text: str, user: User | None) -> list[tuple[FastPath, Match]]:
    """The paths that match. With a typing error corrected, only lookups do."""
    try:
        request = read(text)
        if request is None:
            return []
        requests = [(request, FAST_PATHS)]
        if (correct := corrected(request)) is not None:
            requests.append((correct, tuple(path for path in FAST_PATHS if path.scope == "read")))
        return [
            (path, match)
            for words, paths in requests
            for path in paths
            if (match := match_path(path.name, words, user, path.names, timed=path.timed))
        ]
    except DatabaseError:
        raise
    except Exception:
        logger.exception("a request could not be read; it goes to the model")
        return []


# --- Answers to requests for an action that no fast path understood: what could be meant ---
#
# Somebody who says halt, pause, approve or run wants that now. A model could not do it, takes its time and costs
# money. A question about an action, or a sentence about something else, goes to the model.


_SIMILAR: Final = 0.8
_SHORT: Final = 3  # words, without those that only link others
_LINKS: Final = words("the a an my our this that on over in with using by against for and or then if to of")
_NOUNS: Final = KIND_WORDS.keys() | words("session sessions run runs agents approval approvals request")
_POINTERS: Final = words("it that this these those them one ones first last latest all both everything everybody")
_ELSE: Final = "To ask the model, begin a chat or use other words."


def suggestion(context: AskContext) -> Answer | None:
    """What could be meant by a request for an action; None if it is not one."""
    request = read_loosely(context.text)
    if request is None or request.is_question or request.words[0].quoted:
        return None
    verb = request.words[0].text
    meant = [verb] if verb in _SUGGESTIONS else get_close_matches(verb, _VERBS, n=1, cutoff=_SIMILAR)
    if not meant:
        return None
    names = names_in(request, context.user, KINDS)
    path, suggest = _SUGGESTIONS[meant[0]]
    if verb in _SUGGESTIONS:
        return replace(suggest(request, names, context), path=path) if _is_action(request, names) else None
    if not (names.found or request.ids or request.vocabulary & _NOUNS):
        return None
    repeat = f"{meant[0]}{request.text[request.words[0].end :]}".strip()
    text = f"Nothing was done: {verb!r} is not a known action. Did you mean: {repeat}"
    return replace(message(text, repeat=repeat), path=path)


def _is_action(request: Request, names: Names) -> bool:
    """It is short, points at something, or names what lqops has. "Stop using long words" does not."""
    rest = {word.text for word in request.words[1:]}
    if len(rest - _LINKS) < _SHORT or request.ids or rest & (_NOUNS | _POINTERS):
        return True
    if request.words[0].text == "every" and when_of(request.text) is not None:
        return True
    return bool(names.of("agent", "trigger", *INSTRUCTIONS))


def _halt(request: Request, names: Names, context: AskContext) -> Answer:
    return which_run(context)


def _agent(request: Request, names: Names, context: AskContext) -> Answer:
    place = next((place for place, word in enumerate(request.words) if word.text in KIND_WORDS), 0)
    unknown = _unknown(request, names, place + 1)
    reason = f"Nothing was done: there is no agent {unknown}." if unknown else "Nothing was done."
    return which_agent(request.words[0].text, context, names.of("agent"), reason)


def _approval(request: Request, names: Names, context: AskContext) -> Answer:
    return which_approval("approve" if request.words[0].text == "approve" else "deny", context)


def _run(request: Request, names: Names, context: AskContext) -> Answer:
    """Say which thing does not exist, and what there is of its kind."""
    kinds = [(place, KIND_WORDS[word.text]) for place, word in enumerate(request.words) if word.text in KIND_WORDS]
    for place, kind in kinds:
        if unknown := _unknown(request, names, place + 1):
            return which_of_kind(kind, context, f"Nothing was done: there is no {kind} {unknown}.")
    if kinds and not names.found:
        return which_of_kind(kinds[0][1], context, f"Nothing was done: say which {kinds[0][1]} to run.")
    text = "Nothing was done. Say what to run, and on what: run playbook <name> on collection <name>."
    return message(f"{text} {_ELSE}", missing=["playbook", "collection"])


def _schedule(request: Request, names: Names, context: AskContext) -> Answer:
    if when_of(request.text) is None:
        return draft(None, names, context)
    text = "Nothing was done. Say only how often, what to run and on what: "
    return message(f"{text}every 6 hours run playbook <name> on collection <name>. {_ELSE}")


# By the first word of the request.
_SUGGESTIONS: Final[dict[str, tuple[str, Callable[[Request, Names, AskContext], Answer]]]] = {
    "halt": ("halt_session", _halt),
    "stop": ("halt_session", _halt),
    "pause": ("switch_agent", _agent),
    "resume": ("switch_agent", _agent),
    "approve": ("decide_approval", _approval),
    "reject": ("decide_approval", _approval),
    "deny": ("decide_approval", _approval),
    "run": ("run_now", _run),
    "start": ("run_now", _run),
    "every": ("create_schedule", _schedule),
}
_VERBS: Final = _SUGGESTIONS.keys() - {"every"}


def _unknown(request: Request, names: Names, start: int) -> str:
    """The words from here to the next known one, as they are written."""
    found: list[Word] = []
    for place, word in enumerate(request.words[start:], start):
        if place in names.places or (found and not word.quoted and word.text in _LINKS | KIND_WORDS.keys()):
            break
        if word.quoted or word.text not in _LINKS:
            found.append(word)
    return request.text[found[0].start : found[-1].end] if found else ""
