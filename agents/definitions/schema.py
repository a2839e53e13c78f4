"""The schema of an agent.yaml: frozen pydantic models that refuse unknown keys. Pure: it looks up nothing.

The skills, models and collections that a file names need not exist here; whoever starts the agent reports missing ones.
A key without a value counts as omitted. docs/agents.md is the reference.
"""

from collections.abc import Iterator, Set
from dataclasses import Field as RunOption
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from agents.definitions.values import (
    DAY,
    EXPECTED,
    LONGEST,
    Amount,
    BadPath,
    Clock,
    Flag,
    Fraction,
    GuardrailSettings,
    LoopSettings,
    Model,
    Name,
    Params,
    Seconds,
    SkillName,
    SomeSeconds,
    Zone,
    expected,
    listed,
    one_of,
    one_word,
    path_steps,
    text,
    unknown_key,
    whole,
)
from agents.enums import ApprovalMode, EventSeverity, SensorKind, TriggerKind
from agents.exceptions import Invalid
from agents.policy.run_spec import MAX_NUMBER, OPTION_CHARS, OPTIONS, QUERY_CHARS
from agents.policy.schedule import MAX_CHARS, validate

# --- Problems ---


@dataclass(frozen=True)
class Problem:
    """One error: `agent.yaml:12: autonomy.idle_timeout: expected a whole number …; got "soon"`."""

    file: str
    line: int
    key: str
    expected: str
    got: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.text}"

    @property
    def text(self) -> str:
        """The problem without file and line."""
        key = f"{self.key}: " if self.key else ""
        return f"{key}expected {self.expected}{f'; got {self.got}' if self.got else ''}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "message": str(self)}


class DefinitionError(Invalid):
    """An agent.yaml is invalid. All problems that were found are listed."""

    def __init__(self, problems: tuple[Problem, ...], *, rest: "AgentDefinition | None" = None) -> None:
        """`rest` is the readable part of the text, for callers that look for further problems."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems
        self.rest = rest


# --- Sections ---


class Section(BaseModel):
    """A map that refuses unknown keys. A known key without a value counts as omitted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return the known keys, as files name them."""
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, given: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(given, dict):
            given = {key: value for key, value in given.items() if value is not None or key not in cls.known_keys()}
        try:
            return read(given)
        except ValidationError as error:
            errors = [cls._explained(found) for found in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, errors) from None

    @classmethod
    def _explained(cls, found: ErrorDetails) -> InitErrorDetails:
        """Return pydantic's error with what was expected instead."""
        place, kind = found["loc"], found["type"]
        if kind == EXPECTED:
            error = PydanticCustomError(EXPECTED, "{what}", found["ctx"])
        elif kind == "missing":
            error = expected(f"a value: {place[-1]} is required", got="nothing")
        elif kind == "extra_forbidden":
            error = unknown_key(str(place[-1]), cls.known_keys())
        elif place:
            error = expected("a map of names and values")
        else:
            error = expected(f"a map with the keys {', '.join(cls.known_keys())}")
        return {"type": error, "loc": place, "input": found["input"]}


# --- Triggers ---


TRIGGER_KINDS: Final = (TriggerKind.WATCH, TriggerKind.SCHEDULE, TriggerKind.EVENT, TriggerKind.MANUAL)
# Keys that only one kind has.
KEYS_OF_ONE_KIND: Final[dict[str, TriggerKind]] = {
    "cron": TriggerKind.SCHEDULE,
    "zone": TriggerKind.SCHEDULE,
    "catch_up_minutes": TriggerKind.SCHEDULE,
    "source": TriggerKind.EVENT,
    "event_type": TriggerKind.EVENT,
    "category": TriggerKind.EVENT,
    "min_severity": TriggerKind.EVENT,
}
# What a kind requires: one key of each group.
REQUIRED_KEYS: Final[dict[TriggerKind, dict[tuple[str, ...], str]]] = {
    TriggerKind.WATCH: {("collection",): "a collection"},
    TriggerKind.SCHEDULE: {
        ("cron",): 'five fields, such as "0 6 * * 1"',
        ("playbook", "skill"): "a playbook or a skill",
        ("collection", "query"): "a collection or a query",
    },
}
Named = Annotated[str, text(200, what="a name")]


