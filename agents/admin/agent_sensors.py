"""An agent's sensors on its page: where each looks, what it came to, and what its signals say of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from agents.admin.display import ago
from agents.enums import SensorState
from agents.models import Sensor
from audit.redaction import redact

LOOKS: Final = {SensorState.FINE: "good", SensorState.FAILING: "bad", SensorState.INVALID: "bad",
                SensorState.UNRESOLVED: "warn"}  # fmt: skip
SET_ASIDE: Final = frozenset({SensorState.INVALID, SensorState.UNRESOLVED})


@dataclass(frozen=True)
class SignalLine:
    """A signal: its last score, or why there is none, against its threshold, and when it fired last."""

    name: str
    said: str
    threshold: str
    fired: str
    bad: bool = False


@dataclass(frozen=True)
class SensorLine:
    row: Sensor
    state: str
    look: str
    source: str
    next: str
    signals: tuple[SignalLine, ...]


def sensor_line(row: Sensor, due: str, now: datetime) -> SensorLine:
    rests = not row.wanted and row.state not in SET_ASIDE
    source, signals = row.config.get("source") or {}, row.config.get("signals") or ()
    return SensorLine(
        row=row,
        state="at rest" if rests else row.state,
        look="" if rests else LOOKS.get(SensorState(row.state), ""),
        source=redact(str(source.get("url") or source.get("path") or source.get("tool") or "")),
        next=due,
        signals=tuple(_signal(spec, row.signals.get(spec["name"]) or {}, now) for spec in signals),
    )


def _signal(spec: Mapping[str, Any], state: Mapping[str, Any], now: datetime) -> SignalLine:
    fired_at = state.get("fired_at")
    return SignalLine(
        name=spec["name"],
        said=_said(state),
        threshold=str(spec["threshold"]),
        fired=f"fired {ago(datetime.fromisoformat(fired_at), now)}" if fired_at else "never fired",
        bad=bool(state.get("unable")) or "said" in state,
    )


def _said(state: Mapping[str, Any]) -> str:
    if unable := state.get("unable"):
        said = f"could not be judged: {unable}"
    elif "said" in state:
        said = f"no score: {state['said'] or 'it said nothing'}"
    elif state.get("score") is not None:
        said = f"scored {state['score']}"
    else:
        said = "not judged yet"
    left = [f"{len(state['waiting']['items'])} to be judged"] if state.get("waiting") else []
    left += [f"{state['let_go']} never judged"] if state.get("let_go") else []
    left += [f"{state['suppressed']} suppressed by its cooldown"] if state.get("suppressed") else []
    return ", ".join([said, *left])
