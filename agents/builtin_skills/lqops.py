"""The documents of the session's owner: found by words, and read by the character. Nobody else's are there."""

from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from agents.enums import Level, NoticeKind
from agents.exceptions import NotFound
from agents.knowledge.search import document_of, search_chunks
from agents.loop.state import NAME_CHARS, session_set_state
from agents.models import AgentSession
from agents.people.notifications import BODY_CHARS, TITLE_CHARS, notice_create
from agents.sessions.questions import MAX_CHARS, question_ask
from agents.skills.skill import SkillContext, skill
from agents.text.clean import one_line

MOST_HITS: Final = 50
MOST_CHARS: Final = 20_000
FURTHEST: Final = 10**9


@skill(level=Level.SAFE, side_effects=False, local=True)
def search_documents(
    context: SkillContext,
    query: Annotated[str, Field(min_length=1, max_length=1_000, description="Words to look for, or a question.")],
    limit: Annotated[int, Field(ge=1, le=MOST_HITS, description="The most passages to give back.")] = 10,
) -> dict[str, Any]:
    """Finds passages in the documents, best first. Each says in which document it stands, and from where to where.

    A snippet shows the words in their surroundings; read_document gives the passage itself.
    """
    hits = search_chunks(owner_id=context.owner_id, query=query, limit=limit)
    passages = [
        {
            "document": str(hit.document_public_id),
            "name": hit.name,
            "start": hit.start,
            "end": hit.end,
            "snippet": hit.snippet,
        }
        for hit in hits
    ]
    return {"passages": passages}


@skill(level=Level.SAFE, side_effects=False, local=True)
def read_document(
    context: SkillContext,
    document: Annotated[str, Field(max_length=64, description="The document's id, as search_documents gives it.")],
    offset: Annotated[int, Field(ge=0, le=FURTHEST, description="The first character to read.")] = 0,
    length: Annotated[int, Field(ge=1, le=MOST_CHARS, description="How many characters to read.")] = 4_000,
) -> dict[str, Any]:
    """Reads a part of a document. `end` is where it ends and the next part begins; `chars` is how long the whole is."""
    found = document_of(owner_id=context.owner_id, public_id=_id(document))
    end = min(offset + length, len(found.text))
    return {
        "document": str(found.public_id),
        "name": found.name,
        "start": min(offset, end),
        "end": end,
        "chars": len(found.text),
        "text": found.text[offset:end],
    }


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"There is no document {text[:64]}.") from None


# --- Telling the owner something: the notice that runs leave for the person they work for ---


@skill(level=Level.MONITORED, idempotent=True, local=True)
def tell_owner(
    context: SkillContext,
    title: Annotated[str, Field(min_length=1, max_length=TITLE_CHARS, description="One line: what has happened.")],
    text: Annotated[str, Field(max_length=BODY_CHARS, description="Plain text: what there is to know.")] = "",
) -> dict[str, Any]:
    """Leaves a notice for the person this run works for, who may read it much later. Tell only what is worth it."""
    notice = notice_create(
        owner_id=context.owner_id,
        kind=NoticeKind.AGENT,
        title=title,
        body=text,
        now=context.now,
        session_id=context.session_pk,
    )
    return {"notification_id": str(notice.public_id)}


# --- Asking a person ---


@skill(level=Level.SAFE, idempotent=True, local=True)
def ask_person(
    context: SkillContext,
    question: Annotated[str, Field(min_length=1, max_length=MAX_CHARS, description="One clear question.")],
) -> dict[str, Any]:
    """Asks the person this run works for, and waits for the answer. Ask only what you cannot find out yourself."""
    session = AgentSession.objects.get(pk=context.session_pk)
    key = context.idempotency_key.partition(":")[2]
    asked = question_ask(session, key=key, text=question, now=context.now)
    return {"question_id": str(asked.public_id)}


# --- Reports as Markdown. The text is given back and stored nowhere ---


HEADING_CHARS: Final = 200
TEXT_CHARS: Final = 50_000
MOST_SECTIONS: Final = 50


class Section(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc] # how pydantic is told

    heading: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)]
    text: Annotated[str, Field(max_length=TEXT_CHARS, description="Markdown.")]


@skill(level=Level.SAFE, side_effects=False, local=True)
def render_report(
    title: Annotated[str, Field(min_length=1, max_length=HEADING_CHARS)],
    sections: Annotated[list[Section], Field(min_length=1, max_length=MOST_SECTIONS)],
) -> str:
    """Puts a title and sections together into one Markdown text, and gives it back. It keeps and sends nothing."""
    parts = [f"# {_line(title)}"]
    for section in sections:
        parts.append(f"## {_line(section['heading'])}")
        if text := section["text"].strip():
            parts.append(text)
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    """A heading is one line, and does not begin with a sign that makes another heading of it."""
    return one_line(text, HEADING_CHARS).lstrip("# ") or "(untitled)"


# --- What an agent keeps of its own from one turn to the next, in fields that were declared for it ---


@skill(level=Level.CONTROLLED, idempotent=True, local=True)
def set_state(
    context: SkillContext,
    name: Annotated[str, Field(min_length=1, max_length=NAME_CHARS, description="A field that was declared for you.")],
    value: Annotated[JsonValue, Field(description="What it is to hold; null empties it.")],
) -> dict[str, Any]:
    """Sets one field of your own state, which you will see again in later turns. Only declared fields can be set."""
    return {"state": session_set_state(context.session_pk, name=name, value=value, now=context.now)}
