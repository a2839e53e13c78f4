"""Orders that pull a lever and cannot be made out: they are answered with what could be meant, never by a model.

Somebody who says halt, pause, approve or run wants that, now. A model could not do it, would take its time, and costs
money. What asks about a lever, or begins with such a word and speaks of something else, goes to the model.
"""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from agents.ask.actions import which_agent, which_approval, which_session
from agents.ask.intents import RELEASE, is_covered
from agents.ask.language import Request, Word, opening, words
from agents.ask.naming import Answer, Asker, lines, told
from agents.ask.router_naming import CUES, Names, names_in, rows_of
from agents.ask.runs import GO_BY, READ, choices, draft
from agents.ask.whens import when_of
from agents.ledger.boundary import TO_RELEASE, current_halt, halt_told

_ALIKE: Final = 0.8  # two words that differ by a slip of a finger, not by what they mean
_BETWEEN: Final = words("the a an my our this that on over in with using by against for and or then if to of")
_NOUNS: Final = CUES.keys() | words("session sessions run runs agents approval approvals request")
_POINTING: Final = words("it that this these those them one ones first last latest all both everything everybody")
_BARE: Final = 3  # words, without those in between
_OTHERWISE: Final = "To put something to a model, begin a chat, or say it in other words."


def lever_missed(text: str, who: Asker) -> Answer | None:
    """What could be meant by an order that no fast path understood; None if it is no such order."""
    request = opening(text)
    if request is None or request.is_question or request.words[0].quoted:
        return None
    if is_covered(request, RELEASE):
        return replace(_release(), path="halt_session")
    said = request.words[0].said
    if said in _MISSED and not _is_order(request, who):
        return None
    names = names_in(request, who.by, ["agent", "trigger", *GO_BY, *READ])
    if said in _MISSED:
        path, answered = _MISSED[said]
        return replace(answered(request, names, who), path=path)
    meant = get_close_matches(said, _MISSED.keys() - {"every"}, n=1, cutoff=_ALIKE)
    if not meant or not (names.found or request.ids or request.said & _NOUNS):
        return None
    repeat = f"{meant[0]}{request.text[request.words[0].end :]}".strip()
    answer = told(f"Nothing was done: there is no order {said!r}. Did you mean: {repeat}", repeat=repeat)
    return replace(answer, path=_MISSED[meant[0]][0])


def _is_order(request: Request, who: Asker) -> bool:
    """It is bare, or points at something, or speaks of what lqops has. `Stop using long words` is for somebody else."""
    rest = {word.said for word in request.words[1:]}
    if len(rest - _BETWEEN) < _BARE or request.ids or rest & (_NOUNS | _POINTING):
        return True
    if request.words[0].said == "every" and when_of(request.text) is not None:
        return True
    return bool(names_in(request, who.by, ["agent", "trigger", *GO_BY]).found)


def _release() -> Answer:
    """Nothing is released by words: who does it takes the lever, which asks whether they may."""
    halt = current_halt()
    if halt is None:
        return told("Nothing was done: nothing is halted.", halted=False)
    return told(f"Nothing was released. {halt_told(halt)} {TO_RELEASE}", halted=True)


def _halt(request: Request, names: Names, who: Asker) -> Answer:
    return which_session(who)


def _agent(request: Request, names: Names, who: Asker) -> Answer:
    verb = request.words[0].said
    missing = _unknown(request, names)
    because = f"Nothing was done: there is no agent {missing}." if missing else "Nothing was done."
    return which_agent(verb, who, names.of("agent"), because)


def _approval(request: Request, names: Names, who: Asker) -> Answer:
    return which_approval("approve" if request.words[0].said == "approve" else "reject", who)


def _run(request: Request, names: Names, who: Asker) -> Answer:
    """Names the first thing that is not there, and what there is of its kind."""
    cued = [(place, CUES[word.said]) for place, word in enumerate(request.words) if word.said in CUES]
    for place, kind in cued:
        named = _words(request, names, place + 1)
        if named:
            return _known(kind, f"Nothing was done: there is no {kind} {named}.", who)
    if cued and not names.found:
        return choices(cued[0][1], who)
    text = "Nothing was done. Say what is to run, and on what: run playbook <name> on collection <name>."
    return told(f"{text} {_OTHERWISE}", missing=["playbook", "collection"])


def _every(request: Request, names: Names, who: Asker) -> Answer:
    if when_of(request.text) is None:
        return draft(None, names, who)
    text = "Nothing was done. Say nothing but how often, what is to run and on what: "
    return told(f"{text}every 6 hours run playbook <name> on collection <name>. {_OTHERWISE}")


# By the word that an order begins with: the fast path that it misses, and what is answered.
_MISSED: Final[dict[str, tuple[str, Callable[[Request, Names, Asker], Answer]]]] = {
    "halt": ("halt_session", _halt),
    "stop": ("halt_session", _halt),
    "pause": ("switch_agent", _agent),
    "resume": ("switch_agent", _agent),
    "approve": ("decide_approval", _approval),
    "reject": ("decide_approval", _approval),
    "deny": ("decide_approval", _approval),
    "run": ("run_now", _run),
    "start": ("run_now", _run),
    "every": ("create_schedule", _every),
}


def _unknown(request: Request, names: Names) -> str:
    """The words after the verb that name nothing."""
    place = next((place for place, word in enumerate(request.words) if word.said in CUES), 0)
    return _words(request, names, place + 1)


def _words(request: Request, names: Names, start: int) -> str:
    """The words from here to the next one that is known, as they are written."""
    found: list[Word] = []
    for place, word in enumerate(request.words[start:], start):
        if place in names.places or (found and not word.quoted and word.said in _BETWEEN | CUES.keys()):
            break
        if word.quoted or word.said not in _BETWEEN:
            found.append(word)
    return request.text[found[0].start : found[-1].end] if found else ""


def _known(kind: str, because: str, who: Asker) -> Answer:
    rows: list[Any] = rows_of(kind, who.by)
    data = [{"kind": kind, "name": row.name, "id": str(row.public_id)} for row in rows]
    head = f"{because} Known:" if rows else f"{because} You have none."
    return told(lines(head, [row.name for row in rows]), choices=data)
