"""What the walk tests start from: an owner with a collection, documents and a playbook, and a scripted model."""

import json
from datetime import UTC, datetime
from itertools import count

from agents.definitions.playbooks import Position
from agents.enums import Status
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.models import AgentSession
from agents.providers.scripted import ScriptedProvider, Step
from agents.runner import run_session
from agents.sessions.lifecycle import session_create
from agents.text.blocks import parse_blocks
from agents.types import Usage
from agents.walk.walk import walk
from audit.models import AuditEvent
from tests.factories import NOW, make_user
from tests.serving import serving

LEASE = "The Customer shall pay invoices within 60 days of receipt. The lease renews automatically each year."
QUOTE = "shall pay invoices within 60 days"
POSITION = Position("Payment terms", "critical", "The Customer shall pay invoices within 30 days of receipt.")
PHASES = ["intake", "analysis", "drafting", "ethics_review", "delivery"]
_number = count(1)


class Scene:
    def __init__(self, owner=None):
        self.owner = owner or make_user()
        self.by = {"owner": self.owner, "by": self.owner, "now": NOW}
        self.collection = collection_create(name=f"Inbox {next(_number)}", **self.by)
        self.playbook = playbook_create(name=f"Leases {next(_number)}", positions=[POSITION], **self.by)

    def document(self, text=LEASE, *, name="lease.txt", at=NOW, collection=None):
        by = {**self.by, "now": at}
        added, _ = document_add(name=name, data=text.encode(), collection=collection or self.collection, **by)
        return added

    def session(self, *, project=None, trigger=None, agent=None, max_cost_usd=None, **params):
        """A queued run; by default it goes by the playbook."""
        wanted = {"playbook": str(self.playbook.public_id), **params}
        given = {name: value for name, value in wanted.items() if value is not None}
        return session_create(
            owner=self.owner,
            now=NOW,
            project=project,
            trigger=trigger,
            agent=agent,
            max_cost_usd=max_cost_usd,
            params=given,
        )

    def of_document(self, text=LEASE, **more):
        return self.session(document=str(self.document(text).public_id), **more)


def reply(**more):
    """Two findings, a memory and a precedent."""
    told = {
        "findings": [
            {"title": "Pays late", "severity": "critical", "content": "60 days, not 30.", "quote": QUOTE, "start": 13},
            {"title": "Renews", "severity": "warn", "content": "By itself.", "quote": "words that nobody wrote"},
        ],
        "suggested_memories": [{"content": "This landlord asks for 60 days."}],
        "suggested_precedents": [{"pattern_kind": "payment", "summary": "Payment after 60 days"}],
        "privilege_concerns": [],
        "scope_concerns": [],
        **more,
    }
    return json.dumps(told)


def model(*replies):
    """A model that gives these replies in turn, or fails in these ways, and keeps what it was asked."""
    steps = [one if isinstance(one, Step) else Step(one, usage=Usage(10, 10)) for one in replies or (reply(),)]
    return serving("offline", ScriptedProvider(steps))


def run(session, engine=walk, *, slices=20):
    """Works on the session, slice by slice, until it rests or ends; gives back its row."""
    for _ in range(slices):
        assert run_session(session.pk, engine, owner="worker")
        session.refresh_from_db()
        if session.status != Status.QUEUED:
            break
    return session


def lose(session):
    """The worker of the session is gone, and its lease has run out."""
    AgentSession.objects.filter(pk=session.pk).update(lease_until=datetime(2000, 1, 1, tzinfo=UTC))


def phases(session):
    rows = AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.phase_transition").order_by("seq")
    return [row.details["to_phase"] for row in rows]


def intents(session):
    """The calls of the session, in order, as the record has them."""
    rows = AuditEvent.objects.filter(chain=session.chain, kind="autonomous_session.tool_call").order_by("seq")
    return [(row.details["phase"], row.details["tool"]) for row in rows if row.details["outcome"] != "started"]


def blocks_of(request):
    return [block for message in request.messages for block in parse_blocks(message["content"])]


def shown(session):
    """What the run left behind, without ids, times and the numbers of this scene."""
    return {
        "findings": [
            (one.severity, one.title, one.content, one.document and one.document.name, one.quote, one.quote_start,
             one.quote_check, one.judges_for, one.judges_asked)
            for one in session.findings.all()
        ],
        "memories": sorted(session.memories.values_list("content", "state")),
        "precedents": sorted(session.owner.lqops_precedents.values_list("pattern_kind", "summary", "observed_count")),
        "notices": sorted(one.title.rstrip("0123456789") for one in session.notifications.all()),
        "artifacts": sorted(session.artifacts.values_list("name", "text")),
        "phases": phases(session),
        "status": (session.status, session.terminal_reason, session.error),
    }  # fmt: skip
