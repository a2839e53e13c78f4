"""The one entry for requests in words, from the API, the command, the control room and chats.

First the words of an emergency, then the fast paths: both need no model. A schedule or an agent is proposed as a draft.
Everything else is a question to the console, or, for a chat with an agent, a message to it. Nothing is changed here:
an answer proposes actions, and a person confirms them (agents.ask.proposals).
"""

import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User

from agents.ask.chats import MAX_CHARS, Way, chat_active_message, chat_send, chat_store_answer, is_console_chat
from agents.ask.commands import fast_answer, is_emergency
from agents.ask.console import OFF, ask_model, model_refusal, search
from agents.ask.naming import Answer, AskContext, Match, Wanted, message, started
from agents.ask.requests import TO_CONFIRM, run_goal, schedule
from agents.ask.strategies import Strategy, classify
from agents.exceptions import Invalid, NotAllowed
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_message
from agents.models import Agent, AgentSession
from agents.people.access import HALT_PERMISSION, require_start_permission
from agents.roster.agents import NAME_CHARS
from agents.text.clean import one_line
from agents.triggers.triggers import require_owned
from audit.redaction import redact

Chat = UUID | None
EMERGENCY: Final = "emergency"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_RELEASE: Final = re.compile(r"(?:please )?(?:release|unhalt|lift the halt)(?: (?:everything|all|it|all work))?[.!]?")


def ask(
    *, text: str, by: User, now: datetime, agent: Agent | None = None, chat: UUID | None = None, model: bool = True
) -> Answer:
    """Answer a request, or start a run that does. With `model` off nothing is started and nothing costs."""
    context = _checked(AskContext(by, now, text, agent, in_chat=chat is not None), chat)
    answer = _at_once(context)
    if answer is None and (agent or chat) and not (chat and is_console_chat(by, chat)):
        return _send(context, chat)
    if answer is None:
        answer = _from_console(context, chat, model=model)
    if chat is not None and answer.session is None:
        _keep(answer, context, chat)
    return answer


def send_message(
    *,
    text: str,
    by: User,
    now: datetime,
    agent: Agent | None = None,
    chat: UUID | None = None,
    max_cost_usd: Decimal | None = None,
) -> AgentSession:
    """Send a message to an agent or the console: a session in a chat, which is over at once if it needs no model.

    Nothing is drafted for a message to an agent: the strategy only decides how it is worked on.
    """
    require_start_permission(by)
    context = _checked(AskContext(by, now, text, agent, max_cost_usd=max_cost_usd, in_chat=True), chat)
    answer = _at_once(context)
    if answer is None and chat and is_console_chat(by, chat):
        answer = _from_console(context, chat)
    if answer is None:
        way, _ = _WAYS.get(classify(text), (Way.ANSWER, ""))
        return _message(context, chat, way)
    return answer.session or _keep(answer, context, chat)


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


def _at_once(context: AskContext) -> Answer | None:
    """The answer to an emergency, or of a fast path: without a model."""
    if is_emergency(context.text, in_chat=context.in_chat):
        return emergency(context)
    if not context.in_chat and _RELEASE.fullmatch(context.text.strip().lower()):
        return _release()
    return fast_answer(context)


def emergency(context: AskContext) -> Answer:
    """The Halt button: of everything for those who may, and of the person's own runs."""
    own = Wanted("halt_own", "", {"text": context.text})
    halt = current_halt()
    if halt is not None:
        text = f"{halt_message(halt)} {TO_RELEASE}"
        return replace(message(text, own, halted=True), path=EMERGENCY)
    if not context.user.has_perm(HALT_PERMISSION):
        text = "You may halt your own runs. To halt everything, call an operator: it needs their permission."
        return replace(message(text, own, halted=False), path=EMERGENCY)
    every = Wanted("halt_all", "", {"text": context.text})
    text = "Halt everything? No further call starts, in any run. Nothing has been halted yet."
    return replace(message(text, every, own, halted=False), path=EMERGENCY)


def _release() -> Answer:
    """Words release nothing: whoever may release all work uses the control itself."""
    halt = current_halt()
    if halt is None:
        return replace(message("Nothing was done: nothing is halted.", halted=False), path="halt_session")
    text = f"Nothing was released. {halt_message(halt)} {TO_RELEASE}"
    return replace(message(text, halted=True), path="halt_session")


def _keep(answer: Answer, context: AskContext, chat: Chat) -> AgentSession:
    return chat_store_answer(
        owner=context.user,
        text=context.text,
        answer=answer.text,
        path=answer.path or "search",
        now=context.now,
        agent=context.agent,
        chat=chat,
        wanted=answer.wanted,
    )


# --- The console ---


def _from_console(context: AskContext, chat: Chat, *, model: bool = True) -> Answer:
    """Propose a draft, or ask the model, or search without one."""
    strategy = classify(context.text)
    if strategy == Strategy.SCHEDULED_TASK:
        return replace(schedule(Match(), context), strategy=strategy)
    if strategy == Strategy.SUB_AGENT:
        wanted = Wanted("draft_agent", "", {"name": _agent_name(context), "text": context.text})
        text = f"Draft an agent named {wanted.arguments['name']}, with your request as its instructions? {TO_CONFIRM}"
        return replace(message(text, wanted), strategy=strategy)
    beside = (run_goal(context),) if strategy in {Strategy.GOAL, Strategy.SCRIPT} else ()
    if refusal := model_refusal(context.user) if model else OFF:
        return replace(search(context, refusal, *beside), strategy=strategy)
    session = ask_model(context, chat, beside)
    answer = started(session, f"Run {session.public_id} works on an answer.")
    return replace(answer, strategy=strategy, wanted=beside)


# --- Messages to an agent ---


# How a message of a chat is worked on, and the same in words.
_WAYS: Final = {
    Strategy.DIRECT_RESPONSE: (Way.ANSWER, "works on an answer."),
    Strategy.GOAL: (Way.GOAL, "works towards this goal, step by step."),
    Strategy.SCRIPT: (Way.SCRIPT, "carries this out with callable skills."),
}


def _send(context: AskContext, chat: Chat) -> Answer:
    """Send the request as a message of a chat."""
    require_start_permission(context.user)
    strategy = classify(context.text)
    way, what = _WAYS.get(strategy, _WAYS[Strategy.DIRECT_RESPONSE])
    session = _message(context, chat, way)
    return replace(started(session, f"Run {session.public_id} {what}"), strategy=strategy)


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


# --- The name of a drafted agent ---


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
