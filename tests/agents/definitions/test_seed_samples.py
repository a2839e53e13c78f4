"""The samples from which agent.yaml was made load letter by letter, alone and together."""

from decimal import Decimal

from agents.definitions.loader import read_definition
from agents.definitions.schema import ActiveHours, Autonomy, FieldSpec, Signal
from agents.enums import SensorKind
from tests.table import every_row

HOT_STATE = """\
hot_state:
  fields:
    positions:
      type: object
      ttl: 30
      refresh_tool: get_positions
    cash:
      type: number
      ttl: 30
      refresh_tool: get_account_balance
    signals_log:
      type: array
      max_items: 20
"""
SENSORS = """\
sensors:
  - name: price_feed
    type: poll
    interval: 5
    source:
      tool: get_market_data
      params: {symbols: [AAPL, TSLA, SPY]}
    updates:
      - field: last_prices
      - field: indicators
    signals:
      - name: anomaly
        model: qwen3-1.7b
        prompt: "Is this price action anomalous? Score 0-1."
        threshold: 0.8
        notify: true
"""
AUTONOMY = """\
autonomy:
  enabled: true
  max_consecutive_turns: 50      # hard cap on turns without sleeping
  token_budget_per_hour: 100000  # pause agent if exceeded
  max_actions_per_minute: 10     # rate limit on tool calls that have side effects
  idle_timeout: 600              # shutdown after 10m of no meaningful activity
  active_hours:                  # optional, inherited from heartbeat concept
    start: "08:00"
    end: "23:00"
"""
ALL = HOT_STATE + SENSORS + AUTONOMY


def test_seed_hot_state_is_read():
    fields = read_definition(HOT_STATE).hot_state.fields

    assert fields == {
        "positions": FieldSpec(type="object", ttl=30, refresh_tool="get_positions"),
        "cash": FieldSpec(type="number", ttl=30, refresh_tool="get_account_balance"),
        "signals_log": FieldSpec(type="array", max_items=20),
    }
    assert [field.refreshes for field in fields.values()] == [True, True, False]


def test_seed_sensors_are_read():
    definition = read_definition(SENSORS)
    [sensor] = definition.sensors

    assert (sensor.name, sensor.type, sensor.interval) == ("price_feed", SensorKind.POLL, 5)
    assert sensor.source.tool == "get_market_data"
    assert sensor.source.params == {"symbols": ["AAPL", "TSLA", "SPY"]}
    assert [update.field for update in sensor.updates] == ["last_prices", "indicators"]
    question = "Is this price action anomalous? Score 0-1."
    signal = Signal(name="anomaly", model="qwen3-1.7b", prompt=question, threshold=Decimal("0.8"), notify=True)
    assert sensor.signals == (signal,)
    assert not definition.broken_sensors


def test_seed_autonomy_is_read():
    hours = ActiveHours(start="08:00", end="23:00")
    assert read_definition(AUTONOMY).autonomy == Autonomy(enabled=True, active_hours=hours)


def test_seed_sections_are_read_together():
    definition = read_definition(ALL, file="trader.yaml")

    assert definition.name == "trader"
    assert definition.is_autonomous
    assert len(definition.hot_state.fields) == 3
    assert len(definition.sensors) == 1
    assert [note.key for note in definition.notes] == ["sensors[0].updates[0].field", "sensors[0].updates[1].field"]


def test_enabled_autonomy_has_the_documented_defaults():
    assert read_definition("autonomy: {enabled: true}").autonomy.model_dump() == {
        "enabled": True,
        "max_consecutive_turns": 50,
        "token_budget_per_hour": 100_000,
        "max_actions_per_minute": 10,
        "idle_timeout": 600,
        "active_hours": None,
        "precheck_model": None,
        "max_sleep": 86_400,
        "max_tool_rounds": 5,
        "wake_on_chat": True,
        "renew": None,
        "restart": "on-failure",
        "start": "readings",
        "events": (),
        "max_restarts": 5,
    }
    assert read_definition("autonomy: {active_hours: {}}").autonomy.active_hours == ActiveHours(
        start="08:00", end="23:00"
    )


@every_row("text", ["", "name: quiet", "autonomy: {enabled: false}", "autonomy:\nhot_state:\nsensors:\n"])
def test_agent_without_sections_starts_nothing(text):
    definition = read_definition(text)

    assert not definition.is_autonomous
    assert (definition.sensors, definition.hot_state.fields, definition.heartbeat) == ((), {}, None)
