"""The thirteen common requests that are answered without a model.

Each calls the same function as the other interfaces, so permissions and audit events are the same. Nothing is written
here. An error while matching is logged, and the request goes to the model; an error of an action does not.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from django.contrib.auth.models import User
from django.db import DatabaseError

from agents.ask import actions, lookups
from agents.ask.answers import Answer, AskContext, lines, message
from agents.ask.language import corrected, read
from agents.ask.matching import Match, match_path
from agents.ask.naming import INSTRUCTIONS, SOURCES, is_id

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
