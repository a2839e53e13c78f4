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
    Clock,
    Flag,
    Fraction,
    GuardrailSettings,
    Headers,
    Limit,
    LoopSettings,
    Model,
    Name,
    Number,
    Params,
    Range,
    Seconds,
    SecretName,
    SkillName,
    SomeSeconds,
    Zone,
    check_with_secrets,
    expected,
    listed,
    one_map,
    one_of,
    one_word,
    text,
    unknown_key,
    value_of,
    whole,
)
from agents.enums import ApprovalMode, EventSeverity, SensorKind, TriggerKind
from agents.exceptions import Invalid
from agents.policy.conditions import PATTERN_CHARS, Condition, pattern_problem
from agents.policy.paths import BadPath, path_steps
from agents.policy.queries import query_problem
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
MONTH_CAP: Final = "max_cost_per_month_usd"  # no column of an agent or trigger, as other settings are


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
    max_cost_per_month_usd: Amount | None = None
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
        """Return the fields of the trigger's row, without its name, kind and what it binds to."""
        bound = {"name", "kind", "collection", "playbook", "skill", "project", MONTH_CAP}
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
STARTS: Final = ("readings", "at_once")
RESTARTS: Final = ("always", "on-failure", "never")
FIELD_TYPES: Final = ("object", "number", "string", "array", "boolean")
# By kind of sensor: the keys of its source, how they are called, and the schemes of its addresses.
_SOURCES: Final[dict[SensorKind, tuple[tuple[str, ...], str, tuple[str, ...]]]] = {
    SensorKind.POLL: (
        ("tool", "url", "items", "query", "imap"),
        "a tool, a url, items, a query or imap",
        ("http://", "https://"),
    ),
    SensorKind.STREAM: (("url",), "a url", ("http://", "https://", "ws://", "wss://")),
    SensorKind.WATCH: (("path", "tail"), "a path to a file or a folder, or a file to tail", ()),
}
# Keys of a source that belong to others: one of those has to be there.
_SOURCE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "params": ("tool", "url", "items"),
    "headers": ("url", "items"),
    "database": ("query",),
    "max_rows": ("query",),
    "into": ("path",),
}
MAX_ROWS: Final = 1_000


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
    restart: Annotated[Literal["always", "on-failure", "never"], one_of(RESTARTS)] = "on-failure"
    start: Annotated[Literal["readings", "at_once"], one_of(STARTS)] = "readings"
    events: Annotated[tuple[Name, ...], listed("types of events", 100)] = ()
    max_restarts: Annotated[int, whole("restarts", most=1_000)] = 5

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
    description: Annotated[str, text(300, needed=False)] = ""

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


class Mailbox(Section):
    """A folder of a mailbox, read over IMAP with TLS."""

    host: Annotated[str, text(253, what="the name of a host")]
    port: Annotated[int, whole("the port", least=1, most=65_535)] = 993
    user: Annotated[str, text(200, what="a user name")]
    password: SecretName
    folder: Annotated[str, text(200, what="the name of a folder")] = "INBOX"


