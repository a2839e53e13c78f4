"""Answers to requests for an action that no fast path understood: what could be meant.

Somebody who says halt, pause, approve or run wants that now. A model could not do it, takes its time and costs money.
A question about an action, or a sentence about something else, goes to the model.
"""

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from agents.ask.actions import draft, which_agent, which_approval, which_of_kind, which_run
from agents.ask.answers import Answer, AskContext, message
from agents.ask.language import Request, Word, read_loosely, words
from agents.ask.naming import INSTRUCTIONS, KIND_WORDS, KINDS, Names, names_in
from agents.ask.times import when_of

_SIMILAR: Final = 0.8
_SHORT: Final = 3  # words, without those that only link others
_LINKS: Final = words("the a an my our this that on over in with using by against for and or then if to of")
_NOUNS: Final = KIND_WORDS.keys() | words("session sessions run runs agents approval approvals request")
_POINTERS: Final = words("it that this these those them one ones first last latest all both everything everybody")
_ELSE: Final = "To ask the model, begin a chat or use other words."


def suggestion(context: AskContext) -> Answer | None:
    """What could be meant by a request for an action; None if it is not one."""
    request = read_loosely(context.text)
    if request is None or request.is_question or request.words[0].quoted:
        return None
    verb = request.words[0].text
    meant = [verb] if verb in _SUGGESTIONS else get_close_matches(verb, _VERBS, n=1, cutoff=_SIMILAR)
    if not meant:
        return None
    names = names_in(request, context.user, KINDS)
    path, suggest = _SUGGESTIONS[meant[0]]
    if verb in _SUGGESTIONS:
        return replace(suggest(request, names, context), path=path) if _is_action(request, names) else None
    if not (names.found or request.ids or request.vocabulary & _NOUNS):
        return None
    repeat = f"{meant[0]}{request.text[request.words[0].end :]}".strip()
    text = f"Nothing was done: {verb!r} is not a known action. Did you mean: {repeat}"
    return replace(message(text, repeat=repeat), path=path)


def _is_action(request: Request, names: Names) -> bool:
    """It is short, points at something, or names what lqops has. "Stop using long words" does not."""
    rest = {word.text for word in request.words[1:]}
    if len(rest - _LINKS) < _SHORT or request.ids or rest & (_NOUNS | _POINTERS):
        return True
    if request.words[0].text == "every" and when_of(request.text) is not None:
        return True
    return bool(names.of("agent", "trigger", *INSTRUCTIONS))


def _halt(request: Request, names: Names, context: AskContext) -> Answer:
    return which_run(context)


def _agent(request: Request, names: Names, context: AskContext) -> Answer:
    place = next((place for place, word in enumerate(request.words) if word.text in KIND_WORDS), 0)
    unknown = _unknown(request, names, place + 1)
    reason = f"Nothing was done: there is no agent {unknown}." if unknown else "Nothing was done."
    return which_agent(request.words[0].text, context, names.of("agent"), reason)


def _approval(request: Request, names: Names, context: AskContext) -> Answer:
    return which_approval("approve" if request.words[0].text == "approve" else "deny", context)


def _run(request: Request, names: Names, context: AskContext) -> Answer:
    """Say which thing does not exist, and what there is of its kind."""
    kinds = [(place, KIND_WORDS[word.text]) for place, word in enumerate(request.words) if word.text in KIND_WORDS]
    for place, kind in kinds:
        if unknown := _unknown(request, names, place + 1):
            return which_of_kind(kind, context, f"Nothing was done: there is no {kind} {unknown}.")
    if kinds and not names.found:
        return which_of_kind(kinds[0][1], context, f"Nothing was done: say which {kinds[0][1]} to run.")
    text = "Nothing was done. Say what to run, and on what: run playbook <name> on collection <name>."
    return message(f"{text} {_ELSE}", missing=["playbook", "collection"])


def _schedule(request: Request, names: Names, context: AskContext) -> Answer:
    if when_of(request.text) is None:
        return draft(None, names, context)
    text = "Nothing was done. Say only how often, what to run and on what: "
    return message(f"{text}every 6 hours run playbook <name> on collection <name>. {_ELSE}")


# By the first word of the request.
_SUGGESTIONS: Final[dict[str, tuple[str, Callable[[Request, Names, AskContext], Answer]]]] = {
    "halt": ("halt_session", _halt),
    "stop": ("halt_session", _halt),
    "pause": ("switch_agent", _agent),
    "resume": ("switch_agent", _agent),
    "approve": ("decide_approval", _approval),
    "reject": ("decide_approval", _approval),
    "deny": ("decide_approval", _approval),
    "run": ("run_now", _run),
    "start": ("run_now", _run),
    "every": ("create_schedule", _schedule),
}
_VERBS: Final = _SUGGESTIONS.keys() - {"every"}


def _unknown(request: Request, names: Names, start: int) -> str:
    """The words from here to the next known one, as they are written."""
    found: list[Word] = []
    for place, word in enumerate(request.words[start:], start):
        if place in names.places or (found and not word.quoted and word.text in _LINKS | KIND_WORDS.keys()):
            break
        if word.quoted or word.text not in _LINKS:
            found.append(word)
    return request.text[found[0].start : found[-1].end] if found else ""
