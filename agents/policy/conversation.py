"""The wire form of a conversation: roles that alternate, calls with their results, and what a model's server takes.

Strict servers and chat templates refuse anything else than: one system message, then user and assistant in turn, and
behind a reply with calls one result for each of them. `alternate` makes that of any conversation and changes nothing in
one that is in this form. Pure.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agents.policy.context_window import MARK
from agents.types import ModelRequest

Message = Mapping[str, Any]

PARAGRAPH: Final = "\n\n"
OPENER: Final = "(The earlier messages are left out.)"
GO_ON: Final = "Go on."
NOTED: Final = "(Noted.)"  # stands between the results of calls and the next message of the user
NO_RESULT: Final = "(There is no result of this call.)"
SKILLS: Final = "Skills:"
_STRICT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")  # the only form of ids that Mistral's templates take
_ID_CHARS: Final = 9


def alternate(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return a conversation with alternating roles.

    Messages of the same role in a row become one. Results stand behind the reply that asked for them. A note of ours
    behind results (it carries a mark) goes into the last message of the user; anything else that the user says there
    begins a new turn. Marks are taken off.
    """
    given = list(messages)
    system = PARAGRAPH.join(_content(one) for one in given if one["role"] == "system" and _content(one))
    turns = _Turns([one for one in given if one["role"] != "system"]).arranged()
    return [{"role": "system", "content": system}, *turns] if system else turns


def add_note(messages: Sequence[Message], text: str) -> list[dict[str, Any]]:
    """Return the conversation with a note of ours in the last message of the user, or behind the last reply."""
    return alternate([*messages, {"role": "user", "content": text, MARK: True}])


class _Turns:
    """Arranges the messages of a conversation, without those of the system."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._used: set[int] = set()
        self._turns: list[dict[str, Any]] = []

    def arranged(self) -> list[dict[str, Any]]:
        for place, message in enumerate(self._messages):
            if place in self._used:
                continue
            if message["role"] == "assistant":
                self._reply(place, message)
            elif message["role"] == "tool":
                self._user(_as_user(message), is_note=True)
            else:
                self._user(_content(message), is_note=bool(message.get(MARK)))
        if not self._turns or self._turns[0]["role"] != "user":
            self._turns.insert(0, _user(OPENER))
        if self._turns[-1]["role"] == "assistant":
            self._turns.append(_user(GO_ON))
        return self._turns

    @property
    def _last(self) -> str:
        return str(self._turns[-1]["role"]) if self._turns else ""

    def _user(self, content: str, *, is_note: bool) -> None:
        if not content:
            return
        if self._last == "tool" and not is_note:
            self._turns.append({"role": "assistant", "content": NOTED})
        if self._last == "tool":
            self._note(content)
        elif self._last == "user":
            self._turns[-1]["content"] += PARAGRAPH + content
        else:
            self._turns.append(_user(content))

    def _note(self, content: str) -> None:
        """Add to the last message of the user, before the calls whose results came last."""
        for turn in reversed(self._turns):
            if turn["role"] == "user":
                turn["content"] += PARAGRAPH + content
                return
        self._turns.insert(0, _user(content))

    def _reply(self, place: int, message: Message) -> None:
        calls = list(message.get("tool_calls") or ())
        content = _content(message)
        if not content and not calls:
            return
        if self._last == "assistant":
            turn = self._turns[-1]
            turn["content"] = PARAGRAPH.join(filter(None, [turn["content"], content]))
        else:
            turn = {"role": "assistant", "content": content}
            self._turns.append(turn)
        if calls:
            turn["tool_calls"] = [{**call, "id": strict_id(call["id"])} for call in calls]
            self._turns += [self._result(place, call["id"]) for call in calls]

    def _result(self, place: int, call_id: str) -> dict[str, Any]:
        """Return the first result of the call behind its place; one that came in between is moved."""
        for later in range(place + 1, len(self._messages)):
            message = self._messages[later]
            if later not in self._used and message["role"] == "tool" and message["tool_call_id"] == call_id:
                self._used.add(later)
                return {"role": "tool", "tool_call_id": strict_id(call_id), "content": _content(message) or NO_RESULT}
        return {"role": "tool", "tool_call_id": strict_id(call_id), "content": NO_RESULT}


def _content(message: Message) -> str:
    return message.get("content") or ""


def _user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _as_user(result: Message) -> str:
    return f"Result of call {result['tool_call_id']}:\n{_content(result)}"


def strict_id(call_id: str) -> str:
    """Return the id of a call in the form that every server takes: nine letters and digits."""
    if _STRICT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


# --- What a model's server takes ---


def in_form(request: ModelRequest) -> ModelRequest:
    """Return a request as its server takes it: the system message and the calls as text where that is its form.

    It never has more bytes than before, so what the request may cost is bounded by the one that came in.
    """
    tools = request.tools
    messages: Sequence[Message] = alternate(request.messages)
    if request.form.tools == "text":
        messages, tools = alternate(_calls_as_text(_with_skills(messages, tools))), ()
    if request.form.system == "first_user":
        messages = _without_system(messages)
    return replace(request, messages=tuple(messages), tools=tools)


def _with_skills(messages: Sequence[Message], tools: Iterable[Message]) -> list[Message]:
    """Name the skills that are offered in a system message: each as a line of JSON."""
    offered = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    listed = {"role": "system", "content": "\n".join([SKILLS, *offered])}
    return [*messages, listed] if offered else [*messages]


def _calls_as_text(messages: Iterable[Message]) -> list[Message]:
    """Write calls as the tags that the system message describes, and results as what the user says."""
    written: list[Message] = []
    for message in messages:
        if message["role"] == "tool":
            written.append(_user(_as_user(message)))
        elif calls := message.get("tool_calls"):
            tags = "\n".join(map(_tag, calls))
            written.append({"role": "assistant", "content": "\n".join(filter(None, [_content(message), tags]))})
        else:
            written.append(message)
    return written


def _tag(call: Message) -> str:
    arguments = json.loads(call["function"]["arguments"])
    written = ", ".join(f"{name}={_literal(value)}" for name, value in arguments.items())
    return f"<skill>{call['function']['name']}({written})</skill>"


def _literal(value: Any) -> str:
    """Write a value of JSON as a literal of Python."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_literal(name)}: {_literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """Put the system message at the beginning of the first message of the user."""
    if messages[0]["role"] != "system":
        return list(messages)
    system, first, *others = messages
    return [_user(system["content"] + PARAGRAPH + first["content"]), *others]