class Source(Section):
    """The source of a sensor: exactly one of tool, url, items, query, imap, path and tail."""

    tool: SkillName | None = None
    url: Annotated[str, text(2_000, what="an address")] | None = None
    items: Annotated[str, text(2_000, what="the address of a feed")] | None = None
    params: Params = Field(default_factory=dict)
    headers: Headers = Field(default_factory=dict)
    query: Annotated[str, text(4_000, what="a query", lines=True)] | None = None
    database: Annotated[str, text(64, what="the name of a database")] | None = None
    max_rows: Annotated[int, whole("rows", least=1, most=MAX_ROWS)] = 100
    imap: Mailbox | None = None
    path: Annotated[str, text(1_000, what="a path")] | None = None
    into: Annotated[str, text(120, what="the name of a collection")] | None = None
    tail: Annotated[str, text(1_000, what="a path")] | None = None

    @property
    def key(self) -> str:
        """The key that says what is read."""
        return next(name for name in SOURCE_KEYS if getattr(self, name) is not None)

    @property
    def address(self) -> str | None:
        """The address that is fetched or listened to, if it is one."""
        return self.url or self.items

    @property
    def file(self) -> str | None:
        """The file or folder that is read, if it is one."""
        return self.path or self.tail

    @property
    def text(self) -> str:
        """What is read, in one line, for people."""
        if self.imap is not None:
            return f"{self.imap.user} at {self.imap.host}, {self.imap.folder}"
        return str(getattr(self, self.key))

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [name for name in SOURCE_KEYS if getattr(self, name) is not None]
        if len(given) != 1:
            listed_keys = f"{', '.join(SOURCE_KEYS[:-1])} and {SOURCE_KEYS[-1]}"
            raise expected(f"one of {listed_keys}, not {' and '.join(given) or 'none'}")
        for name, wanted in _SOURCE_KEYS.items():
            if name in self.model_fields_set and given[0] not in wanted:
                raise expected(f"a {' or '.join(wanted)} as well", name)
        if self.query is not None:
            self._check_query()
        if self.params and self.address is not None:
            check_with_secrets(self.params, "params")
        return self

    def _check_query(self) -> None:
        if self.database is None:
            raise expected("the name of a database: a query needs one", "database")
        if problem := query_problem(str(self.query)):
            raise expected(f"one statement that reads: {problem}", "query")


SOURCE_KEYS: Final = ("tool", "url", "items", "query", "imap", "path", "tail")


def checked_path(path: str) -> str:
    try:
        path_steps(path)
    except BadPath:
        raise expected("a path such as data.items[0].price") from None
    return path


class Update(Section):
    """A field that receives a reading: the whole of it, or the part that `path` names."""

    field: Name
    path: Annotated[str, text(200, what="a path such as data.items[0].price")] | None = None
    gated_by: Name | None = None

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        return checked_path(path)


class When(Section):
    """A condition on a reading, or on the part of it that `path` names: one of above, below, … and absent_for."""

    path: Annotated[str, text(200, what="a path such as data.items[0].price")] | None = None
    above: Number | None = None
    below: Number | None = None
    between: Range | None = None
    changed: Annotated[Literal[True], value_of("true", lambda value: value is True or None, const=True)] | None = None
    matches: Annotated[str, text(PATTERN_CHARS, what="a pattern")] | None = None
    absent_for: SomeSeconds | None = None
    clear: Limit | None = None
    hold: SomeSeconds | None = Field(default=None, alias="for")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        given = [name for name in _COMPARISONS if getattr(self, name) is not None]
        if len(given) != 1 and given != ["matches", "absent_for"]:
            raise expected(f"one of {', '.join(_COMPARISONS)}, not {' and '.join(given) or 'none'}")
        if self.matches is not None and (problem := pattern_problem(self.matches)):
            raise expected(f"a pattern that RE2 understands: {problem}", "matches")
        if self.hold is not None and given[-1] in {"changed", "absent_for"}:
            raise expected(f"nothing: {given[-1]} has no duration besides", "for")
        if self.clear is not None:
            self._check_clear()
        return self

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        return checked_path(path)

    def _check_clear(self) -> None:
        """Where a condition clears has to lie beyond its limit."""
        if self.above is not None and not (isinstance(self.clear, Decimal) and self.clear <= self.above):
            raise expected(f"a number of at most {self.above}, where the condition clears", "clear")
        if self.below is not None and not (isinstance(self.clear, Decimal) and self.clear >= self.below):
            raise expected(f"a number of at least {self.below}, where the condition clears", "clear")
        if self.between is not None:
            low, high = self.between
            if not (isinstance(self.clear, tuple) and self.clear[0] <= low and self.clear[1] >= high):
                raise expected(f"two numbers around {low} and {high}, outside of which it clears", "clear")
        elif self.above is None and self.below is None:
            raise expected("nothing: only above, below and between have it", "clear")

    @property
    def condition(self) -> Condition:
        given = {name: getattr(self, name) for name in (*_COMPARISONS, "path", "clear")}
        return Condition(**given | {"changed": bool(self.changed), "hold": self.hold or 0})


