"""An agent that works by itself, and everything that its loop leaves in rows."""

import textwrap
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace

from agents.conf import clock
from agents.definitions.in_force import definition_of
from agents.loop.turns import alert_push
from agents.models import GateDay, HotField, Sensor, Turn
from agents.roster.agents import agent_start
from agents.sensors.rows import sensors_sync
from tests.factories import make_agent

TEXT = textwrap.dedent("""\
    autonomy: {enabled: true, idle_timeout: 900}
    hot_state:
      fields:
        price: {type: number, ttl: 60}
        news: {type: array, max_items: 3}
        mood: {type: string}
    sensors:
      - name: ticker
        type: poll
        interval: 5
        source: {url: "https://prices.example.org/acme"}
        updates: [{field: price}]
      - name: inbox
        type: poll
        source: {path: /var/mail}
""")


def make_autonomous(text=TEXT, **fields):
    agent = make_agent(definition=text, definition_version=1, **fields)
    sensors_sync(agent, definition_of(agent), clock())
    return agent


def make_turn(loop, number, **fields):
    now = clock()
    given = {"state": "done", "started_at": now, "ended_at": now, "yielded": "continue", "tokens": 1_200}
    return Turn.objects.create(session=loop, number=number, cost_usd=Decimal("0.012"), **given | fields)


def make_going(agent=None, *, by=None):
    """Its loop runs: it sees fields of which one is stale, has an alert, a sensor that fails, turns, and savings."""
    agent, now = agent or make_autonomous(), clock()
    loop = agent_start(agent=agent, by=by, now=now).loop
    old = now - timedelta(minutes=5)
    for name, value, source, at in (("price", 31.5, "sensor", old), ("news", ["a", "b"], "agent", now)):
        HotField.objects.create(
            session=loop, name=name, value=value, source=source, source_name="ticker", updated_at=at, changed_at=at
        )
    failing = {"state": "failing", "failures": 3, "problem": "The server said 503.", "value": "31.5", "read_at": old}
    Sensor.objects.filter(agent=agent, name="ticker").update(**failing)
    alert_push(loop, name="price_drop", text="The price fell.", source_name="ticker", now=now)
    turns = [
        make_turn(loop, 1, yielded="sleep", sleep_seconds=90, reason="Nothing to do.", actions=1),
        make_turn(loop, 2, state="skipped", yielded="", reason="unchanged", tokens=0),
        make_turn(loop, 3, state="open", ended_at=None, yielded=""),
    ]
    day = {"asked": 4, "opened": 2, "unchanged": 5, "immaterial": 3, "spent_usd": "0.001", "saved_usd": "0.096"}
    GateDay.objects.create(agent=agent, day=now.date(), **day)
    return SimpleNamespace(agent=agent, loop=loop, turns=turns)
