"""Sensors on an agent's page: source, state and signals."""

import textwrap
from datetime import timedelta

import pytest

from agents.conf import clock
from agents.models import Sensor
from agents.roster.agents import agent_start, agent_stop
from tests.agents.admin.rows import page, sign_in, text_of
from tests.agents.autonomy import make_autonomous

pytestmark = pytest.mark.django_db
TEXT = textwrap.dedent("""\
    autonomy: {enabled: true}
    hot_state: {fields: {price: {type: number}}}
    sensors:
      - name: ticker
        type: poll
        interval: 5
        source: {url: "https://prices.example.org/acme?access_token=a1B2c3D4e5F6g7H8i9J0k1L2"}
        updates: [{field: price}]
        signals:
          - {name: odd, prompt: Is it odd?, threshold: 0.7}
          - {name: high, when: {path: price, above: 80}}
      - {name: box, type: watch, source: {path: inbox/today}}
""")
WAITING = {"items": [1, 2], "happening": "x", "tries": 0, "unscored": 0, "after": ""}


@pytest.fixture
def agent(client):
    agent = make_autonomous(TEXT, owner=sign_in(client))
    agent_start(agent=agent, by=None, now=clock())
    Sensor.objects.filter(agent=agent).update(state="fine", value="31.5")
    return agent


def sensors(client, agent):
    shown = " ".join(text_of(client.get(page(type(agent), "change", agent.pk))).split())
    return shown[shown.index('id="sensors"') : shown.index('id="turns"')]


def test_sensor_source_is_shown_without_secrets(client, agent):
    shown = sensors(client, agent)
    assert "https://prices.example.org/acme" in shown
    assert "inbox/today" in shown
    assert "a1B2c3D4e5F6" not in shown


def test_sensor_of_a_stopped_agent_is_idle(client, agent):
    assert '<span class="lq-chip good">fine</span>' in sensors(client, agent)
    agent_stop(agent=agent, by=None, now=clock())
    shown = sensors(client, agent)
    assert '<span class="lq-chip ">idle</span>' in shown
    assert "fine" not in shown


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "not scored yet</span>"),
        ({"score": "0.35"}, "score 0.35</span>"),
        ({"score": None, "said": "I think so"}, 'class="lq-bad">no score: I think so</span>'),
        ({"score": None, "said": ""}, "no score: empty reply</span>"),
        (
            {"unable": "it has no price", "waiting": WAITING, "let_go": 3},
            'class="lq-bad">scoring failed: it has no price, 2 to be scored, 3 never scored</span>',
        ),
        ({"score": "0.9", "unscored": 2}, "score 0.9, 2 readings unscored</span>"),
        ({"score": "0.9", "suppressed": 4}, "score 0.9, 4 suppressed by its cooldown</span>"),
    ],
)
def test_signal_shows_its_last_score_or_why_not(client, agent, state, said):
    Sensor.objects.filter(agent=agent, name="ticker").update(signals={"odd": state})
    shown = sensors(client, agent)
    assert said in shown
    assert "threshold 0.7; never fired" in shown


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({}, "not judged yet</span>"),
        ({"met": True, "conditions": [{"on": True}]}, "condition met</span>"),
        ({"met": False, "conditions": [{}], "suppressed": 2}, "condition not met, 2 suppressed by its cooldown</span>"),
        ({"fault": "there is nothing at price"}, 'class="lq-bad">cannot be judged: there is nothing at price</span>'),
    ],
)
def test_condition_shows_whether_it_is_met_or_why_it_cannot_be_judged(client, agent, state, said):
    Sensor.objects.filter(agent=agent, name="ticker").update(signals={"high": state})
    assert said in sensors(client, agent)


def test_signal_shows_when_it_fired_last(client, agent):
    state = {"odd": {"score": "0.9", "fired_at": (clock() - timedelta(minutes=5)).isoformat()}}
    Sensor.objects.filter(agent=agent, name="ticker").update(signals=state)
    assert "threshold 0.7; fired 5 minutes ago" in sensors(client, agent)
