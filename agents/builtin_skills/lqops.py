"""Skills on lqops' own data: documents, notifications, questions, reports, agent state and time.

All are local: they read and write rows of the run's owner only.
"""

from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from pydantic import ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from agents.enums import Level, Mode, NoticeKind
from agents.exceptions import Invalid, NotFound
from agents.knowledge.search import document_get, search_chunks
from agents.loop.crossings import chat_set_state, loop_instruct
from agents.loop.state import NAME_CHARS, session_set_state
from agents.loop.turns import TEXT_CHARS as ALERT_CHARS
from agents.models import AgentSession
from agents.people.notifications import BODY_CHARS, TITLE_CHARS, notification_create
from agents.sessions.questions import MAX_CHARS, question_ask
from agents.sessions.reads import as_uuid
from agents.skills.skill import SkillContext, skill
from agents.text.clean import one_line

MAX_HITS: Final = 50
MAX_READ_CHARS: Final = 20_000
MAX_OFFSET: Final = 10**9
HEADING_CHARS: Final = 200
TEXT_CHARS: Final = 50_000
MAX_SECTIONS: Final = 50


# --- Documents ---


@skill(level=Level.SAFE, side_effects=False, local=True)
def search_documents(
    context: SkillContext,
    query: Annotated[str, Field(min_length=1, max_length=1_000, description="Words to look for, or a question.")],
    limit: Annotated[int, Field(ge=1, le=MAX_HITS, description="The maximum number of passages.")] = 10,
) -> dict[str, Any]:
    """Finds passages in the documents, best first. Each names its document and its start and end in characters.

    Use it before you answer anything about the owner's documents, and to find the id of a document. A snippet shows the
    words in context; read_document returns the passage itself.
    """
    hits = search_chunks(owner_id=context.owner_id, query=query, limit=limit)
    passages = [
        {
            "document": str(hit.document_public_id),
            "name": hit.name,
            "start": hit.start,
            "end": hit.end,
            "snippet": hit.snippet,
            **({"found_by": hit.found_by} if hit.found_by != "words" else {}),
        }
        for hit in hits
    ]
    return {"passages": passages}


@skill(level=Level.SAFE, side_effects=False, local=True)
def read_document(
    context: SkillContext,
    document: Annotated[str, Field(max_length=64, description="The document's id from search_documents.")],
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET, description="The first character to read.")] = 0,
    length: Annotated[int, Field(ge=1, le=MAX_READ_CHARS, description="How many characters to read.")] = 4_000,
) -> dict[str, Any]:
    """Reads a part of a document. `end` is where the next part starts; `chars` is the length of the whole document.

    Use it before you quote a document or rely on a passage that search_documents found.
    """
    public_id = as_uuid(document)
    if public_id is None:
        raise NotFound(f"There is no document {document}.")
    found = document_get(owner_id=context.owner_id, public_id=public_id)
    end = min(offset + length, len(found.text))
    return {
        "document": str(found.public_id),
        "name": found.name,
        "start": min(offset, end),
        "end": end,
        "chars": len(found.text),
        "text": found.text[offset:end],
    }


# --- The owner ---


@skill(level=Level.MONITORED, idempotent=True, local=True)
def tell_owner(
    context: SkillContext,
    title: Annotated[str, Field(min_length=1, max_length=TITLE_CHARS, description="One line: what happened.")],
    text: Annotated[str, Field(max_length=BODY_CHARS, description="The details, as plain text.")] = "",
) -> dict[str, Any]:
    """Sends a notification to the person this run works for, who may read it much later. Send only what matters."""
    notice = notification_create(
        owner_id=context.owner_id,
        kind=NoticeKind.AGENT,
        title=title,
        body=text,
        now=context.now,
        session_id=context.session_pk,
    )
    return {"notification_id": str(notice.public_id)}


@skill(level=Level.SAFE, idempotent=True, local=True)
def ask_person(
    context: SkillContext,
    question: Annotated[str, Field(min_length=1, max_length=MAX_CHARS, description="One clear question.")],
) -> dict[str, Any]:
    """Asks the person this run works for and waits for the answer. Ask only what you cannot find out yourself."""
    session = AgentSession.objects.get(pk=context.session_pk)
    key = context.idempotency_key.partition(":")[2]
    row = question_ask(session, key=key, text=question, now=context.now)
    return {"question_id": str(row.public_id)}


# --- Reports ---


class Section(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc] # pydantic's own name

    heading: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)]
    text: Annotated[str, Field(max_length=TEXT_CHARS, description="Markdown.")]


@skill(level=Level.SAFE, side_effects=False, local=True)
def render_report(
    title: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)],
    sections: Annotated[list[Section], Field(min_length=1, max_length=MAX_SECTIONS)],
) -> str:
    """Combines a title and sections into one Markdown text and returns it. Nothing is stored or sent."""
    parts = [f"# {_line(title)}"]
    for section in sections:
        parts.append(f"## {_line(section['heading'])}")
        if text := section["text"].strip():
            parts.append(text)
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    """Return a heading as one line that does not start with #."""
    return one_line(text, HEADING_CHARS).lstrip("# ") or "(untitled)"


# --- Agent state ---


@skill(level=Level.CONTROLLED, idempotent=True, local=True)
def set_state(
    context: SkillContext,
    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS, description="A declared field.")],
    value: Annotated[JsonValue, Field(description="The new value; null clears it.")],
) -> dict[str, Any]:
    """Sets one field of your own state, which you see again in later turns. Only declared fields can be set.

    In a chat it sets the field of your running loop.
    """
    session = AgentSession.objects.select_related("agent").get(pk=context.session_pk)
    if session.mode == Mode.CHAT:
        return {"state": chat_set_state(session, name=name, value=value, now=context.now)}
    return {"state": session_set_state(context.session_pk, name=name, value=value, now=context.now)}


@skill(level=Level.CONTROLLED, idempotent=True, local=True)
def instruct_loop(
    context: SkillContext,
    text: Annotated[str, Field(min_length=1, max_length=ALERT_CHARS, description="What the loop is to do, in full.")],
) -> dict[str, Any]:
    """Passes what the user wants on to your running loop, whose next turn reads and answers it. Only in chats.

    Use it when the user tells you to do something differently, or later, in your loop. The loop and this chat share
    nothing else: what you agree here and do not pass on, the loop does not know. The answer comes with a later message.
    """
    session = AgentSession.objects.select_related("agent").get(pk=context.session_pk)
    key = context.idempotency_key.rpartition(":")[2]
    alert = loop_instruct(session, text, key=key, now=context.now)
    return {"passed_on": True, "alert": alert.pk}


# --- Time ---


@skill(level=Level.SAFE, side_effects=False, local=True)
def now(
    context: SkillContext,
    zone: Annotated[str, Field(max_length=64, description="An IANA time zone, such as Europe/Paris.")] = "UTC",
) -> dict[str, Any]:
    """Returns the current date, time and weekday in a time zone."""
    try:
        # The time of the call, so that a repeated call returns the same.
        there = context.now.astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):  # unknown, a path out of the database, a folder of it
        raise Invalid(f"{zone!r} is not a time zone; use an IANA name such as Europe/Paris, or UTC.") from None
    return {
        "time": there.isoformat(timespec="seconds"),
        "weekday": f"{there:%A}",
        "week": there.isocalendar().week,
        "zone": zone,
    }