_COMPARISONS: Final = ("above", "below", "between", "changed", "matches", "absent_for")


class Signal(Section):
    """Fires on readings: when conditions are met or, where no condition can say it, by a small model's score."""

    name: Name
    when: Annotated[tuple[When, ...], listed("conditions", 10, least=1), one_map()] | None = None
    each: Flag | None = None
    model: Model | None = None
    prompt: Annotated[str, text(4_000, what="a question to the model", lines=True)] | None = None
    threshold: Fraction = Decimal("0.8")
    notify: Flag = True
    cooldown: Seconds = 0
    spawn: Annotated[str, text(120, what="the name of a trigger of this agent")] | None = None

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(one.condition for one in self.when or ())

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.when is None) == (self.prompt is None):
            given = "both" if self.when else "none"
            raise expected(f"conditions (when) or a question to a model (prompt), not {given}", "prompt")
        unused = ("model", "threshold") if self.when is not None else ("each",)
        for name in unused:
            if name in self.model_fields_set:
                needed = "a prompt" if self.when is not None else "conditions (when)"
                raise expected(f"nothing: it belongs to {needed}", name)
        if self.each:
            self._check_each()
        return self

    def _check_each(self) -> None:
        """Items that are judged one by one have no state that could hold, clear, change or be absent."""
        for number, one in enumerate(self.when or ()):
            for name in ("changed", "absent_for", "clear", "hold"):
                if getattr(one, name) is not None:
                    key = "for" if name == "hold" else name
                    raise expected("nothing: with each: true, every item is judged alone", "when", number, key)


class SensorSpec(Section):
    """A source that updates fields of the hot state while the loop runs."""

    name: Name
    description: Annotated[str, text(300, needed=False)] = ""
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
        address = self.source.address
        if address is not None and not address.lower().startswith(schemes):
            raise expected(f"an address that starts with {', '.join(schemes)}", "source", self.source.key)

    @property
    def shows_items(self) -> bool:
        """Whether what it reads are items that stand for themselves: lines, messages, files."""
        return self.source.key in {"items", "imap", "path", "tail"}

    def judges_each(self, signal: Signal) -> bool:
        """Whether a signal judges items one by one: by default those of a source of items, unless it needs a state."""
        if signal.each is not None:
            return signal.each
        needs_state = any(
            one.absent_for is not None or one.changed or one.hold or one.clear for one in signal.conditions
        )
        return self.shows_items and not needs_state


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
    max_cost_per_month_usd: Amount | None = None
    skills: Annotated[tuple[SkillName, ...], listed("names of skills", 200), one_word("all")] | None = None
    loop: LoopSettings = Field(default_factory=dict)
    guardrails: GuardrailSettings = Field(default_factory=dict)
    autonomy: Autonomy | None = None
    hot_state: HotState = Field(default_factory=HotState)
    sensors: Annotated[tuple[SensorSpec, ...], listed("sensors", MAX_SENSORS)] = ()
    heartbeat: Heartbeat | None = None
    triggers: Annotated[tuple[TriggerSpec, ...], listed("triggers", MAX_TRIGGERS)] = ()


def agent_json_schema() -> dict[str, Any]:
    """Return the JSON schema of an agent.yaml, for editors: its keys, types and limits, but not how keys go together.

    The name may be left out of a file, and any optional key may stand without a value.
    """
    made = AgentKeys.model_json_schema()
    for section in (made, *made["$defs"].values()):
        for name, part in section.get("properties", {}).items():
            part.pop("title", None)
            part.pop("default", None)
            if name not in section.get("required", ()) and {"type": "null"} not in part.get("anyOf", ()):
                section["properties"][name] = {"anyOf": [part, {"type": "null"}]}
    made["required"].remove("name")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "lqops agent"}


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
