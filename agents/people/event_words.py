"""What an event says to people, in one sentence. Made of what it holds, which may be of any shape: it never fails."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from agents.enums import EventKind

CHARS: Final = 300
MINUTE, HOUR = 60, 3_600
Data = Mapping[str, Any]


def event_sentence(kind: str, data: Data) -> str:
    tell = _SENTENCES.get(kind)
    said = " ".join((tell(data) if tell else kind).split())
    return said if len(said) <= CHARS else f"{said[: CHARS - 1].rstrip()}…"


def seconds_words(seconds: object) -> str:
    """A length of time, truncated: 90 is 1 min."""
    if not isinstance(seconds, int | float):
        return "a while"
    if seconds < MINUTE:
        return f"{int(seconds)} s"
    return f"{int(seconds) // MINUTE} min" if seconds < HOUR else f"{int(seconds) // HOUR} h"


def _started(data: Data) -> str:
    fields, alerts = _names(data.get("hot_state")), _names(data.get("alerts"))
    seen = [f"{len(fields)} field{'' if len(fields) == 1 else 's'}"] if fields else []
    seen += [f"alerts {', '.join(alerts)}"] if alerts else []
    return f"Turn {_of(data, 'turn')} began{': it sees ' + ' and '.join(seen) if seen else ''}."


def _completed(data: Data) -> str:
    ends = {
        "sleep": f"sleeps for {seconds_words(data.get('sleep_seconds'))}",
        "shutdown": "ends its loop",
        "continue": "goes on",
    }
    said = ends.get(str(data.get("yield") or ""), "goes on")
    did = f" after {', '.join(actions)}" if (actions := _names(data.get("actions"))) else ""
    return f"Turn {_of(data, 'turn')} is over{did}: the agent {said}{_because(data, 'reason')}"


def _skipped(data: Data) -> str:
    causes = {"unchanged": "nothing has changed", "immaterial": "the small model sees nothing in what has changed"}
    cause = str(data.get("cause", ""))
    return f"Turn {_of(data, 'turn')} was skipped: {causes.get(cause, cause or 'the gate stayed shut')}."


def _guardrail(data: Data) -> str:
    numbers = ", ".join(f"{name} {value}" for name, value in data.items() if name != "guardrail" and value is not None)
    return f"The guardrail {_of(data, 'guardrail')} stepped in{f' ({numbers})' if numbers else ''}."


def _sensor_error(data: Data) -> str:
    times = data.get("failures")
    often = f", {times} times in a row" if isinstance(times, int) and times > 1 else ""
    return f"The sensor {_of(data, 'sensor')} failed{often}{_because(data, 'error')}"


def _alert(data: Data) -> str:
    source = f" from {data['source']}" if data.get("source") else ""
    woken = ", and woke the agent" if data.get("woken") else ""
    return f"The alert {_of(data, 'name')} came{source}{woken}{_because(data, 'text')}"


def _decided(data: Data) -> str:
    decisions = {
        "edited": "was approved with changes",
        "expired": "was not decided on in time",
        "rejected": "was denied",
    }
    return decisions.get(decision := _of(data, "decision"), f"was {decision}")


def _error(data: Data) -> str:
    return f"{'Warning' if data.get('recoverable') else 'The run failed'}{_because(data, 'message')}"


_SENTENCES: Final[Mapping[str, Callable[[Data], str]]] = {
    EventKind.TURN_STARTED: _started,
    EventKind.TURN_COMPLETED: _completed,
    EventKind.PRECHECK_SKIPPED: _skipped,
    EventKind.GUARDRAIL_TRIGGERED: _guardrail,
    EventKind.SENSOR_UPDATED: lambda data: f"The sensor {_of(data, 'sensor')} wrote {_of(data, 'field')}.",
    EventKind.SENSOR_ERROR: _sensor_error,
    EventKind.NOTIFICATION_PUSHED: _alert,
    EventKind.APPROVAL_REQUESTED: lambda data: f"{_of(data, 'action')} waits for a person's approval.",
    EventKind.APPROVAL_RESOLVED: lambda data: f"{_of(data, 'action')} {_decided(data)}.",
    EventKind.ERROR: _error,
}


def _of(data: Data, name: str) -> str:
    return str(data.get(name) or "?")


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | dict) else []


def _because(data: Data, name: str) -> str:
    said = str(data.get(name) or "").strip().rstrip(".")
    return f": {said}." if said else "."
