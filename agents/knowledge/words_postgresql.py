"""Search by words on PostgreSQL.

GIN reads all chunks with a word before the newest are known, and takes long to join common words. So the index is asked
for groups of words that few chunks have, as the planner expects. The others are looked for among the newest chunks of
the installation, NEWEST of them, or twice as many for one word, and in the newest documents of what is searched.
"""

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Final

from agents.knowledge import scope as bounds
from agents.knowledge.scope import COLUMNS, OWNED, SNIPPET_WORDS, Row, Scope, most_ranked, parts_of, read

NEWEST = 10_000
ENOUGH: Final = 100  # of the newest chunks: the newest documents are not read
MOST_JOINED: Final = 20_000  # chunks with the rarest word of a group
UNKNOWN: Final = "qqxxqqxx"  # stands for every word of which the planner knows nothing

Groups = Sequence[tuple[str, ...]]

# Query and range are constants, so that the planner can weigh the index against a walk. A function is not in any index.
_MATCHES = "chunk.words @@ ({query})"
_WALKED = "ts_match_vq(chunk.words, {query})"
_NEWEST = f"""
SELECT chunk.id FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
WHERE {{matches}} AND chunk.id > %s AND {OWNED} {{within}}
ORDER BY chunk.id DESC
LIMIT %s
"""  # noqa: S608 made of constants; what people enter is passed as parameters
# If not for MATERIALIZED, the planner might walk down all rows in the hope of finding enough of them early.
_INDEXED = f"""
WITH chunk AS MATERIALIZED (SELECT id, document_id FROM agents_chunk AS chunk WHERE {{matches}})
SELECT chunk.id FROM chunk JOIN agents_document AS document ON document.id = chunk.document_id
WHERE {OWNED} {{within}}
ORDER BY chunk.id DESC
LIMIT %s
"""  # noqa: S608 as above
_IN_DOCUMENTS = """
WITH chunk AS MATERIALIZED (SELECT id FROM agents_chunk AS chunk WHERE document_id = ANY(%s) AND {matches})
SELECT id FROM chunk ORDER BY id DESC LIMIT %s
"""
_HEADLINE = f'StartSel="", StopSel="", MaxFragments=1, MaxWords={SNIPPET_WORDS}, MinWords=16'
# Snippets are made only for the rows returned.
_RANKED = f"""
SELECT id, document_id, public_id, name, start, "end", ts_headline('english', text, {{any}}, '{_HEADLINE}')
FROM (
    SELECT {COLUMNS}, chunk.text, ts_rank(chunk.words, {{any}}) AS fit, ts_rank_cd(chunk.words, {{any}}) AS near
    FROM agents_chunk AS chunk JOIN agents_document AS document ON document.id = chunk.document_id
    WHERE chunk.id = ANY(%s)
    ORDER BY fit DESC, near DESC, chunk.id
    LIMIT %s
) AS best
ORDER BY fit DESC, near DESC, id
"""  # noqa: S608 as above


def find(scope: Scope, words: Sequence[str], limit: int) -> list[Row]:
    """Return the best chunks, ranked together."""
    found = _candidates(scope, words, most_ranked(limit))
    ranked = _RANKED.format(any=_tsquery([(word,) for word in words]))
    return read(ranked, [*words, *words, *words, list(found), limit]) if found else []


def _candidates(scope: Scope, words: Sequence[str], most: int) -> set[int]:
    """Return the newest chunks with all of the words, with half of them and with any."""
    documents = scope.newest_documents()
    parts = parts_of(words)
    if len(documents) <= bounds.MOST_DOCUMENTS:
        return {pk for groups in parts for pk in _read(groups, documents, most)} if documents else set()
    is_rare = _Expected(words).is_rare
    found: set[int] = set()
    for groups in parts:
        rare = [group for group in groups if is_rare(group)]
        often = [group for group in groups if not is_rare(group)]
        found |= _indexed(scope, rare, most) if rare else set()
        newest = _newest(scope, often, most) if often else set()
        found |= newest
        if often and len(newest) < ENOUGH:
            found |= _read(often, documents[: bounds.MOST_DOCUMENTS], most)
    return found


def _indexed(scope: Scope, groups: Groups, most: int) -> set[int]:
    # One condition for each: GIN is slow with a query that has both AND and OR.
    matches = " OR ".join(_MATCHES.format(query=_tsquery([group])) for group in groups)
    sql = _INDEXED.format(matches=matches, within=scope.each_within)
    return {pk for (pk,) in read(sql, [*chain(*groups), *scope.parameters, most])}


def _newest(scope: Scope, groups: Groups, most: int) -> set[int]:
    alone = len(groups[0]) == 1
    matches = (_MATCHES if alone else _WALKED).format(query=_tsquery(groups))
    sql = _NEWEST.format(matches=matches, within=scope.each_within)
    [(last,)] = read("SELECT max(id) FROM agents_chunk", [])
    above = (last or 0) - (NEWEST * 2 if alone else NEWEST)
    return {pk for (pk,) in read(sql, [*chain(*groups), above, *scope.parameters, most])}


def _read(groups: Groups, documents: Sequence[int], most: int) -> set[int]:
    sql = _IN_DOCUMENTS.format(matches=_WALKED.format(query=_tsquery(groups)))
    return {pk for (pk,) in read(sql, [list(documents), *chain(*groups), most])}


class _Expected:
    """How many chunks the planner expects with each word. ANALYZE counts the most common ones."""

    def __init__(self, words: Sequence[str]) -> None:
        every = "SELECT 1 FROM agents_chunk"
        each = [f"{every} WHERE words @@ {_tsquery([(word,)])}" for word in (UNKNOWN, *words)]
        [(explained,)] = read(f"EXPLAIN (FORMAT JSON) {' UNION ALL '.join([every, *each])}", [UNKNOWN, *words])
        [plan] = json.loads(explained) if isinstance(explained, str) else explained
        self.chunks, self.unknown, *rows = [node["Plan Rows"] for node in plan["Plan"]["Plans"]]
        self.rows = dict(zip(words, rows, strict=True))

    def is_rare(self, group: Sequence[str]) -> bool:
        rows = [self.rows[word] for word in group]
        if min(rows) <= self.unknown:
            return True
        together = self.chunks * math.prod(number / self.chunks for number in rows)
        return min(rows) <= MOST_JOINED and together <= bounds.MOST_FOLLOWED


def _tsquery(groups: Groups) -> str:
    word = "plainto_tsquery('english', %s)"
    return " || ".join(f"({' && '.join([word] * len(group))})" for group in groups)
