"""What a sensor's signals have to judge: asked about when it comes, and again until there is an answer.

A reading is not let go before a signal has judged it. While nobody can be asked, what it has not judged waits with
its state, as many of the newest items as one question holds, and is asked about when that is over. A reading of a poll
takes the place of the one before. A model that gives no score is asked three times; whoever cannot be asked is tried
again at growing intervals, without end. What was let go all the same is counted.
What comes while a signal cools is suppressed: counted, and never asked about. The first reading after that is judged.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from agents.conf import clock
from agents.definitions.schema import Signal
from agents.sensors.asking import Asking, Unable
from agents.sensors.backoff import wait_after
from agents.sensors.rows import Held
from agents.sensors.sensor_results import Fired, plain
from agents.sensors.signals import DATA_CHARS, fires, is_cooling, line_of, newest
from agents.text.clean import storable
from audit.redaction import redact_data

AGAIN_SECONDS: Final = 5.0
LONGEST: Final = timedelta(seconds=60)  # between two tries
MOST_TRIES: Final = 3  # of a question that gets no score
SAID_CHARS: Final = 80
WHY_CHARS: Final = 300
WAITING: Final = "waiting"  # in a signal's state: what it has yet to judge,
MISSED: Final = "missed"  # and the mark of a reading that came while it cooled


@dataclass
class Question:
    """What a signal has yet to judge, how often it was asked about, and not before when it is asked about again."""

    items: list[Any]
    happening: str
    tries: int = 0
    unscored: int = 0
    after: datetime | None = None
    masked: bool = False

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Question":
        after = datetime.fromisoformat(kept["after"]) if kept.get("after") else None
        return cls(list(kept["items"]), kept["happening"], kept["tries"], kept["unscored"], after, masked=True)

    def kept(self) -> dict[str, Any]:
        """Fit for a row: without secrets."""
        if not self.masked:
            self.items, self.masked = [_storable(item) for item in self.items], True
        after = self.after.isoformat() if self.after else ""
        counts = {"tries": self.tries, "unscored": self.unscored}
        return {"items": self.items, "happening": self.happening, "after": after, **counts}

    def is_put_off(self, now: datetime) -> bool:
        """A clock that is set back does not put it off for longer."""
        return self.after is not None and timedelta(0) < self.after - now <= LONGEST

    def put_off(self, second: float) -> None:
        self.tries += 1
        wait = min(wait_after(self.tries, AGAIN_SECONDS), LONGEST.total_seconds())
        self.after = clock() + timedelta(seconds=wait * second)


def _storable(item: Any) -> Any:
    line = line_of(item)
    try:
        return redact_data(storable(item if len(line) <= DATA_CHARS else line[:DATA_CHARS]))
    except ValueError:  # nested too deeply
        return redact_data(storable(line))


class Judging:
    """`take` says what there is to judge, `judge` asks about what is due, `state` is what to keep of it all."""

    def __init__(self, held: Held, asking: Asking, second: float) -> None:
        self._held, self._asking, self._second = held, asking, second
        self._state = {name: {**state} for name, state in held.signals.items()}
        self._open: dict[str, Question] = {}
        for signal in held.spec.signals:
            state = self._state.setdefault(signal.name, {})
            state.pop("spawns", None)  # what a slice before this one has left to spawn is spawned first, and once
            if waiting := state.pop(WAITING, None):
                self._open[signal.name] = Question.of(waiting)

    def state(self) -> dict[str, Any]:
        waiting = {name: {WAITING: question.kept()} for name, question in self._open.items()}
        return {name: {**state, **waiting.get(name, {})} for name, state in self._state.items()}

    def take(self, items: Sequence[Any], happening: str, mark: str = "") -> None:
        """More to judge. With a mark it takes the place of what waits, unless the signal was given the like before."""
        now = clock()
        for signal in self._held.spec.signals:
            state, waiting = self._state[signal.name], self._open.get(signal.name)
            missed = state.pop(MISSED, None)
            if mark and state.get("mark") == mark:
                continue
            if is_cooling(signal, self._state, now):
                self._suppress(state, len(items), mark, missed)
                continue
            before = [] if mark or waiting is None else waiting.items
            kept = newest([*before, *items])
            self._let_go(state, len(before) + len(items) - len(kept))
            question = self._open[signal.name] = Question(kept, happening)
            if mark:
                state["mark"] = mark
            elif waiting is not None:
                question.unscored = waiting.unscored
            if waiting is not None and state.get("unable"):  # who could not be asked is not asked more often for it
                question.tries, question.after = waiting.tries, waiting.after

    def knows_all(self) -> bool:
        """Every signal was given the last reading to judge; one that is new, or was cooling, was not."""
        states = [self._state[signal.name] for signal in self._held.spec.signals]
        return all("mark" in state and MISSED not in state for state in states)

    def is_due(self) -> bool:
        return any(self._due(signal) for signal in self._held.spec.signals)

    def _due(self, signal: Signal) -> Question | None:
        now, question = clock(), self._open.get(signal.name)
        return None if question is None or question.is_put_off(now) else question

    async def judge(self, loop_pk: int) -> tuple[list[Fired], list[str]]:
        """Asks about what is due: which signals fired, and what went wrong."""
        fired: list[Fired] = []
        problems: list[str] = []
        for signal in self._held.spec.signals:
            question = self._due(signal)
            if question is None:
                continue
            try:
                score, said = await self._asking.score(
                    self._held, loop_pk, signal, question.items, f"{question.happening}:{question.tries}"
                )
            except Unable as error:
                problems += self._unable(signal, question, str(error))
                continue
            problems += self._answered(signal, question, score, said)
            if fires(score, signal.threshold):
                fired.append(
                    Fired(
                        name=signal.name,
                        score=str(score),
                        happening=question.happening,
                        items=tuple(question.items),
                        notify=signal.notify,
                        spawn=signal.spawn or "",
                    )
                )
        return fired, problems

    def _unable(self, signal: Signal, question: Question, why: str) -> list[str]:
        """It does not fire, and says why; while the reason stays the same, once."""
        state, why = self._state[signal.name], plain(why)[:WHY_CHARS]
        known = state.get("unable") == why
        state["unable"] = why
        question.put_off(self._second)
        return [] if known else [f"{signal.name} could not be judged: {why}"]

    def _answered(self, signal: Signal, question: Question, score: Decimal | None, said: str) -> list[str]:
        state, now = self._state[signal.name], clock().isoformat()
        state.pop("unable", None)
        state.pop("said", None)
        state |= {"at": now, "score": None if score is None else str(score)}
        if fires(score, signal.threshold):
            state["fired_at"] = now
        if score is not None:
            del self._open[signal.name]
            return []
        state["said"] = plain(said)[:SAID_CHARS]
        question.unscored += 1
        question.put_off(self._second)
        if question.unscored < MOST_TRIES:
            return []
        del self._open[signal.name]
        self._let_go(state, len(question.items))
        return [f"{signal.name} could not be judged: the model gave no score {MOST_TRIES} times"]

    def _suppress(self, state: dict[str, Any], number: int, mark: str, missed: str | None) -> None:
        """A source that shows all it has each time shows the same again: that is one reading."""
        if mark:
            state[MISSED] = mark
        if not mark or mark != missed:
            state["suppressed"] = state.get("suppressed", 0) + number

    def _let_go(self, state: dict[str, Any], number: int) -> None:
        if number:
            state["let_go"] = state.get("let_go", 0) + number
