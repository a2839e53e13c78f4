"""Triggers as an agent.yaml names them. What they bind to is named, and looked up by the service that makes them."""

from collections.abc import Iterator, Set
from typing import Annotated, Any, Final

from pydantic import Field

from agents.definitions.section import Section
from agents.definitions.values import Amount, Flag, Settings, Zone, one_of, text, whole
from agents.enums import AnalysisMode, EventSeverity, TriggerKind
from agents.exceptions import Invalid
from agents.policy.schedule import MAX_CHARS, validate

KINDS: Final = (TriggerKind.WATCH, TriggerKind.SCHEDULE, TriggerKind.EVENT, TriggerKind.MANUAL)
# What only one kind has a use for.
OF_ONE_KIND: Final[dict[str, TriggerKind]] = {
    "cron": TriggerKind.SCHEDULE,
    "zone": TriggerKind.SCHEDULE,
    "catch_up_minutes": TriggerKind.SCHEDULE,
    "source": TriggerKind.EVENT,
    "event_type": TriggerKind.EVENT,
    "category": TriggerKind.EVENT,
    "min_severity": TriggerKind.EVENT,
}
# What a kind cannot do without: one key of each group.
NEEDED: Final[dict[TriggerKind, dict[tuple[str, ...], str]]] = {
    TriggerKind.WATCH: {("collection",): "the name of a collection: a watch needs one"},
    TriggerKind.SCHEDULE: {
        ("cron",): 'five fields, such as "0 6 * * 1": a schedule needs them',
        ("playbook", "skill"): "the name of a playbook, or a skill: a schedule needs one of them",
        ("collection", "query"): "the name of a collection, or a query: a schedule needs one of them",
    },
}
Named = Annotated[str, text(200, what="a name")]


class TriggerSpec(Section):
    """A trigger of the agent. `zone` is the agent's unless it is given."""

    name: Annotated[str, text(120, what="a name")]
    kind: Annotated[TriggerKind, one_of(tuple(kind.value for kind in KINDS))]
    enabled: Flag = True
    collection: Annotated[str, text(120, what="the name of a collection")] | None = None
    playbook: Named | None = None
    skill: Named | None = None
    project: Named | None = None
    query: Annotated[str, text(500, what="words", needed=False)] = ""
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
    emit_artifacts: Flag = False
    review_flagged: Flag = False
    judge_citations: Flag = False
    analysis_mode: Annotated[AnalysisMode, one_of(tuple(AnalysisMode.values))] = AnalysisMode.SINGLE
    loop: Settings = Field(default_factory=dict)
    guardrails: Settings = Field(default_factory=dict)

    def misfits(self, agent_zone: str, wrong: Set[str]) -> Iterator[tuple[str, str]]:
        """Keys that do not go together, each with what was expected there. Nothing is said of what hangs on a key that
        is `wrong` by itself."""
        if "kind" in wrong:
            return
        for key, kind in OF_ONE_KIND.items():
            if key in self.model_fields_set and self.kind != kind:
                yield key, f"nothing: only {kind} triggers have it, and this is of kind {self.kind}"
        for keys, needed in NEEDED.get(self.kind, {}).items():
            if not wrong & set(keys) and not any(getattr(self, key) for key in keys):
                yield keys[0], needed
        if self.kind == TriggerKind.SCHEDULE and self.cron:
            yield from self._never_due(self.zone or agent_zone)

    def _never_due(self, zone: str) -> Iterator[tuple[str, str]]:
        try:
            validate(self.cron, zone)
        except Invalid as error:
            yield "cron", f"a schedule that is due some day: {str(error).rstrip('.')}"

    def fields(self, zone: str) -> dict[str, Any]:
        """What the services for triggers take, but for the name, the kind and what it binds to."""
        bound = {"name", "kind", "collection", "playbook", "skill", "project"}
        useless = {key for key, kind in OF_ONE_KIND.items() if kind != self.kind}
        given = {key: getattr(self, key) for key in type(self).model_fields if key not in bound | useless}
        return {**given, "zone": self.zone or zone} if "zone" in given else given