class TriggerKeys(Section):
    """A trigger of the agent, without the options of runs. What it binds to is looked up when it is created."""

    name: Annotated[str, text(120, what="a name")]
    kind: Annotated[TriggerKind, one_of(tuple(kind.value for kind in TRIGGER_KINDS))]
    enabled: Flag = True
    collection: Annotated[str, text(120, what="the name of a collection")] | None = None
    playbook: Named | None = None
    skill: Named | None = None
    project: Named | None = None
    query: Annotated[str, text(QUERY_CHARS, what="words", needed=False)] = ""
    cron: Annotated[str, text(MAX_CHARS, what='five fields, such as "0 6 * * 1",')] = ""
    zone: Zone | None = None
    catch_up_minutes: Annotated[int, whole("minutes", most=525_600)] = 1_440
    source: Annotated[str, text(120, needed=False)] = ""
    event_type: Annotated[str, text(120, needed=False)] = ""
    category: Annotated[str, text(120, needed=False)] = ""
    min_severity: Annotated[EventSeverity, one_of(tuple(EventSeverity.values))] = EventSeverity.INFO
    max_cost_usd: Amount | None = None
    max_cost_per_day_usd: Amount | None = None
    max_runs_per_hour: Annotated[int, whole("runs", least=1, most=10_000)] = 60
    pause_after: Annotated[int, whole("runs", most=1_000)] = 50

    def conflicts(self, agent_zone: str, wrong: Set[str]) -> Iterator[tuple[str, str]]:
        """Yield keys that do not fit the others, with what was expected. Skips keys that depend on a `wrong` one."""
        if "kind" in wrong:
            return
        for key, kind in KEYS_OF_ONE_KIND.items():
            if key in self.model_fields_set and self.kind != kind:
                yield key, f"nothing: only {kind} triggers have it, and this is of kind {self.kind}"
        for keys, needed in REQUIRED_KEYS.get(self.kind, {}).items():
            if not wrong & set(keys) and not any(getattr(self, key) for key in keys):
                yield keys[0], f"{needed}: a {self.kind} needs it"
        if self.kind == TriggerKind.SCHEDULE and self.cron:
            yield from self._never_due(self.zone or agent_zone)

    def _never_due(self, zone: str) -> Iterator[tuple[str, str]]:
        try:
            validate(self.cron, zone)
        except Invalid as error:
            yield "cron", f"a schedule that can be due: {str(error).rstrip('.')}"

    def fields(self, zone: str) -> dict[str, Any]:
        """Return the fields of the trigger, without its name, kind and what it binds to."""
        bound = {"name", "kind", "collection", "playbook", "skill", "project"}
        unused = {key for key, kind in KEYS_OF_ONE_KIND.items() if kind != self.kind}
        given = {key: getattr(self, key) for key in type(self).model_fields if key not in bound | unused}
        return {**given, "zone": self.zone or zone} if "zone" in given else given


# Options of runs that are settings by name, each with the names and values of its own.
_SETTINGS: Final = {"loop": LoopSettings, "guardrails": GuardrailSettings}


def _option_key(option: RunOption[Any]) -> tuple[Any, Any]:
    """Return the type and the default of an option of runs, as the key of a trigger."""
    if settings := _SETTINGS.get(option.name):
        return settings, Field(default_factory=dict)
    if choices := option.metadata["choices"]:
        return Annotated[choices, one_of(tuple(choices.values))], next(iter(choices))
    types: dict[type, tuple[Any, Any]] = {
        bool: (Flag, False),
        int: (Annotated[int, whole("units", most=MAX_NUMBER)], 0),
        str: (Annotated[str, text(OPTION_CHARS, needed=False)], ""),
    }
    return types[option.metadata["type"]]


if TYPE_CHECKING:
    TriggerSpec = TriggerKeys
else:
    TriggerSpec = create_model(
        "TriggerSpec", __base__=TriggerKeys, **{option.name: _option_key(option) for option in OPTIONS}
    )


# --- Loops, state and sensors ---


