"""The documents of a search by words, and the limits within which both databases look for and compare their chunks.

With these limits a search takes about as long however many chunks there are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from django.db import connection

MOST_RANKED = 500  # chunks of each part, for each hundred of hits that are asked for
MOST_FOLLOWED = 1_000  # chunks that are followed through the whole index, the newest of a word that stands in more
MOST_DOCUMENTS = 100  # that are read one by one: all of a small scope, or the newest
MOST_JOINED: Final = 6  # words of which chunks with half of them are looked for
SNIPPET_WORDS: Final = 32
GAP: Final = " … "
_HUNDRED: Final = 100

Row = tuple[Any, ...]

COLUMNS: Final = 'chunk.id, chunk.document_id, document.public_id, document.name, chunk.start, chunk."end"'
OWNED: Final = "document.owner_id = %s AND document.deleted_at IS NULL"
_INSIDE = "attachment.detached_at IS NULL AND collection.deleted_at IS NULL AND collection.owner_id = document.owner_id"
_ATTACHED = f"""
    SELECT 1 FROM agents_attachment AS attachment
    JOIN agents_collection AS collection ON collection.id = attachment.collection_id
    WHERE attachment.document_id = document.id AND {_INSIDE} AND {{which}}
"""  # noqa: S608 made of constants; what people enter is passed as parameters
_DOCUMENTS = f"SELECT document.id FROM agents_document AS document WHERE {OWNED} ORDER BY document.id DESC LIMIT %s"  # noqa: S608 as above
# By attachment: a collection may be little among the documents of its owner.
_DOCUMENTS_ATTACHED = f"""
SELECT document.id FROM agents_attachment AS attachment
JOIN agents_collection AS collection ON collection.id = attachment.collection_id
JOIN agents_document AS document ON document.id = attachment.document_id
WHERE {OWNED} AND {_INSIDE} AND {{which}}
ORDER BY attachment.attached_at DESC
LIMIT %s
"""  # noqa: S608 as above


@dataclass(frozen=True)
class Scope:
    """An owner's documents: all of them, or those with an attachment that meets the condition."""

    owner_id: int
    which: str = ""
    values: tuple[Any, ...] = ()

    @property
    def within(self) -> str:
        """Return the condition on a document, for all of them."""
        return f"AND EXISTS ({_ATTACHED.format(which=self.which)})" if self.which else ""

    @property
    def each_within(self) -> str:
        """Return the condition for few documents: PostgreSQL makes no join of it, which would read all attachments."""
        return f"AND ({_ATTACHED.format(which=self.which)} LIMIT 1) IS NOT NULL" if self.which else ""

    @property
    def parameters(self) -> list[Any]:
        return [self.owner_id, *self.values]

    def newest_documents(self) -> list[int]:
        """Return up to MOST_DOCUMENTS and one more."""
        sql = _DOCUMENTS_ATTACHED.format(which=self.which) if self.which else _DOCUMENTS
        return [pk for (pk,) in read(sql, [*self.parameters, MOST_DOCUMENTS + 1])]


def read(sql: str, parameters: Sequence[Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        rows: list[Row] = cursor.fetchall()
    return rows


def most_ranked(limit: int) -> int:
    return MOST_RANKED * math.ceil(limit / _HUNDRED)


def half_of(words: Sequence[str]) -> tuple[list[str], int]:
    """Return the words of which half are looked for, and how many that is. Of many the longest: they are rarer."""
    longest = sorted(words, key=len, reverse=True)[:MOST_JOINED]
    return longest, (len(longest) + 1) // 2


def parts_of(words: Sequence[str]) -> list[list[tuple[str, ...]]]:
    """Return groups of words for each part: a chunk matches a part if it has all words of one of its groups."""
    longest, half = half_of(words)
    everything = [tuple(words)] if len(words) > 1 else []
    some = [*combinations(longest, half)] if len(words) > 2 else []  # noqa: PLR2004 half of two is any
    parts: list[list[tuple[str, ...]]] = [everything, some, [(word,) for word in words]]
    return [groups for groups in parts if groups]
