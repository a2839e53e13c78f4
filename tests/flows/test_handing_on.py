"""A process that is killed while a run hands work on: the money is with one of the two runs, and nothing is lost."""

from decimal import Decimal

import pytest

from agents.enums import Mode, Status
from agents.models import AgentSession
from audit.verify import verify_log
from tests.factories import make_agent, make_session, make_user
from tests.flows.processes import Worker

pytestmark = pytest.mark.django_db(transaction=True)


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
