"""The documents of the session's owner: found by words, and read by the character. Nobody else's are there."""

from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import Field

from agents.enums import Level
from agents.exceptions import NotFound
from agents.knowledge.search import document_of, search_chunks
from agents.skills.skill import SkillContext, skill

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
