"""A process that is killed while a run hands work on: the money is with one of the two runs, and nothing is lost."""

import os
import signal
import time
from contextlib import suppress
from decimal import Decimal

import pytest
from django.db import connection

from agents.enums import Mode, Status
from agents.models import AgentSession
from agents.policy.transitions import TERMINAL
from audit.verify import verify_log
from tests.agents.conftest import MODEL
from tests.factories import make_agent, make_price, make_session, make_user
from tests.flows.cluster import ended, running
from tests.flows.handing_on import Model, Office, floors, in_disorder, reply_to, work_all
from tests.flows.model_server import ModelServer
from tests.flows.processes import Worker, children_of, name_of, until
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
SAMPLE = 6
MANY = 40
KILLS = 8


@pytest.fixture
def price(settings):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "small": [MODEL], "main": [MODEL], "console": [MODEL]}
    return make_price(MODEL, input_usd="3", output_usd="15")


def killed_while_handing_on(*, committed):
    owner = make_user()
    lead = make_agent(owner=owner, name="lead")
    helper = make_agent(owner=owner, name="helper")
    parent = make_session(agent=lead, owner=owner, mode=Mode.CHAT, max_cost_usd=Decimal(1))
    worker = Worker("hand_on", parent_pk=parent.pk, agent_pk=helper.pk, committed=committed)
    worker.wait_for("handed on")
    worker.kill()
    parent.refresh_from_db()
    assert verify_log().problems == []
    return parent, list(AgentSession.objects.filter(parent=parent))


def test_kill_before_the_commit_leaves_neither_a_run_nor_a_reserved_cap():
    parent, started = killed_while_handing_on(committed=False)
    assert (parent.max_cost_usd, started) == (Decimal(1), [])


def test_kill_after_the_commit_leaves_a_queued_run_with_its_cap():
    parent, [started] = killed_while_handing_on(committed=True)
    assert parent.max_cost_usd + started.max_cost_usd == Decimal(1)
    assert (started.max_cost_usd, started.status) == (Decimal("0.4"), Status.QUEUED)


def test_three_agents_that_hand_work_to_each_other_end_with_results(price):
    office = Office()
    with serving(MODEL, Model()):
        runs = {number: office.start(number) for number in range(SAMPLE)}
        work_all()
    assert in_disorder(runs) == []
    assert floors(runs) == whole(SAMPLE)
    assert verify_log().problems == []


def handed_on_by_real_workers(blocker, number):
    """Start so many jobs before real workers and a real ticker, and return what came of them."""
    with ModelServer() as model, running(blocker, model.environment):
        model.answer = lambda request: reply_to(request["messages"])
        office = Office()
        runs = {job: office.start(job) for job in range(number)}
        for run in runs.values():
            ended(run)
        until(lambda: not AgentSession.objects.filter(parent__isnull=False, handed_back_at__isnull=True).exists())
        waited = AgentSession.objects.filter(metadata__has_key="runs_wait").count()
        spent = sum(run.spent_usd for run in AgentSession.objects.all())
        print(f"{connection.vendor}: {floors(runs)}, {waited} runs waited for others, {spent} USD")
        assert in_disorder(runs) == []
        assert waited >= number
        assert verify_log().problems == []
        return floors(runs)


def whole(number):
    return {"roots": number, "started": 2 * number, "returned": 2 * number, "halted": 0}


@pytest.mark.long
def test_real_workers_end_runs_that_hand_work_to_each_other(django_db_blocker):
    assert handed_on_by_real_workers(django_db_blocker, SAMPLE) == whole(SAMPLE)


@pytest.mark.stress
def test_forty_runs_of_three_agents_that_hand_work_to_each_other_end_with_results(django_db_blocker):
    assert handed_on_by_real_workers(django_db_blocker, MANY) == whole(MANY)


@pytest.mark.long
def test_ticker_and_workers_that_are_killed_leave_no_caller_waiting(django_db_blocker):
    """Whoever gives back and wakes is killed again and again, at moments that nobody chose."""
    environment = {"LQOPS_TEST_LEASE_SECONDS": "3"}
    with ModelServer() as model, running(django_db_blocker, {**model.environment, **environment}) as [cluster]:
        model.answer = lambda request: reply_to(request["messages"])
        office = Office()
        runs = {job: office.start(job) for job in range(SAMPLE)}
        killed = 0
        while AgentSession.objects.exclude(status__in=sorted(TERMINAL)).exists():
            for pid in [*below(cluster, "lqops-ticker"), *cluster.workers()[: killed % 2]] if killed < KILLS else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            time.sleep(0.7)
        until(lambda: not AgentSession.objects.filter(parent__isnull=False, handed_back_at__isnull=True).exists())
        assert killed >= KILLS // 2
        assert in_disorder(runs) == []
        assert floors(runs) == whole(SAMPLE)
        assert verify_log().problems == []


def below(cluster, name):
    return [pid for pid in children_of(cluster.process.pid) if name_of(pid) == name]
