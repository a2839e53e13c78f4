"""Search by words on PostgreSQL.

GIN reads all chunks with a word before the newest are known, and takes long to join common words. So the index is asked
for groups of words that few chunks have, as the planner expects. The others are looked for among the NEWEST chunks of
the installation, and in the newest documents of what is searched, if those have fewer than are asked for.
"""

import json
import math
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Final

from agents.knowledge import scope as bounds
from agents.knowledge.scope import COLUMNS, OWNED, SNIPPET_WORDS, Row, Scope, most_ranked, parts_of, read

NEWEST = 10_000
MOST_JOINED: Final = 20_000  # chunks with each word of a group that all stand in more than MOST_FOLLOWED
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
SELECT {COLUMNS}, ts_headline('english', chunk.text, {{any}}, '{_HEADLINE}')
FROM (
    SELECT id, document_id, start, "end", text, ts_rank(words, {{any}}) AS fit, ts_rank_cd(words, {{any}}) AS near
    FROM agents_chunk WHERE id = ANY(%s)
    ORDER BY fit DESC, near DESC, id
    LIMIT %s
) AS chunk
JOIN agents_document AS document ON document.id = chunk.document_id
WHERE {OWNED} {{within}}
ORDER BY fit DESC, near DESC, chunk.id
"""  # noqa: S608 as above


def find(scope: Scope, words: Sequence[str], limit: int) -> list[Row]:
    """Return the best chunks, ranked together."""
    found = _candidates(scope, words, limit)
    ranked = _RANKED.format(any=_tsquery([(word,) for word in words]), within=scope.each_within)
    return read(ranked, [*words, *words, *words, list(found), limit, *scope.parameters]) if found else []


def _candidates(scope: Scope, words: Sequence[str], limit: int) -> set[int]:
    """Return the newest chunks with all of the words, with half of them and with any."""
    most, documents, parts = most_ranked(limit), scope.newest_documents(), parts_of(words)
    if len(documents) <= bounds.MOST_DOCUMENTS:
        return {pk for groups in parts for pk in _read(groups, documents, most)} if documents else set()
    expected = _Expected(words)
    found: set[int] = set()
    for groups in parts:
        rare = [group for group in groups if expected.is_rare(group)]
        often = [group for group in groups if not expected.is_rare(group)]
        if rare:
            found |= _indexed(scope, rare, expected, most)
        if often:
            newest = _newest(scope, often, expected, most)
            found |= newest if len(newest) >= limit else newest | _read(often, documents[: bounds.MOST_DOCUMENTS], most)
    return found


def _indexed(scope: Scope, groups: Groups, expected: "_Expected", most: int) -> set[int]:
    """Return the newest chunks that match, by the index. It joins words only if none of them is rare."""
    followed = [group for group in groups if expected.is_followed(group)]
    conditions = [_matching(followed, expected)] if followed else []
    # One condition for each: GIN is slow with a query that has both AND and OR.
    conditions += [(_MATCHES.format(query=_tsquery([group])), [*group]) for group in groups if group not in followed]
    sql = _INDEXED.format(matches=" OR ".join(sql for sql, _ in conditions), within=scope.each_within)
    return {pk for (pk,) in read(sql, [*chain(*(words for _, words in conditions)), *scope.parameters, most])}


def _newest(scope: Scope, groups: Groups, expected: "_Expected", most: int) -> set[int]:
    """Return those of the newest chunks that match."""
    matches, words = _matching(groups, expected)
    sql = _NEWEST.format(matches=matches, within=scope.each_within)
    above = expected.last - NEWEST
    return {pk for (pk,) in read(sql, [*words, above, *scope.parameters, most])}


def _matching(groups: Groups, expected: "_Expected") -> tuple[str, list[str]]:
    """Return a condition, and its words: the index is asked for one word of each group alone, if at all."""
    rarest = [*{expected.rarest(group) for group in groups}]
    any_of = _MATCHES.format(query=_tsquery([(word,) for word in rarest]))
    if len(groups[0]) == 1:
        return any_of, rarest
    return f"({any_of} AND {_WALKED.format(query=_tsquery(groups))})", [*rarest, *chain(*groups)]


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

    @cached_property
    def last(self) -> int:
        [(last,)] = read("SELECT max(id) FROM agents_chunk", [])
        return last or 0

    def rarest(self, group: Sequence[str]) -> str:
        return min(group, key=self.rows.__getitem__)

    def is_followed(self, group: Sequence[str]) -> bool:
        """Say whether few chunks have one of the words."""
        return bool(self.rows[self.rarest(group)] <= max(self.unknown, bounds.MOST_FOLLOWED))

    def is_rare(self, group: Sequence[str]) -> bool:
        """Say whether few chunks have these words, and the index finds them soon."""
        rows = [self.rows[word] for word in group]
        together = self.chunks * math.prod(number / self.chunks for number in rows)
        return self.is_followed(group) or (together <= bounds.MOST_FOLLOWED and max(rows) <= MOST_JOINED)


def _tsquery(groups: Groups) -> str:
    word = "plainto_tsquery('english', %s)"
    return " || ".join(f"({' && '.join([word] * len(group))})" for group in groups)
