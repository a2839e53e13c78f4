"""A trial reads each sensor once, judges each signal and asks the gate, and keeps nothing."""

from io import StringIO

import pytest
import yaml
from django.core.management import CommandError, call_command

from agents.conf import clock
from agents.exceptions import Invalid
from agents.models import Agent, AgentSession, Alert, Document, HotField, Sensor
from agents.sensors.trial import agent_try, trial_lines
from agents.sessions.reads import purposes
from tests.agents.sensors.conftest import MODEL
from tests.agents.sensors.scene import Scene, poll, sensor, stream
from tests.agents.sensors.sources import Events, Web
from tests.factories import make_agent, make_price

pytestmark = pytest.mark.django_db(transaction=True)


def question(name="odd", **more):
    return {"name": name, "model": MODEL, "prompt": "Is it odd?", **more}


def make_scene(serving, tmp_path):
    make_price(MODEL)
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "a.txt").write_text("A contract.")
    (tmp_path / "app.log").write_text("one\nERROR two\n")
    web = serving(Web, {"n": 90})
    conditions = [
        {"name": "hot", "when": {"path": "n", "above": 80}},
        {"name": "lost", "when": {"path": "m", "above": 1}},
    ]
    return Scene(
        poll(web.url, name="web", signals=[*conditions, question()]),
        poll(serving(Web, lambda request: (503, {}, b"{}")).url, name="down", signals=[question()]),
        sensor("box", "watch", {"path": "box", "into": "Contracts"}, (), ()),
        sensor("log", "watch", {"tail": "app.log"}, (), [{"name": "errors", "when": {"matches": "ERROR"}}]),
        stream(serving(Events, most=1, pause=0).url, name="events"),
        fields={"value": "object"},
    )


def by_name(found):
    return {one["name"]: one for one in found}


def test_trial_reads_and_judges_everything_and_keeps_nothing(serving, model, tmp_path):
    asked = model("0.9 (high)", "no")
    scene = make_scene(serving, tmp_path)
    text = {**scene.text, "autonomy": {"enabled": True, "precheck_model": MODEL}}
    Agent.objects.filter(pk=scene.agent.pk).update(definition=yaml.safe_dump(text))
    before = list(Sensor.objects.order_by("pk").values())
    facts = agent_try(agent=Agent.objects.get(pk=scene.agent.pk), by=None, now=clock())

    sensors = by_name(facts["sensors"])
    signals = by_name(sensors["web"]["signals"])
    assert (sensors["web"]["value"], sensors["web"]["ok"]) == ('{"n": 90}', True)
    assert (signals["hot"]["fires"], signals["odd"]["fires"], signals["odd"]["score"]) == (True, True, "0.9")
    assert signals["lost"]["problem"] == "there is nothing at m"
    assert (sensors["down"]["ok"], sensors["down"]["problem"]) == (False, "the server answered with status 503")
    assert sensors["box"]["value"].startswith('{"name": "a.txt", "kind": "present"')
    assert (sensors["log"]["value"], sensors["log"]["signals"][0]["fires"]) == ("ERROR two", True)
    assert sensors["events"]["value"] == "1"
    assert facts["gate"]["opens"] is False
    assert (facts["ok"], len(asked.requests)) == (False, 2)
    assert AgentSession.objects.get(public_id=facts["session"]).status == "completed"
    assert list(Sensor.objects.order_by("pk").values()) == before
    assert [rows.objects.count() for rows in (Alert, HotField, Document)] == [0, 0, 0]


def test_command_prints_what_happened_and_the_cost_and_fails_if_anything_did(serving, model, tmp_path):
    model("maybe")
    scene = make_scene(serving, tmp_path)
    out = StringIO()
    with pytest.raises(CommandError, match="not everything works"):
        call_command("agent", "try", scene.agent.name, stdout=out)

    said = out.getvalue()
    assert "hot: fires. n above 80" in said
    assert "odd: does not fire. no score: maybe" in said
    assert "down: FAILED: the server answered with status 503" in said
    assert "Spent: $" in said


def test_reply_without_a_score_is_a_problem_of_the_trial(serving, model):
    model("maybe")
    make_price(MODEL)
    scene = Scene(poll(serving(Web, {"n": 1}).url, signals=[question()]), fields={"value": "object"})
    facts = agent_try(agent=scene.agent, by=None, now=clock())

    assert (facts["ok"], facts["sensors"][0]["signals"][0]["problem"]) == (False, "no score: maybe")


def test_agent_without_sensors_has_nothing_to_try():
    with pytest.raises(Invalid, match="neither sensors nor a gate"):
        agent_try(agent=make_agent(), by=None, now=clock())


def test_gate_that_cannot_be_asked_opens_and_says_why():
    text = {"name": "Gated", "autonomy": {"enabled": True, "precheck_model": "unpriced"}}
    agent = make_agent(definition=yaml.safe_dump(text))
    facts = agent_try(agent=agent, by=None, now=clock())

    assert (facts["ok"], facts["gate"]["opens"]) == (False, True)
    [line] = [line for line in trial_lines(facts) if line.startswith("Gate: opens (unpriced). PROBLEM: ")]
    assert "No price is declared for model 'unpriced'" in line


def test_run_of_a_trial_is_named_after_its_agent():
    agent = make_agent(name="Gated", definition="autonomy: {enabled: true, precheck_model: unpriced}\n")
    session = AgentSession.objects.get(public_id=agent_try(agent=agent, by=None, now=clock())["session"])
    assert purposes([session])[session.pk] == "trial of Gated"
