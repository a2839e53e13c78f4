"""Which memories and precedents of an owner a prompt holds: those that share words with its task, newer ones first.

The same rows and the same task give the same choice, in the same order. Every read is by owner.
"""

import math
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from agents.knowledge.projects import precedent_weight, precedents_open
from agents.models import Memory, Precedent
from agents.policy.context_window import CHARS_PER_TOKEN
from agents.text.wording import likeness, shared_weights, stems

MOST_CONSIDERED: Final = 1_000  # the newest
TASK_CHARS: Final = 20_000  # of a task are compared
AGE_WEIGHT: Final = timedelta(days=180)  # a memory this much older needs twice as much in common with the task
BLOCK_CHARS: Final = 100  # for the marks around a memory
MOST_PRECEDENTS: Final = 8
ALIKE: Final = 0.6  # the share of words from which two precedents are offered for merging


def memories_for(*, owner_id: int, task: str, tokens: int) -> list[Memory]:
    """Return the kept memories that fit into so many tokens, the most relevant first.

    Relevance counts the words that a memory shares with the task, rare ones more, and halves every AGE_WEIGHT. One that
    shares none is background all the same: it follows, if there is room.
    """
    rows = list(Memory.objects.filter(owner_id=owner_id).kept()[:MOST_CONSIDERED])
    weights = shared_weights(stems(task[:TASK_CHARS]), [stems(row.content) for row in rows])
    ranked = sorted(zip(rows, weights, strict=True), key=lambda pair: (-_rank(*pair), -pair[0].pk))
    chosen: list[Memory] = []
    room = tokens * CHARS_PER_TOKEN
    for row, _ in ranked:
        size = len(row.content) + BLOCK_CHARS
        if size <= room:  # a shorter one behind it may still fit
            chosen.append(row)
            room -= size
    return chosen


def _rank(memory: Memory, weight: float) -> float:
    """Relevance and age in one figure. Ages only count against each other, so the order stays as time goes by."""
    kept_at = memory.kept_at or memory.created_at
    return math.log2(1 + weight) + kept_at.timestamp() / AGE_WEIGHT.total_seconds()


def precedents_for(*, owner_id: int, task: str, now: datetime, limit: int = MOST_PRECEDENTS) -> list[Precedent]:
    """Return the open precedents that share words with the task, the likeliest first."""
    rows = list(precedents_open(owner_id)[:MOST_CONSIDERED])
    weights = shared_weights(stems(task[:TASK_CHARS]), [stems(row.summary) for row in rows])
    likely = [(row, weight) for row, weight in zip(rows, weights, strict=True) if weight]
    likely.sort(key=lambda pair: (-pair[1], -precedent_weight(pair[0], now=now), -pair[0].pk))
    return [row for row, _ in likely[:limit]]


# --- Near-duplicates ---


def precedents_alike(precedent: Precedent, *, limit: int = MOST_PRECEDENTS) -> list[Precedent]:
    """Return the owner's other open precedents that say nearly the same, the likeliest first."""
    words = stems(precedent.summary)
    others = precedents_open(precedent.owner_id).exclude(pk=precedent.pk)[:MOST_CONSIDERED]
    rated = [(likeness(words, stems(other.summary)), other) for other in others]
    near = sorted((pair for pair in rated if pair[0] >= ALIKE), key=lambda pair: (-pair[0], pair[1].pk))
    return [other for _, other in near[:limit]]


def near_duplicates(owner_id: int, *, of: Collection[int] | None = None) -> dict[int, int]:
    """Return by the id of an open precedent, of all or of these, the id of the one that it is most like, if any."""
    rows = [(row.pk, stems(row.summary)) for row in precedents_open(owner_id)[:MOST_CONSIDERED]]
    holders: dict[str, list[int]] = {}
    for place, (_, words) in enumerate(rows):
        for word in words:
            holders.setdefault(word, []).append(place)
    found: dict[int, int] = {}
    for place, (pk, words) in enumerate(rows):
        if of is not None and pk not in of:
            continue
        # One that is alike has at least one of so many of its words, so the rarest ones tell whom to compare it with.
        rarest = sorted(words, key=lambda word: (len(holders[word]), word))
        telling = rarest[: len(rarest) - math.ceil(ALIKE * len(rarest)) + 1]
        near = {other for word in telling for other in holders[word]} - {place}
        rated = [(likeness(words, rows[other][1]), -rows[other][0]) for other in near]
        best, other_pk = max(rated, default=(0.0, 0))
        if best >= ALIKE:
            found[pk] = -other_pk
    return found
