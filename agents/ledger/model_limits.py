"""How long questions and answers of each model may be, as its declaration says."""

from typing import Final

from agents.definitions.catalogue import declaration_of
from agents.enums import Purpose
from agents.policy.model_catalogue import answer_table

ANSWER_TOKENS: Final = 4_096
# Questions with these purposes ask for a few words and say how many tokens that takes, unless the model's table does.
SHORT_ANSWERS: Final = frozenset(Purpose) - {Purpose.CHAT, Purpose.AUTONOMOUS_EXECUTOR}


def context_tokens(model: str) -> int:
    """The tokens that a question and its answer may have together; 0 if none are declared."""
    return int(declaration_of(model).get("context_window", 0))


def answer_tokens(model: str, purpose: str = Purpose.AUTONOMOUS_EXECUTOR, *, otherwise: int = ANSWER_TOKENS) -> int:
    """The most tokens of an answer, with what the model thinks; `otherwise` if none are declared."""
    return _declared_tokens(model, purpose) or otherwise


def question_tokens(model: str, *, answer: int) -> int:
    """The tokens of a question that leave room for its answer; 0 if no context window is declared.

    An answer counts as half of the window at most.
    """
    window = context_tokens(model)
    return window - min(answer, window // 2)


def thinks(model: str) -> bool:
    """Whether the model is declared to think before it answers. Of its thoughts, less may be sent than is paid for."""
    return bool(declaration_of(model).get("reasoning"))


def fitting_tokens(model: str, purpose: str, wanted: int) -> int:
    """The tokens that the answer to a request gets: what it wants, within what the model declares.

    A model that thinks before it answers gets all that is declared: its thoughts take most of them.
    """
    declared = _declared_tokens(model, purpose)
    if thinks(model):
        return declared or max(wanted, _table(model).get("default", ANSWER_TOKENS))
    if declared is None:
        return wanted
    return declared if purpose in SHORT_ANSWERS else min(wanted, declared)


def _declared_tokens(model: str, purpose: str) -> int | None:
    table = _table(model)
    return table.get(purpose) or (None if purpose in SHORT_ANSWERS else table.get("default"))


def _table(model: str) -> dict[str, int]:
    return answer_table(declaration_of(model).get("max_tokens", {}))