MAX_FIELDS: Final = 100
MAX_SENSORS: Final = 50
MAX_TRIGGERS: Final = 20
FIELD_TYPES: Final = ("object", "number", "string", "array", "boolean")
# By kind of sensor: the keys of its source, how they are called, and the schemes of its addresses.
_SOURCES: Final[dict[SensorKind, tuple[tuple[str, ...], str, tuple[str, ...]]]] = {
    SensorKind.POLL: (("tool", "url"), "a tool or a url", ("http://", "https://")),
    SensorKind.STREAM: (("url",), "a url", ("http://", "https://", "ws://", "wss://")),
    SensorKind.WATCH: (("path",), "a path to a file or a folder", ()),
}


class ActiveHours(Section):
    """From `start` (included) to `end` (excluded) in the agent's zone; over midnight if the end is earlier."""

    start: Clock = "08:00"
    end: Clock = "23:00"

    @model_validator(mode="after")
    def _check_differ(self) -> Self:
        if self.start == self.end:
            raise expected("a time other than start", "end")
        return self


class Autonomy(Section):
    """The pace of a loop and its limits. The runner enforces them; the agent cannot change them.

    0 means no limit for tokens and times, and no actions at all for max_actions_per_minute.
    """

    enabled: Flag = False
    max_consecutive_turns: Annotated[int, whole("turns", least=1, most=100_000)] = 50
    token_budget_per_hour: Annotated[int, whole("tokens", most=10**12)] = 100_000
    max_actions_per_minute: Annotated[int, whole("actions", most=100_000)] = 10
    idle_timeout: Annotated[int, whole("seconds")] = 600
    active_hours: ActiveHours | None = None
    precheck_model: Model | None = None
    max_sleep: Seconds = DAY
    max_tool_rounds: Annotated[int, whole("rounds", least=1, most=100)] = 5
    wake_on_chat: Flag = True
    renew: Annotated[Literal["daily"], one_of(("daily",))] | None = None

    @property
    def longest_sleep(self) -> int:
        """In seconds. Without a limit a sleep still ends after a year, so that it has an end date."""
        return self.max_sleep or LONGEST


class FieldSpec(Section):
    """A field of the hot state: its type, how long it is fresh, and how it is refreshed."""

    type: Annotated[Literal["object", "number", "string", "array", "boolean"], one_of(FIELD_TYPES)]
    ttl: Seconds | None = None
    refresh_tool: SkillName | None = None
    refresh_params: Params = Field(default_factory=dict)
    auto_refresh: Flag | None = None
    max_items: Annotated[int, whole("items", least=1, most=10_000)] | None = None

    @property
    def refreshes(self) -> bool:
        """Whether lqops refreshes it when it is stale."""
        return self.refresh_tool is not None and self.auto_refresh is not False

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.max_items is not None and self.type != "array":
            raise expected(f"nothing: only an array has it, and this is of type {self.type}", "max_items")
        if self.refresh_tool is None and self.refresh_params:
            raise expected("a refresh_tool as well", "refresh_params")
        if self.refresh_tool is None and self.auto_refresh:
            raise expected("a refresh_tool as well", "auto_refresh")
        return self


