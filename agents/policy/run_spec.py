"""RunSpec, what a run is to do: one typed value from the form, the API, the command or the trigger to the walk.

A session keeps it as JSON in `params`; sessions of other modes keep other keys there, which are not read here.
To add an option, add a field with `option()` below and a column of the same name to Trigger: API, command line, forms,
agent.yaml and the checks of triggers take it from OPTIONS. If running again keeps it: `_KEPT_WITH_TRIGGER`, firing.py.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, Final, Self

from agents.enums import AnalysisMode, TextChoices

QUERY_CHARS: Final = 500
GOAL_CHARS: Final = 20_000
OPTION_CHARS: Final = 500  # of an option that is text
MAX_NUMBER: Final = 1_000_000  # of an option that is a number


def option(
    help_text: str, *, default: Any, label: str, choices: type[TextChoices] | None = None, flag: str = ""
) -> Any:
    """Declare a field that people set on triggers and when they start a run.

    The default gives its type: a flag, a number, a text (with `choices`: one of them) or an object. `flag` is its
    option on the command line; an object has none.
    """
    about = {"type": type(default), "help": help_text, "label": label, "choices": choices, "flag": flag}
    return field(default_factory=lambda: default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Rows are named by their public id, a skill by its name. Empty values are not set."""

    # Target: what the run works by
    playbook: str = ""
    skill: str = ""
    goal: str = ""

    # Inputs: what it reads
    document: str = ""
    collection: str = ""
    query: str = ""
    event: str = ""
    since: str = ""  # ISO time: only documents attached later
    until: str = ""  # ISO time: only documents attached up to then
    baseline: bool = False  # reads nothing; the next run of the schedule reads what is new since
    put_off: int = 0  # documents left for the next run of the schedule

    # Options
    emit_artifacts: bool = option(
        "The run may save drafts into the collection.", default=False, label="Save drafts", flag="--artifacts"
    )
    review_flagged: bool = option(
        "A run with privilege or scope concerns waits for approval before it delivers.",
        default=False,
        label="Require approval when concerns are flagged",
        flag="--review",
    )
    judge_citations: bool = option(
        "The judge models say whether each quote supports its finding.",
        default=False,
        label="Judge quotes",
        flag="--judge",
    )
    analysis_mode: str = option(
        "single: one question to the model. agentic: steps in which it may call skills. A goal is always agentic.",
        default="",
        label="Analysis",
        choices=AnalysisMode,
        flag="--analysis",
    )
    loop: Mapping[str, Any] = option("Settings of the step loop.", default={}, label="Step loop")
    guardrails: Mapping[str, Any] = option("Limits of the step loop.", default={}, label="Guardrails")

    # Cap of the run; kept on the session itself
    max_cost_usd: Decimal | None = None

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Build a spec from rows and values, as surfaces have them. None means not set."""
        return cls(**{name: _named(name, value) for name, value in given.items() if value is not None})

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Read what a session keeps. A value of the wrong type counts as not set."""
        event = params.get("event")
        found = {**params, "event": event.get("id")} if isinstance(event, Mapping) else params
        return cls(**{name: found[name] for name in _STORED if _fits(_STORED[name], found.get(name))})

    def to_params(self) -> dict[str, Any]:
        """Return what a session keeps: everything that is set, but the cap."""
        stored = {name: getattr(self, name) for name in _STORED if getattr(self, name)}
        return stored | ({"event": {"id": self.event}} if self.event else {})

    def over(self, other: "RunSpec") -> "RunSpec":
        """Return `other`, with everything that is set here in its place."""
        unset = vars(RunSpec())
        return replace(other, **{name: value for name, value in vars(self).items() if value != unset[name]})

    @property
    def is_agentic(self) -> bool:
        return self.analysis_mode == AnalysisMode.AGENTIC

    @property
    def has_target(self) -> bool:
        return bool(self.playbook or self.skill or self.goal)

    @property
    def has_inputs(self) -> bool:
        return bool(self.document or self.collection or self.query or self.event)


OPTIONS: Final[tuple[Field[Any], ...]] = tuple(each for each in fields(RunSpec) if each.metadata)
OPTION_NAMES: Final = tuple(each.name for each in OPTIONS)
_STORED: Final[Mapping[str, Any]] = {name: value for name, value in vars(RunSpec()).items() if name != "max_cost_usd"}


def _named(name: str, value: Any) -> Any:
    if name == "skill":
        return getattr(value, "name", value)
    return str(value.public_id) if hasattr(value, "public_id") else value


def _fits(default: Any, value: Any) -> bool:
    """Return whether a stored value is of the type of its default. True is no number."""
    return isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool)
