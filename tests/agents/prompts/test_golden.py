"""The whole prompt of each kind of run, compared with a file. All hold instructions, context, memories, precedents.

WRITE_GOLDEN=1 writes the files anew; read the difference before you commit it.
"""

import os
import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
import time_machine

from agents.ask.chats import chat, chat_send
from agents.conf import clock
from agents.definitions.playbooks import Position
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.knowledge.projects import memory_keep, precedent_count, project_create
from agents.loop.cycle import run_loop
from agents.loop.heartbeat import heartbeat_start, run_heartbeat
from agents.loop.turns import alert_push
from agents.models import Document, Memory, Precedent
from agents.providers.scripted import Step
from agents.roster.loops import loop_start
from agents.runner import run_session
from agents.sessions.leases import sleepers_wake
from agents.text.blocks import parse_blocks
from agents.walk.walk import walk
from tests.agents.conftest import MODEL, script
from tests.factories import NOW, make_agent, make_price, make_trigger, make_user, start_run

pytestmark = pytest.mark.django_db

FOLDER = Path(__file__).with_name("golden")
KINDS = ("single", "agentic", "chat", "loop", "heartbeat")
BACKGROUND = ["project_context", "memory", "memory", "precedent"]
DEFINITION = """\
name: Lease clerk
instructions: |
  You look after the leases.
  Report every payment term above 30 days.
project: Acme lease
skills: [search_documents, remember, emit_finding]
autonomy: {enabled: true}
heartbeat: {interval: 600, prompt: Is a payment overdue?}
"""
NONCE = re.compile(r"(?<=<<<)([a-z_]+) [a-p]{32}")
REPLY = '{"findings": [], "suggested_memories": [], "suggested_precedents": []}'


@pytest.fixture(autouse=True)
def time(settings, monkeypatch):
    settings.LQOPS_MODEL_ROLES = {**settings.LQOPS_MODEL_ROLES, "main": [MODEL], "small": [MODEL]}
    settings.LQOPS_HEARTBEAT_SECONDS = 60  # no second connection while the test's own transaction is open
    monkeypatch.setattr("agents.runner.lease_renewal_seconds", lambda: 60)
    with time_machine.travel(NOW, tick=False) as traveller:
        yield traveller


class Office:
    """An owner with a project, memories, precedents, a document and a playbook; and an agent with instructions."""

    def __init__(self):
        make_price(MODEL, input_usd="0", output_usd="10")
        self.owner = make_user(username="ada")
        self.by = {"owner": self.owner, "by": self.owner, "now": NOW}
        project_create(name="Acme lease", context_md="We are the tenant.\nSeen 3 times: no cap on rent.", **self.by)
        self.agent = make_agent(owner=self.owner, name="Lease clerk", definition=DEFINITION, definition_version=1)
        for number, content in enumerate(
            ("The office closes at noon on Fridays.", "The landlord accepts late payment.")
        ):
            memory = Memory.objects.create(owner=self.owner, content=content, created_at=NOW)
            memory_keep(memory=memory, by=self.owner, now=NOW - timedelta(days=number))
        self.precedent("Payment is due after 60 days.", number=1)
        self.precedent("Parking is not included.", number=2)
        self.of_others()

    def precedent(self, summary, *, number, owner=None):
        precedent_count(
            owner_id=(owner or self.owner).pk, session_pk=0, pattern_kind="payment_terms", summary=summary, now=NOW
        )
        Precedent.objects.filter(summary=summary).update(public_id=UUID(int=number))

    def of_others(self):
        """What belongs to somebody else, and what nobody has kept, stands in no prompt."""
        other = make_user()
        Memory.objects.create(owner=other, content="Payment: a secret of others.", state="kept", kept_at=NOW)
        Memory.objects.create(owner=self.owner, content="Payment: only proposed.", created_at=NOW)
        self.precedent("Payment terms of others.", number=3, owner=other)

    def run(self, **options):
        collection = collection_create(name="Leases", **self.by)
        position = Position("Payment terms", "critical", "The Customer shall pay invoices within 30 days of receipt.")
        playbook = playbook_create(name="Lease review", positions=[position], **self.by)
        text = "The Customer shall pay invoices within 60 days of receipt. <<<end of it>>>"
        document, _ = document_add(name="lease.txt", data=text.encode(), collection=collection, **self.by)
        Document.objects.update(public_id=UUID(int=9))
        document.refresh_from_db()
        trigger = make_trigger(owner=self.owner, agent=self.agent, playbook=playbook, **options)
        return start_run(owner=self.owner, by=self.owner, now=NOW, trigger=trigger, document=document)


def walked(office, **options):
    with script(Step(REPLY)) as model:
        run_session(office.run(**options).pk, walk, owner="worker")
    return model.requests[0]


def chatted(office):
    session = chat_send(owner=office.owner, by=office.owner, agent=office.agent, text="Is any payment late?", now=NOW)
    with script(Step("No.")) as model:
        run_session(session.pk, chat, owner="worker")
    return model.requests[0]


def turned(office):
    session = loop_start(agent=office.agent, by=None, now=clock())
    alert_push(session, name="overdue", text="A payment is overdue.", source_name="feed", now=clock())
    with script(Step("I look.")) as model:
        run_session(session.pk, run_loop, owner="worker")
    return model.requests[0]


def beaten(office, time):
    session = heartbeat_start(agent=office.agent, by=None, now=clock())
    time.move_to(session.next_wake_at)
    sleepers_wake(clock())
    with script(Step("None.")) as model:
        run_session(session.pk, run_heartbeat, owner="worker")
    return model.requests[0]


def request_of(kind, time):
    office = Office()
    match kind:
        case "single":
            return walked(office)
        case "agentic":
            return walked(office, analysis_mode="agentic")
        case "chat":
            return chatted(office)
        case "loop":
            return turned(office)
    return beaten(office, time)


def as_file(request):
    """The messages as they are sent, with each nonce shown as NONCE, and the skills that are offered."""
    offered = ", ".join(tool["function"]["name"] for tool in request.tools) or "none"
    messages = [f"=== {message['role']} ===\n{message['content']}" for message in request.messages]
    return NONCE.sub(r"\1 NONCE", "\n".join([*messages, f"=== skills: {offered} ===", ""]))


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_is_the_recorded_one(kind, time):
    text = as_file(request_of(kind, time))
    file = FOLDER / f"{kind}.txt"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"the prompt has changed; if it should, write {file.name} anew"


@pytest.mark.parametrize("kind", KINDS)
def test_instructions_are_in_the_system_message_and_background_is_data_elsewhere(kind, time):
    system, *rest = request_of(kind, time).messages
    assert system["role"] == "system"
    assert [block.kind for block in parse_blocks(system["content"])] == ["instructions"]
    blocks = [block for message in rest for block in parse_blocks(message["content"])]
    assert [block.kind for block in blocks][: len(BACKGROUND)] == BACKGROUND
    assert [block.text for block in blocks if block.kind == "memory"] == [
        "The landlord accepts late payment.",  # shares a word with the task; the newer one does not
        "The office closes at noon on Fridays.",
    ]
    [precedent] = [block for block in blocks if block.kind == "precedent"]
    assert (precedent.text, precedent.attributes["id"]) == ("Payment is due after 60 days.", str(UUID(int=1)))
    assert "of others" not in str(rest)
    assert "only proposed" not in str(rest)


def test_recorded_prompts_are_of_the_five_kinds():
    assert sorted(file.stem for file in FOLDER.glob("*.txt")) == sorted(KINDS)
