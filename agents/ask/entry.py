"""The one entry for requests in words, from the API, the command, the control room and chats.

First the fast paths, which need no model; then a suggestion, if the request is almost one of them; else the strategy
that fits. Rules decide all of this: no model is asked before a run starts.

DIRECT_RESPONSE is a message of a chat. GOAL is a run towards the goal with what the text names, or in a chat a message.
SCRIPT is a message that is carried out with callable skills. SCHEDULED_TASK and SUB_AGENT draft a trigger or an agent
that is switched off.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from agents.ask.actions import draft, run_goal, which_is_meant
from agents.ask.chats import MAX_CHARS, Way, chat_active_message, chat_send, chat_store_answer, require_can_send
from agents.ask.fast_paths import FAST_PATHS, Scope, fast_answer, scope_of, suggestion
from agents.ask.language import Strategy, classify, when_of
from agents.ask.naming import (
    INSTRUCTIONS,
    SOURCES,
    Answer,
    AskContext,
    Kind,
    Names,
    done,
    drafted,
    names_in,
    rows_named_in,
    started,
)
from agents.definitions.loader import write_definition
from agents.enums import ApprovalMode
from agents.exceptions import Invalid, LqopsError, NotAllowed
from agents.models import Agent, AgentSession
from agents.people.access import require_start_permission
from agents.roster.agents import NAME_CHARS, agent_create
from agents.roster.files import definition_write
from agents.text.clean import one_line
from agents.triggers.triggers import require_owned
from audit.redaction import redact

Chat = UUID | None
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_MAX_NAME_CHARS: Final = 2_000


def ask(*, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None) -> Answer:
    """Answer a request, start a run that does, or draft what it asks for."""
    context = _checked(AskContext(by, now, text, agent, in_chat=chat is not None), chat)
    decision = _decide(context)
    if isinstance(decision, Strategy):
        return replace(_carry_out(decision, context, chat), strategy=decision)
    if chat is not None:
        _keep(decision, context, chat)
    return decision


def ask_within(scope: Scope, *, text: str, by: User, now: datetime) -> Answer | None:
    """The answer of a fast path of this scope; None, and nothing is done, if the request is for something else."""
    return fast_answer(_checked(AskContext(by, now, text), None), scope)


def send_message(
    *,
    text: str,
    by: User,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
    max_cost_usd: Decimal | None = None,
) -> AgentSession:
    """Send a message to an agent: always a session in a chat, which is over at once if a fast path answered.

    Nothing is drafted for a message: the strategy only decides how it is worked on.
    """
    require_start_permission(by)
    context = _checked(AskContext(by, now, text, agent, max_cost_usd=max_cost_usd, in_chat=True), chat)
    decision = _decide(context)
    if isinstance(decision, Answer):
        return _keep(decision, context, chat)
    way, _ = _WAYS.get(decision, (Way.ANSWER, ""))
    return _message(context, chat, way)


@dataclass(frozen=True)
class Route:
    """The effect of a request. `lever`: it would change or start something. `refused`: why it would be refused."""

    kind: Kind
    text: str
    path: str = ""
    strategy: Strategy | None = None
    lever: bool = False
    scope: str = "read"
    missing: tuple[str, ...] = ()
    refused: str = ""


def route(*, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None) -> Route:
    """Say what `ask` would do with this text. Nothing is done, stored or audited, and no model is asked."""
    context = _checked(AskContext(by, now, text, agent, in_chat=chat is not None, dry_run=True), chat)
    strategy: Strategy | None = None
    scope: Scope = scope_of(text, by)
    try:
        decision = _decide(context)
        if isinstance(decision, Strategy):
            strategy, decision = decision, _carry_out(decision, context, chat)
    except LqopsError as refusal:
        return Route(Kind.ANSWER, "Refused.", strategy=strategy, scope=scope, refused=str(refusal))
    if scope == "read" and decision.path not in _LOOKUPS:
        scope = "write"
    return Route(
        kind=decision.kind,
        text="Reads, and answers at once." if scope == "read" and not decision.changed else decision.text,
        path=decision.path,
        strategy=strategy,
        lever=decision.changed,
        scope=scope,
        missing=tuple(decision.data.get("missing", ())),
    )


_LOOKUPS: Final = frozenset(path.name for path in FAST_PATHS if path.scope == "read")


def _checked(context: AskContext, chat: Chat) -> AskContext:
    """Check the person, the text, the agent and the chat."""
    if not context.user.is_active:
        raise NotAllowed(f"{context.user} is not active.")
    if not context.text.strip() or len(context.text) > MAX_CHARS:
        raise Invalid(f"A request has 1 to {MAX_CHARS} characters; this one has {len(context.text.strip())}.")
    if _UNSTORABLE.search(context.text):
        raise Invalid("A request with a NUL, or with half of a character, cannot be stored: leave it out.")
    require_owned("agent", context.agent, context.user.pk)
    return replace(context, running=chat_active_message(context.user, chat)) if chat else context


def _decide(context: AskContext) -> Answer | Strategy:
    """The answer of a fast path or a suggestion, else the strategy."""
    if (answer := fast_answer(context)) is not None:
        return answer
    strategy = classify(context.text)
    needs_model = strategy in {Strategy.DIRECT_RESPONSE, Strategy.GOAL}
    suggested = suggestion(context) if needs_model and not context.in_chat else None
    return strategy if suggested is None else suggested


def _keep(answer: Answer, context: AskContext, chat: Chat) -> AgentSession:
    return chat_store_answer(
        owner=context.user,
        text=context.text,
        answer=answer.text,
        path=answer.path,
        now=context.now,
        agent=context.agent,
        chat=chat,
    )


# --- Strategies ---


def _carry_out(strategy: Strategy, context: AskContext, chat: Chat) -> Answer:
    if strategy == Strategy.SCHEDULED_TASK:
        names = _names(context, *INSTRUCTIONS, "collection")
        return draft(when_of(names.masked), names, context, frozenset(names.masked.lower().split()))
    if strategy == Strategy.SUB_AGENT:
        return _sub_agent(context)
    if strategy == Strategy.GOAL and chat is None:
        names = _names(context, *INSTRUCTIONS, *SOURCES)
        return which_is_meant(names) if len(names.of(*INSTRUCTIONS)) > 1 else run_goal(names, context)
    return _send(context, chat, *_WAYS[strategy])


# How a message of a chat is worked on, and the same in words.
_WAYS: Final = {
    Strategy.DIRECT_RESPONSE: (Way.ANSWER, "works on an answer."),
    Strategy.GOAL: (Way.GOAL, "works towards this goal, step by step."),
    Strategy.SCRIPT: (Way.SCRIPT, "carries this out with callable skills."),
}


def _send(context: AskContext, chat: Chat, way: Way, what: str) -> Answer:
    """Send the request as a message of a chat."""
    require_start_permission(context.user)
    if context.dry_run:
        require_can_send(owner=context.user, agent=context.agent, chat=chat)
        return done(f"Starts a run that {what}", Kind.SESSION)
    session = _message(context, chat, way)
    return started(session, f"Run {session.public_id} {what}")


def _message(context: AskContext, chat: Chat, way: Way) -> AgentSession:
    return chat_send(
        owner=context.user,
        by=context.user,
        text=context.text,
        now=context.now,
        agent=context.agent,
        chat=chat,
        max_cost_usd=context.max_cost_usd,
        way=way,
    )


def _names(context: AskContext, *kinds: str) -> Names:
    """The names in the beginning of a text of any length."""
    text = context.text[:_MAX_NAME_CHARS]
    return names_in(text, rows_named_in(text, context.user, kinds))


@transaction.atomic
def _sub_agent(context: AskContext) -> Answer:
    """Draft an agent with the request as its instructions. A sentence does not say what starts it."""
    require_start_permission(context.user)
    name = _agent_name(context)
    if context.dry_run:
        return done(f"Drafts an agent, switched off: {name}.", Kind.DRAFT, missing=_NOT_SET)
    by, now = context.user, context.now
    agent = agent_create(owner=by, name=name, by=by, now=now, mode=ApprovalMode.SEMI, enabled=False)
    definition = write_definition({"instructions": redact(context.text).strip()})
    agent = definition_write(agent=agent, text=definition, by=by, now=now).agent
    text = (
        f"Drafted, and switched off: agent {agent.name}, which asks before RESTRICTED calls. Your request is its "
        "instructions. So far only a chat starts it: give it autonomy, a sensor or a trigger in its definition. "
        "To use it, switch it on: on its page in the admin, "
        f'PATCH /api/v1/agents/{agent.public_id} with {{"enabled": true}}, or say: resume agent {agent.name}'
    )
    return drafted(text, agent=str(agent.public_id), name=agent.name, mode=agent.mode, missing=_NOT_SET)


# --- The name of a drafted agent ---

_NOT_SET: Final = ["autonomy", "sensors", "triggers"]
_QUOTED: Final = r"[\"'\u201c\u2018`]([^\"'\u201d\u2019`\n]{1,120})[\"'\u201d\u2019`]"
_CALLED: Final = re.compile(rf"\b(?:called|named)\s(?:{_QUOTED}|([A-Z][\w-]*(?: [A-Z][\w-]*){{0,4}}|[\w-]+))")
_PURPOSE: Final = re.compile(
    r"\b(?:agent|assistant|bot|worker)s?\b\W{0,3}(?:that|which|who|to|for)\s([^.!?\n]{3,200})", re.IGNORECASE
)
_PURPOSE_WORDS: Final = 6


def _agent_name(context: AskContext) -> str:
    """The name in the request, or one from its purpose."""
    text = redact(context.text)
    if called := _CALLED.search(text):
        return one_line(called[1] or called[2], NAME_CHARS)
    purpose = _PURPOSE.search(text)
    words = " ".join(purpose[1].split()[:_PURPOSE_WORDS]).strip(" ,;:") if purpose else ""
    return one_line(f"{words[:1].upper()}{words[1:]}" or f"Agent of {context.now:%Y-%m-%d %H:%M}", NAME_CHARS)
