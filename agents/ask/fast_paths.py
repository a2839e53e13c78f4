"""The thirteen common requests that are answered without a model.

Each calls the same function as the other interfaces, so permissions and audit events are the same. Nothing is written
here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from django.contrib.auth.models import User

from agents.ask import actions, lookups
from agents.ask.language import PHRASES, corrected, read, when_of, words_of
from agents.ask.naming import (
    INSTRUCTIONS,
    SOURCES,
    Answer,
    AskContext,
    Match,
    RowOfKind,
    lines,
    message,
    names_in,
    rows_named_in,
    rows_of,
)

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
    head = "These requests are answered at once; anything else goes to the model."
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
        lambda match, context: actions.draft(match.when, match.names, context),
        scope="write",
        names=(*INSTRUCTIONS, "collection"),
        timed=True,
    ),
)
_ORDER: Final = re.compile(r"<|\b(?:runs?|sessions?|agent|approvals?|request|call|trigger|playbook|skill)\b")

_RUN: Final = re.compile(r"(?:run|start) (?:(?:the|my) )?(?:(?:trigger|schedule) )?([^.!?]+)[.!?]?")


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
    """Whether a message of a chat answers the agent: `reject it`."""
    return path.scope == "decide" and not match.ids


def _matches(text: str, user: User | None) -> Iterator[tuple[FastPath, Match]]:
    """The paths with a phrase that matches the whole request."""
    for path, phrase, match in _readings(text, user):
        if phrase.fullmatch(match.words):
            yield path, match


def _readings(text: str, user: User | None) -> Iterator[tuple[FastPath, re.Pattern[str], Match]]:
    """The request as each phrase sees it: without courtesies, and with the names and the time that its path knows."""
    request = read(text)
    if request is None:
        return
    rows: list[RowOfKind] | None = None
    for path in FAST_PATHS:
        if request.is_question and path.scope != "read":
            continue
        if rows is None and path.names:
            rows = rows_named_in(request.text, user) if user else []
        names = names_in(request.text, [row for row in rows or () if row[0] in path.names])
        when = when_of(names.masked) if path.timed else None
        if path.timed and when is None:
            continue
        words, ids = words_of(when.rest if when else names.masked)
        for action, phrases in PHRASES[path.name].items():
            for phrase in phrases:
                yield path, phrase, Match(action, words, ids, names, when)


def _completed(context: AskContext) -> str:
    """`run the weekly scan` with the whole name of the only trigger that begins so; empty if there is none."""
    begun = _RUN.fullmatch(context.text.lower())
    triggers = rows_of("trigger", context.user) if begun else []
    names = [row.name for row in triggers if begun and row.name.lower().startswith(f"{begun[1]} ")]
    return f"run trigger {names[0]}" if len(names) == 1 else ""


def suggestion(context: AskContext) -> Answer | None:
    """Ask back where a typing error, an unknown name or a word too many keeps an action from matching."""
    correct = _completed(context) or corrected(context.text)
    for path, _ in _matches(correct, context.user) if correct != context.text else ():
        return replace(message(f"Nothing was done. Did you mean: {correct}", repeat=correct), path=path.name)
    for path, phrase, match in _readings(context.text, context.user):
        begun = phrase.match(match.words)
        if path.scope != "read" and begun and _ORDER.search(begun[0]):
            answer = path.handle(Match(match.action), context)
            if answer is not None:
                return replace(answer, path=path.name)
    return None
