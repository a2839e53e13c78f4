"""A receipt is the record's own word: it can be built again when every other table is gone."""

from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, transaction

from agents.conf import clock
from agents.enums import Level, Outcome, Phase, Status, TerminalReason, ToolIntent
from agents.exceptions import CostCapReached
from agents.guard import guarded_tool_call
from agents.models import Approval
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions.approvals import approval_approve
from agents.sessions.ending import session_finish
from agents.sessions.leases import lease_claim
from agents.sessions.lifecycle import session_enter_phase
from agents.types import Usage
from audit.receipts import build_receipt
from audit.verify import verify_log
from tests.agents.conftest import Probe, tool
from tests.factories import make_agent, make_price, make_session, make_user
from tests.flows.workers import ASK, MODEL
from tests.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)
AUDIT_TABLES = {
    "audit_auditevent",
    "audit_pendingevent",
    "audit_skillaudit",
    "audit_seal",
    "audit_sealedchain",
    "audit_droppedsegment",
}


class Undo(Exception):
    """Puts the tables back."""


def eventful_session():
    """A run with phases, money, a failure, a refusal, an approval and a cap that stops it."""
    make_price(MODEL, input_usd="0", output_usd="10")
    approver = make_user()
    approver.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
    agent = make_agent()
    queued = make_session(status=Status.QUEUED, agent=agent, owner=agent.owner, max_cost_usd=Decimal("0.012"))
    session = lease_claim(queued.pk, owner="worker", now=clock())
    session_enter_phase(session, Phase.ANALYSIS, now=clock())
    with tool(probe=Probe(), level=Level.RESTRICTED):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="analysis:1")
        ticket = Approval.objects.get()
        approval_approve(ticket.pk, by=approver, digest=ticket.digest, now=clock())
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {"to": "Ada"}, key="analysis:1")
    refused = ProviderError("422", fault=Fault.INVALID_REQUEST, usage=Usage(0, 20))
    steps = [Step("one", usage=Usage(0, 100)), Step(error=refused)]
    with serving(MODEL, ScriptedProvider(steps)):
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {**ASK, "max_tokens": 300})
        guarded_tool_call(session, ToolIntent.RUN_SKILL, {**ASK, "max_tokens": 300})
        with pytest.raises(CostCapReached):
            guarded_tool_call(session, ToolIntent.RUN_SKILL, ASK)
    return session_finish(session, TerminalReason.COST_CAP_REACHED, now=clock())


def test_a_receipt_tells_the_whole_run():
    session = eventful_session()
    receipt = session.result
    assert receipt["terminal_reason"] == "cost_cap_reached"
    assert [change["to_phase"] for change in receipt["phase_transitions"]] == ["analysis"]
    assert [call["outcome"] for call in receipt["tool_calls"]] == [
        Outcome.APPROVAL_PENDING,
        Outcome.SUCCESS,
        Outcome.SUCCESS,
        Outcome.GATEWAY_ERROR,
    ]
    assert Decimal(receipt["totals"]["charged_usd"]) == session.cost_total_usd == Decimal("0.010")
    assert Decimal(receipt["totals"]["actual_usd"]) == session.cost_actual_usd == Decimal("0.0012")


def test_a_receipt_is_built_again_from_the_record_alone():
    session = eventful_session()
    stored = session.result
    with pytest.raises(Undo), transaction.atomic(), connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if not table.startswith(("audit_", "sqlite_")):
                cascade = "CASCADE" if connection.vendor == "postgresql" else ""
                cursor.execute("PRAGMA defer_foreign_keys = ON" if not cascade else "SELECT 1")
                cursor.execute(f'DROP TABLE IF EXISTS "{table}" {cascade}')
        assert set(connection.introspection.table_names(cursor)) == AUDIT_TABLES
        assert build_receipt(session.chain) == stored
        assert verify_log().problems == []
        raise Undo
