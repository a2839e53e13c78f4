"""Three agents that hand work to each other, and the model that plays all of them: what it says follows from the task.

A job names the agents that are still to work on it. Each hands it to the next, reads the result, and reports it; the
last one finishes it. Agents of some jobs do not ask for the result: they say that they have handed it on.
"""

import re

from agents.ask.chats import Way, chat_send
from agents.conf import clock
from agents.models import AgentSession
from agents.policy.transitions import TERMINAL
from agents.providers.base import ended_once
from agents.runner import run_next
from agents.sessions.leases import runs_waiters_wake
from agents.sessions.transcripts import answers_of
from agents.tasks import ENGINES
from agents.triggers.handing_on import children_attend
from agents.types import ModelReply, Usage
from tests.factories import make_agent, make_user

NAMES = ("Lead", "Analyst", "Writer")
_JOB = re.compile(r"job (\d+) for \[([\w ]*)\]")
_STARTED = re.compile(r'session_id"?: ?"([0-9a-f-]{36})"')
_OVER = "Runs that you started are over"


def task(number, agents):
    return f"Please use start_run and hand on job {number} for [{' '.join(agents)}]."


def reply_to(messages):
    """What the model says to a conversation: a call, or its answer."""
    heard = "\n".join(message["content"] for message in messages if message["role"] != "assistant")
    number, agents = _JOB.search(heard).groups()
    if f"Job {number} is finished" in heard or not agents:
        return f"Job {number} is finished."
    if '"is_over":true' in heard:
        return f"Job {number} was given up."
    first, *others = agents.split()
    started = _STARTED.findall(heard)
    if not started:
        return f'<skill>start_run(agent="{first}", task="{task(number, others)}")</skill>'
    if not is_asked_for(int(number)) and _OVER not in heard:
        return "I have handed it on."
    return f'<skill>run_result(run="{started[0]}")</skill>'


def is_asked_for(number):
    return is_for_a_person(number) or number % 2


def is_for_a_person(number):
    """In a chat with a person the answer does not wait for started runs, a result that is asked for does."""
    return number % 3 == 0


class Model:
    """The same as a provider."""

    name = "scripted"

    def __init__(self):
        self.requests = []

    def stream(self, request, on_chunk):
        self.requests.append(request)
        with ended_once(on_chunk) as on_text:
            text = reply_to(request.messages)
            on_text(text)
            return ModelReply(text=text, usage=Usage(100, 20), stop_reason="end_turn")


class Office:
    """An owner with three agents; all else is as it is by default."""

    def __init__(self):
        self.owner = make_user()
        self.agents = [make_agent(owner=self.owner, name=name, mode="auto") for name in NAMES]

    def start(self, number):
        """Start a job with one of the agents first: every third as a message of a chat, the others as goals."""
        first = number % len(NAMES)
        others = [NAMES[(first + step) % len(NAMES)] for step in range(1, len(NAMES))]
        given = {"owner": self.owner, "by": self.owner, "agent": self.agents[first], "now": clock()}
        way = Way.ANSWER if is_for_a_person(number) else Way.GOAL
        return chat_send(text=task(number, others), way=way, **given)


def work_all(patience=500):
    """Do what workers and the ticker do until nothing is left to do."""
    for _ in range(patience):
        worked = run_next(ENGINES, owner="worker")
        if not worked and not children_attend(clock()) + runs_waiters_wake(clock()):
            return
    raise AssertionError("it does not come to an end")


def in_disorder(runs):
    """What went wrong in these trees of runs, in words; nothing if all ended with the result of the last agent."""
    found = []
    for number, run in runs.items():
        run.refresh_from_db()
        tree = [run, *AgentSession.objects.filter(parent=run), *AgentSession.objects.filter(parent__parent=run)]
        for one in tree:
            if one.status != "completed":
                why = (one.terminal_reason, one.error, one.metadata.get("runs_wait"))
                found.append(f"job {number}, level {one.depth}: {one.status} {one.waiting_on} {why}")
        if len(tree) != len(NAMES):
            found.append(f"job {number}: {len(tree)} runs")
        elif run.max_cost_usd != run.starting_cap_usd - sum(one.spent_usd for one in tree[1:]):
            found.append(f"job {number}: {run.max_cost_usd} of {run.starting_cap_usd} came back")
        elif f"Job {number} is finished" not in result_of(run):
            found.append(f"job {number}: ends without a result: {result_of(run)!r}")
    return found


def result_of(run):
    return answers_of([run]).get(run.pk, "")


def floors(runs):
    """How many runs there were in all, how many were started by others, and how many of those gave a result back."""
    started = AgentSession.objects.filter(parent__isnull=False)
    back = started.filter(handed_back_at__isnull=False, run_result="ok")
    over = AgentSession.objects.filter(status__in=sorted(TERMINAL))
    halted = over.filter(status="halted")
    return {"roots": len(runs), "started": started.count(), "returned": back.count(), "halted": halted.count()}
