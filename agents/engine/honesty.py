"""An answer may not claim what did not happen: its claims are held against the calls of the run and of its chat."""

from collections.abc import Iterable, Mapping

from agents.engine.claims import Came, corrected
from agents.enums import Mode, Outcome
from agents.models import AgentSession, Message, ToolCall
from agents.skills.skill import Skill


def honest(text: str, *, session: AgentSession, transcript: Iterable[Message], skills: Mapping[str, Skill]) -> str:
    """The text as it may be told. What the model wrote stands in the journal."""
    able = [name for name, skill in skills.items() if skill.side_effects and name != "ask_person"]
    return corrected(text, able=able, came=_came(transcript), done_before=lambda: _done_in_chat(session))


def _came(transcript: Iterable[Message]) -> dict[str, Came]:
    """By the name of a skill: one success counts, whatever failed beside it."""
    names: dict[str, str] = {}
    came: dict[str, Came] = {}
    for entry in transcript:
        names.update({call["id"]: call["name"] for call in entry.calls})
        name = names.get(entry.call_id, "")
        if entry.role == "tool" and name and not (name in came and came[name].succeeded):
            came[name] = Came(succeeded=not entry.failed, told=entry.content.removeprefix("error: "))
    return came


def _done_in_chat(session: AgentSession) -> frozenset[str]:
    """What succeeded for earlier messages of the same chat: an answer may speak of it."""
    chat = session.params.get("chat") if session.mode == Mode.CHAT else None
    if not chat:
        return frozenset()
    made = ToolCall.objects.filter(
        session__owner_id=session.owner_id,
        session__mode=Mode.CHAT,
        session__params__chat=chat,
        outcome=Outcome.SUCCESS,
    )
    return frozenset(made.values_list("name", flat=True))
