"""The eight intents and their handlers. A handler never imports the guard or a provider.

`override` replaces tools inside one context (thread or task) only, so that the self-test can probe the guard in a
process that is at work.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Final

from agents.conf import clock, skill_hosts
from agents.enums import Level, NoticeKind, Purpose, RunResult, ToolIntent
from agents.exceptions import NoAnswer
from agents.guard.embed import embed_tool
from agents.guard.retrieve import retrieve_chunks
from agents.guard.tools import BadParams, Params, Tool, label, listener, public_id, set_within, text
from agents.knowledge.documents import artifact_add
from agents.knowledge.findings import MOST, finding_add, findings_together
from agents.knowledge.projects import memory_propose, precedent_count
from agents.knowledge.search import collection_get
from agents.models import AgentSession, Finding
from agents.people.notifications import notification_create
from agents.skills.handles import (
    SecretNotBound,
    SecretUser,
    destination_of,
    destinations_of_call,
    require_bound,
    secrets_resolve,
)
from agents.skills.registry import call_pace, skill_named, skill_standing
from agents.skills.risk import has_unlisted_address, level_for
from agents.skills.running import perform
from agents.skills.skill import Skill, SkillContext, handles_in, has_handle
from agents.text.quotes import LONGEST_QUOTE
from agents.types import Capability, ModelReply, ModelRequest

# --- emit_artifact: save what a run wrote as a Markdown document in its owner's collection ---
#
# It fires no watch and is never new to a schedule, so no run can start itself. The bytes go to disk under their digest
# before any row, so the call can be repeated: the same text is the same document. Without a collection nothing is
# saved, and the result says so: `stored` false, `reason` `no_collection`. A disk error leaves no row, and the call
# ends as `storage_error`.


MAX_CHARS = 1_000_000


def emit_artifact(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    content = text(params, "content", limit=MAX_CHARS + 1)
    is_truncated, content = len(content) > MAX_CHARS, content[:MAX_CHARS]
    if not content.strip():
        raise BadParams("'content' is empty: there is nothing to save.")
    if params.get("collection") is None:
        return {"stored": False, "reason": "no_collection", "truncated": is_truncated}
    collection = collection_get(owner_id=context.owner_id, public_id=public_id(params, "collection"))
    session = AgentSession.objects.get(pk=context.session_pk, owner_id=context.owner_id)
    name = text(params, "name", "draft", limit=1_000)
    document, is_new = artifact_add(session=session, collection=collection, name=name, content=content, now=context.now)
    return {
        "stored": True,
        "document_id": str(document.public_id),
        "collection_id": str(collection.public_id),
        "name": document.name,
        "chars": len(content),
        "truncated": is_truncated,
        "is_new": is_new,
    }


# --- emit_finding: store a finding and whether its quote was verified ---


def emit_finding(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    finding = finding_add(
        owner_id=context.owner_id,
        session_pk=context.session_pk,
        severity=text(params, "severity", "info", limit=32),
        title=text(params, "title", "(untitled)", limit=300),
        content=text(params, "content", ""),
        document=text(params, "document", ""),
        quote=text(params, "quote", "", limit=LONGEST_QUOTE),
        quote_start=_count(params.get("quote_start")),
        about_run=params.get("about_run") is True,
        playbook=text(params, "playbook", "", limit=64),
        position=text(params, "position", "", limit=200),
        now=context.now,
        **_judged(params),
    )
    return {"finding_id": str(finding.public_id), "quote_check": finding.quote_check}


def _judged(params: Mapping[str, Any]) -> dict[str, int]:
    """Return how many judges answered, and how many say that the quote supports the finding."""
    agreed = _count(params.get("judges_for"))
    asked = _count(params.get("judges_asked"))
    if agreed is None or not asked or agreed > asked:
        return {}
    return {"judges_for": agreed, "judges_asked": asked}


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST - LONGEST_QUOTE:
        return value
    return None


# --- run_skill and run_playbook: one model request through the metered callable of the context ---


MOST_TOKENS = 1_000_000


def request_of(params: Mapping[str, Any]) -> ModelRequest:
    """Build the request from `messages` or one `prompt`. Anonymised unless the parameters say otherwise."""
    wanted = params.get("max_tokens", 1_024)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= MOST_TOKENS:
        raise BadParams(f"'max_tokens' must be a whole number from 1 to {MOST_TOKENS}, not {wanted!r}.")
    return ModelRequest(
        model=label(params, "model"),
        messages=_messages(params),
        max_tokens=wanted,
        purpose=_purpose(params.get("purpose", Purpose.AUTONOMOUS_EXECUTOR)),
        anonymize=params.get("anonymize", True) is not False,
        parties=_parties(params.get("parties") or ()),
        tools=tuple(params.get("tools") or ()),
        response_schema=params.get("response_schema"),
    )


def _parties(names: object) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadParams("'parties' must be a list of names.")
    return tuple(names)


def _messages(params: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    messages = params.get("messages") or [{"role": "user", "content": text(params, "prompt")}]
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadParams("'messages' must be a list of objects with a role and a content.")
    return tuple(messages)


_PURPOSES = tuple(Purpose.values)


def _purpose(value: object) -> Purpose:
    if value not in _PURPOSES:
        raise BadParams(f"'purpose' must be one of {', '.join(_PURPOSES)}, not {value!r}.")
    return Purpose(value)


def ask(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the model said. With `must_answer` a refusal or an empty reply is a failed call."""
    reply = context.infer(listener.get())
    if params.get("must_answer") is True:
        _require_answer(reply)
    answer: dict[str, Any] = {"text": reply.text, "stop_reason": reply.stop_reason}
    if reply.is_full:
        answer["full"] = True
    if reply.calls:
        answer["calls"] = [asdict(call) for call in reply.calls]
    return answer


