"""What the flow tests start from: an owner with a watched collection, a playbook, and a document to put into it."""

from decimal import Decimal
from itertools import count

from agents.definitions.playbooks import Position
from agents.enums import TriggerKind
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.knowledge.projects import project_create
from agents.triggers.triggers import trigger_create
from tests.factories import make_user
from tests.flows.cluster import now

_number = count(1)


class Scene:
    """Every scene has an owner of its own, so scenes on one database do not meet."""

    def __init__(self, **owner):
        self.owner = make_user(**{"email": "owner@example.org", **owner})
        self.by = {"owner": self.owner, "by": self.owner}
        self.project = project_create(name="Matter", context_md="Old context.", now=now(), **self.by)
        self.collection = collection_create(name="Inbox", now=now(), **self.by)
        self.playbook = playbook_create(
            name="Review", positions=[Position("Liability", standard="Liability is capped.")], now=now(), **self.by
        )

    def trigger(self, kind, **fields):
        return trigger_create(
            kind=kind,
            name=f"{kind}-{next(_number)}",
            **{"collection": self.collection, "playbook": self.playbook, "project": self.project, **fields},
            now=now(),
            **self.by,
        )

    def watch(self, cap="1.00", **fields):
        return self.trigger(TriggerKind.WATCH, max_cost_usd=Decimal(cap), **fields)

    def attach(self, text=""):
        """A document that no other has the bytes of."""
        body = f"Supply agreement {next(_number)} of {self.owner.username}. {text}"
        document, _ = document_add(
            name="agreement.txt", data=body.encode(), collection=self.collection, now=now(), **self.by
        )
        return document