class HotState(Section):
    """The fields of an agent's hot state."""

    fields: dict[Name, FieldSpec] = Field(default_factory=dict)

    @field_validator("fields", mode="before")
    @classmethod
    def _check_size(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            raise expected("a map of names and fields")
        if len(given) > MAX_FIELDS:
            raise expected(f"at most {MAX_FIELDS} fields, not {len(given)}")
        return given


class Source(Section):
    """The source of a sensor: a skill with its arguments, an address, or a file or folder."""

    tool: SkillName | None = None
    params: Params = Field(default_factory=dict)
    url: Annotated[str, text(2_000, what="an address")] | None = None
    path: Annotated[str, text(1_000, what="a path")] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [name for name in ("tool", "url", "path") if getattr(self, name) is not None]
        if len(given) != 1:
            raise expected(f"one of tool, url and path, not {' and '.join(given) or 'none'}")
        if self.params and self.tool is None:
            raise expected("a tool as well", "params")
        return self


class Update(Section):
    """A field that receives a reading: the whole of it, or the part that `path` names."""

    field: Name
    path: Annotated[str, text(200, what="a path such as data.items[0].price")] | None = None
    gated_by: Name | None = None

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        try:
            path_steps(path)
        except BadPath:
            raise expected("a path such as data.items[0].price") from None
        return path


class Signal(Section):
    """A small model scores each reading; a score at or above the threshold fires."""

    name: Name
    model: Model | None = None
    prompt: Annotated[str, text(4_000, what="a question to the model", lines=True)]
    threshold: Fraction = Decimal("0.8")
    notify: Flag = True
    cooldown: Seconds = 0
    spawn: Annotated[str, text(120, what="the name of a trigger of this agent")] | None = None


class SensorSpec(Section):
    """A source that updates fields of the hot state while the loop runs."""

    name: Name
    type: Annotated[SensorKind, one_of(tuple(SensorKind.values))]
    interval: SomeSeconds | None = None
    source: Source
    updates: Annotated[tuple[Update, ...], listed("updates", 50)] = ()
    signals: Annotated[tuple[Signal, ...], listed("signals", 10)] = ()

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        self._check_source()
        names = [signal.name for signal in self.signals]
        if len(set(names)) < len(names):
            raise expected("signals with different names", "signals")
        fields = [update.field for update in self.updates]
        if len(set(fields)) < len(fields):
            raise expected("each field once", "updates")
        for number, update in enumerate(self.updates):
            if update.gated_by is not None and update.gated_by not in names:
                raise expected("the name of a signal of this sensor", "updates", number, "gated_by")
        return self

    def _check_source(self) -> None:
        if self.type == SensorKind.POLL and self.interval is None:
            raise expected("a whole number of seconds, 1 or more: a poll needs one", "interval")
        keys, allowed, schemes = _SOURCES[self.type]
        if all(getattr(self.source, key) is None for key in keys):
            raise expected(f"{allowed}: a {self.type} reads nothing else", "source")
        if self.source.url is not None and not self.source.url.lower().startswith(schemes):
            raise expected(f"an address that starts with {', '.join(schemes)}", "source", "url")


class Heartbeat(Section):
    """A turn with a fixed prompt at an interval, within the active hours and apart from the loop."""

    enabled: Flag = True
    interval: SomeSeconds = 1_800
    prompt: Annotated[str, text(10_000, what="the prompt", lines=True)]


# --- The whole file ---


@dataclass(frozen=True)
class BrokenSensor:
    """A sensor with errors. It is skipped; the agent runs."""

    name: str
    kind: SensorKind
    problems: tuple[Problem, ...]

    @property
    def problem(self) -> str:
        return "; ".join(str(problem) for problem in self.problems)


class AgentKeys(Section):
    """The keys of an agent.yaml."""

    name: Annotated[str, text(120, what="a name")]
    description: Annotated[str, text(2_000, lines=True, needed=False)] = ""
    instructions: Annotated[str, text(50_000, lines=True, needed=False)] = ""
    project: Annotated[str, text(200, what="the name of a project")] | None = None
    model: Model | None = None
    mode: Annotated[ApprovalMode, one_of(tuple(ApprovalMode.values))] | None = None
    zone: Zone = "UTC"
    enabled: Flag = True
    max_cost_usd: Amount | None = None
    max_cost_per_day_usd: Amount | None = None
    skills: Annotated[tuple[SkillName, ...], listed("names of skills", 200), one_word("all")] | None = None
    loop: LoopSettings = Field(default_factory=dict)
    guardrails: GuardrailSettings = Field(default_factory=dict)
    autonomy: Autonomy | None = None
    hot_state: HotState = Field(default_factory=HotState)
    sensors: Annotated[tuple[SensorSpec, ...], listed("sensors", MAX_SENSORS)] = ()
    heartbeat: Heartbeat | None = None
    triggers: Annotated[tuple[TriggerSpec, ...], listed("triggers", MAX_TRIGGERS)] = ()


class AgentDefinition(AgentKeys):
    """An agent.yaml after reading: its keys, broken sensors, notes, and the line of each key."""

    broken_sensors: tuple[BrokenSensor, ...] = ()
    notes: tuple[Problem, ...] = ()
    lines: dict[str, int] = Field(default_factory=dict, repr=False, exclude=True)
    sensor_keys: dict[str, str] = Field(default_factory=dict, repr=False, exclude=True)

    @property
    def is_autonomous(self) -> bool:
        return self.autonomy is not None and self.autonomy.enabled

    def line_of(self, key: str) -> int:
        """Return the line of a key such as `triggers[0].playbook`; 0 if it is not in the file."""
        return self.lines.get(key, 0)