def _require_answer(reply: ModelReply) -> None:
    if reply.stop_reason == "refusal":
        raise NoAnswer("the model refused to answer")
    if any(char.isprintable() and not char.isspace() for char in reply.text):
        return
    if reply.stop_reason == "max_tokens":
        raise NoAnswer("the model used all its tokens before it answered; declare more of them (max_tokens)")
    raise NoAnswer("the model's answer was empty")


# --- propose_memory: suggest a memory; only a person keeps it ---


def propose_memory(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    content = text(params, "content")
    memory, is_new = memory_propose(
        owner_id=context.owner_id, session_pk=context.session_pk, content=content, now=context.now
    )
    return {"memory_id": str(memory.public_id), "state": memory.state, "is_new": is_new}


# --- notify: a notification for the session's owner, with a copy by e-mail where that is set up ---


def notify(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    notice = notification_create(
        owner_id=context.owner_id,
        kind=_kind_of_news(context.session_pk),
        title=text(params, "title"),
        body=text(params, "body", ""),
        now=context.now,
        session_id=context.session_pk,
    )
    return {"notification_id": str(notice.public_id)}


_RESULTS: Final = {
    RunResult.OK: NoticeKind.RUN_COMPLETED,
    RunResult.EMPTY: NoticeKind.RUN_COMPLETED,
    RunResult.FINDINGS: NoticeKind.RUN_FINDINGS,
    RunResult.PARTIAL: NoticeKind.RUN_STOPPED,
    RunResult.FAILED: NoticeKind.RUN_STOPPED,
}


def _kind_of_news(session_pk: int) -> NoticeKind:
    """A run that has its result tells of that; any other tells what its agent wants to say. Concerns are findings."""
    noted = AgentSession.objects.filter(pk=session_pk).values_list("metadata", flat=True).first() or {}
    kind = _RESULTS[RunResult(noted["result"])] if noted.get("result") in RunResult.values else NoticeKind.AGENT
    has_work = kind == NoticeKind.RUN_COMPLETED and Finding.objects.work().filter(session=session_pk).exists()
    return NoticeKind.RUN_FINDINGS if has_work else kind


# --- propose_precedent: count a recurring pattern. It touches no project: promotion is a person's act ---


def propose_precedent(context: SkillContext, params: Mapping[str, Any]) -> dict[str, Any]:
    precedent_id, count = precedent_count(
        owner_id=context.owner_id,
        session_pk=context.session_pk,
        pattern_kind=text(params, "pattern_kind", limit=64),
        summary=text(params, "summary"),
        same_as=text(params, "same_as", "", limit=64),
        now=context.now,
    )
    return {"precedent_id": str(precedent_id), "observed_count": count}


# --- A callable skill: `{"skill": name, "arguments": {…}}` under the intent that it stands for ---


def skill_tool(params: Params, intent: ToolIntent = ToolIntent.RUN_SKILL) -> Tool:
    """Return the skill as a tool. One that is not installed, enabled or set up, or of another intent, raises BadParams.

    R6 judges the intent, so no skill can do in a phase what that phase does not grant.
    """
    name = params["skill"]
    arguments = params.get("arguments")
    skill = skill_named(name) if isinstance(name, str) else None
    if skill is None or skill.intent != intent:
        raise BadParams(f"the skill {str(name)[:64]} is not found or disabled.")
    if not isinstance(arguments, Mapping):
        raise BadParams(f"the arguments of {skill.name} are an object, not {type(arguments).__name__}.")
    standing = skill_standing(skill.name, skill.level)
    if not standing.enabled:
        raise BadParams(f"the skill {skill.name} is not found or disabled.")
    if skill.lacking:
        raise BadParams(f"the skill {skill.name} cannot work: {skill.lacking}.")
    skill.arguments(arguments)
    hosts = skill_hosts()
    capability = skill.capability(level_for(skill, standing.level, arguments, hosts))
    if has_handle(arguments):
        _require_bound(skill, arguments)
        if has_unlisted_address(skill, arguments, hosts):
            capability = replace(capability, requires_approval=True)  # besides, a person is asked in every mode
    asks = skill.request
    return Tool(
        handler=lambda context, given: _perform(skill, context, given["arguments"]),
        capability=capability,
        remote=not skill.local,
        request=(lambda given: asks(given["arguments"])) if asks else None,
        pace=call_pace(skill, capability.level, standing),
        is_skill=True,
    )


def _require_bound(skill: Skill, arguments: Mapping[str, Any]) -> None:
    """Refuse a call that would carry a secret to a host that it is not bound to, before anybody is asked."""
    try:
        require_bound(handles_in(arguments, skill.secret_arguments), destinations_of_call(skill, arguments))
    except SecretNotBound as error:
        raise BadParams(str(error)) from None


def _perform(skill: Skill, context: SkillContext, arguments: Mapping[str, Any]) -> Any:
    """Run a skill with the secrets that its arguments name; it fetches from hosts alone that they are bound to."""
    names = handles_in(arguments, skill.secret_arguments)
    if not names:
        return perform(skill, context, arguments)
    used_by = {"session_id": str(context.session_id), "call_id": str(context.call_id), "skill": skill.name}
    destinations = destinations_of_call(skill, arguments)
    resolved = secrets_resolve(
        arguments, skill.secret_arguments, destinations=destinations, user=SecretUser(used_by), now=clock()
    )
    return perform(skill, context, resolved, check=lambda url: require_bound(names, [destination_of(url)]))


def _local(intent: ToolIntent, handler: Callable[[SkillContext, Params], Any], **more: Any) -> Tool:
    return Tool(handler, Capability(intent, level=Level.SAFE), undoable=True, **more)


def _model(intent: ToolIntent) -> Tool:
    asked = Capability(intent, level=Level.MONITORED, side_effects=False)
    return Tool(ask, asked, remote=True, request=request_of)


_TOOLS: Mapping[ToolIntent, Tool] = MappingProxyType(
    {
        ToolIntent.RETRIEVE_CHUNKS: Tool(
            retrieve_chunks,
            Capability(ToolIntent.RETRIEVE_CHUNKS, level=Level.SAFE, side_effects=False),
            undoable=True,
        ),
        ToolIntent.RUN_SKILL: _model(ToolIntent.RUN_SKILL),
        ToolIntent.RUN_PLAYBOOK: _model(ToolIntent.RUN_PLAYBOOK),
        ToolIntent.PROPOSE_MEMORY: _local(ToolIntent.PROPOSE_MEMORY, propose_memory),
        ToolIntent.PROPOSE_PRECEDENT: _local(ToolIntent.PROPOSE_PRECEDENT, propose_precedent),
        ToolIntent.EMIT_FINDING: _local(ToolIntent.EMIT_FINDING, emit_finding, together=findings_together),
        # Its file is named by digest, so writing it again is harmless.
        ToolIntent.EMIT_ARTIFACT: Tool(
            emit_artifact, Capability(ToolIntent.EMIT_ARTIFACT, level=Level.MONITORED, idempotent=True), remote=True
        ),
        ToolIntent.NOTIFY: _local(ToolIntent.NOTIFY, notify),
    }
)
_overrides: ContextVar[Mapping[ToolIntent, Tool]] = ContextVar("tool_overrides", default=MappingProxyType({}))


def tool_for(intent: ToolIntent, params: Params = MappingProxyType({})) -> Tool:
    """Return the tool of an intent: a skill if one is named, embedding if there is something to embed, else its own."""
    tool = _overrides.get().get(intent)
    if tool is None and "skill" in params:
        return skill_tool(params, intent)
    if tool is None and "embed" in params and intent == ToolIntent.RETRIEVE_CHUNKS:
        return embed_tool(params)
    return tool or _TOOLS[intent]


def override(tools: Mapping[ToolIntent, Tool]) -> AbstractContextManager[None]:
    return set_within(_overrides, {**_overrides.get(), **tools})
