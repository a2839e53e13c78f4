"""Agents that pace themselves, as the tests of flows begin them and see them at the model."""

from agents.enums import Mode, Status
from agents.models import AgentSession, Turn
from agents.roster.agents import agent_start
from agents.roster.files import agent_import
from tests.factories import make_user
from tests.flows.cluster import now
from tests.flows.processes import until

SCORES = "You score readings of a sensor."
TURN = "Look at what has changed, do what it calls for, and yield."
SLEEP = '<skill>yield(mode="sleep", sleep=600, wake_early_if=["anomaly"])</skill>'


def text_of(request):
    return "\n".join(message["content"] or "" for message in request["messages"])


def turns_of(model):
    return [request for request in model.requests if SCORES not in text_of(request) and TURN in text_of(request)]


def begin(text):
    owner = make_user()
    agent = agent_import(owner=owner, text=text, by=None, now=now()).agent
    agent_start(agent=agent, by=None, now=now())
    return AgentSession.objects.get(agent=agent, mode=Mode.LOOP)


def asleep(loop, turns):
    until(lambda: Turn.objects.filter(session=loop, state="done").count() == turns)
    until(lambda: AgentSession.objects.get(pk=loop.pk).status == Status.SLEEPING)
