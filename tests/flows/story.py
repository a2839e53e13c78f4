"""A story that touches every kind of row: an event starts a run with a tool and an approval, a loop sleeps and wakes,
mail goes out, work is halted and released, old rows are deleted.

`drive` goes on from wherever the rows stand, so that a process that was killed in it is followed by another one. Every
step may be done again. Effects outside of the database are lines in a file.
"""

import json
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine
from django.core.mail.backends.base import BaseEmailBackend
from django.test import override_settings
from django_q.models import OrmQ

from agents.conf import clock
from agents.definitions.playbooks import Position
from agents.enums import AnalysisMode, ApprovalStatus, Level, Mode, Outcome, Status, TriggerKind
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.ledger.prices import invalidate_estimates
from agents.models import AgentSession, Approval, Halt, HotField, Installation, ModelPrice, ToolCall, Turn
from agents.people.outbox import copies_due, copy_send
from agents.policy.transitions import TERMINAL
from agents.providers.scripted import ScriptedProvider, Step
from agents.roster.agents import agent_start
from agents.sessions.approvals import Decision, approval_approve, tool_call_resolve
from agents.sessions.halts import halt_all_work, release_all_work, session_halt
from agents.sessions.lifecycle import session_create
from agents.skills.registry import installed_skills
from agents.skills.skill import SkillContext, skill
from agents.tasks import run_session
from agents.ticker import DUTIES
from agents.triggers.events import webhook_receive
from agents.triggers.triggers import trigger_create
from agents.types import RequestedCall, Usage
from tests.agents.triggers.messages import signed
from tests.factories import make_agent, make_user
from tests.serving import serving

START = datetime(2026, 3, 16, 9, 0, tzinfo=UTC)
WALKS, LOOPS = "story-walk", "story-loop"
ROUNDS = 40
NAP = 90
KEPT_LONG = timedelta(days=60)
TEXT = "The Customer shall pay invoices within 60 days of receipt."
FOUND = {"title": "Pays late", "severity": "warn", "content": "60 days.", "quote": "within 60 days", "start": 27}
BODY = b'{"type": "invoice.late", "title": "An invoice is late", "data": {"amount": 12}}'


class Outside:
    """The world outside of the database; `passed` is told of everything that happens in it."""

    effects = Path()
    passed = staticmethod(lambda label: None)

    @classmethod
    def note(cls, what):
        with cls.effects.open("a") as out:
            out.write(f"{what}\n")

    @classmethod
    def noted(cls):
        return cls.effects.read_text().splitlines() if cls.effects.exists() else []


@skill(level=Level.SAFE, side_effects=False)
def look_up(place: str) -> dict[str, str]:
    """Looks something up."""
    return {"seen": place}


@skill(level=Level.RESTRICTED)
def send_letter(context: SkillContext, what: str) -> str:
    """Sends a letter, which cannot be taken back."""
    Outside.passed("before the tool acts")
    Outside.note(f"letter {context.idempotency_key}")
    Outside.passed("after the tool acted")
    return f"sent {what}"


class Mailbox(BaseEmailBackend):
    """Takes mail."""

    def send_messages(self, messages):
        for message in messages:
            Outside.passed("before the mail is sent")
            Outside.note(f"mail {message.extra_headers['Message-ID']}")
            Outside.passed("after the mail was sent")
        return len(messages)


class Model(ScriptedProvider):
    """A model that answers by what it is shown, whichever process asks it."""

    def _next(self, request):
        Outside.passed("before the model is asked")
        step = self._reply(request)
        Outside.passed("after the model was asked")
        return step

    def _reply(self, request):
        if "is about to be called" in str(request.messages[-1]):
            return Step("A letter would be sent.", usage=Usage(5, 5))
        results = sum(message.get("role") == "tool" for message in request.messages)
        return WALK[min(results, len(WALK) - 1)] if request.model == WALKS else _turn()


def _says(name, /, **arguments):
    asked = (RequestedCall("1", name, json.dumps(arguments)),)
    return Step(stop_reason="tool_use", calls=asked, usage=Usage(10, 10))


WALK = (
    _says("look_up", place="the annex"),
    _says("send_letter", what="a reminder"),
    Step(json.dumps({"findings": [FOUND], "suggested_memories": [{"content": "Pays late."}]}), usage=Usage(10, 10)),
)


def _turn():
    """First turn: write down a mood and sleep. Second turn: that was all."""
    if Turn.objects.count() > 1:
        return _says("yield", mode="shutdown", reason="All is done.")
    if HotField.objects.exists():
        return _says("yield", mode="sleep", sleep=NAP, reason="Nothing to do.")
    return _says("set_state", name="mood", value="fine")


class Story:
    """The people and things of the story, made once and found again by whoever goes on with it."""

    def __init__(self):
        self.person = make_user(is_staff=True, is_superuser=True, email="person@example.org")
        by = {"owner": self.person, "by": self.person, "now": clock()}
        self.collection = collection_create(name="Inbox", **by)
        document_add(name="lease.txt", data=TEXT.encode(), collection=self.collection, **by)
        skills = "skills: [look_up, send_letter, set_state]\n"
        self.clerk = make_agent(owner=self.person, definition=f"{skills}model: {WALKS}\n", definition_version=1)
        self.trigger = trigger_create(
            kind=TriggerKind.EVENT,
            name="late invoices",
            agent=self.clerk,
            collection=self.collection,
            playbook=playbook_create(name="Leases", positions=[Position("Terms", standard="30 days.")], **by),
            analysis_mode=AnalysisMode.AGENTIC,
            **by,
        )
        alone = (
            f"{skills}model: {LOOPS}\nautonomy: {{enabled: true}}\nhot_state: {{fields: {{mood: {{type: string}}}}}}\n"
        )
        self.watcher = make_agent(owner=self.person, definition=alone, definition_version=1)
        for model in (WALKS, LOOPS):
            ModelPrice.objects.update_or_create(model=model, defaults={"input_usd": 10, "output_usd": 10})

    # --- What happens; every step may be done again ---

    def drive(self, time):
        self._begin()
        for _ in range(ROUNDS):
            self._run_tasks()
            self._decide()
            self._tick()
            if not AgentSession.objects.active().exclude(status=Status.SLEEPING, mode=Mode.CHAT).exists():
                break
            time.shift(61)
        else:
            left = [f"{one.mode} {one.status} {one.waiting_on}" for one in AgentSession.objects.active()]
            raise AssertionError(f"after {ROUNDS} rounds there are still {left}")
        self._halt()
        time.shift(KEPT_LONG)
        self._tick()

    def _begin(self):
        headers = signed(self.trigger, BODY, at=clock())
        hook = {"trigger_public_id": self.trigger.public_id, "headers": headers, "body": BODY, "now": clock()}
        assert webhook_receive(**hook).status == 200
        if not AgentSession.objects.filter(mode=Mode.LOOP).exists():
            agent_start(agent=self.watcher, by=self.person, now=clock())

    def _run_tasks(self):
        """As a worker and its broker do: a task is gone when it was done."""
        while (row := OrmQ.objects.order_by("pk").first()) is not None:
            run_session(*row.task["args"])
            OrmQ.objects.filter(pk=row.pk).delete()

    def _decide(self):
        for ticket in Approval.objects.filter(status=ApprovalStatus.PENDING):
            approval_approve(ticket.pk, by=self.person, digest=ticket.digest, now=clock())
        for call in ToolCall.objects.filter(outcome=Outcome.UNKNOWN):
            happened = any(line.endswith(f":{call.key}") for line in Outside.noted())
            decision = Decision.HAPPENED if happened else Decision.DID_NOT_HAPPEN
            tool_call_resolve(call.pk, decision, by=self.person, now=clock(), result="sent a reminder")

    def _tick(self):
        for duty in DUTIES:
            duty.do(clock())
        for pk in copies_due(now=clock()):
            copy_send(pk, now=clock())

    def _halt(self):
        """A run that sleeps is halted, then all work; then work is released."""
        if not Halt.objects.filter(session__isnull=False).exists():
            asleep = AgentSession.objects.active().first() or session_create(
                owner=self.person, mode=Mode.CHAT, wake_at=clock() + timedelta(days=1), now=clock()
            )
            session_halt(asleep.pk, by=None, reason="enough", now=clock())
        halted = Installation.objects.filter(pk=1, halt__isnull=False)
        if not halted.exists() and not Halt.objects.filter(released_at__isnull=False).exists():
            session_create(owner=self.person, now=clock(), mode=Mode.CHAT, params={"message": "hello"})
            halt_all_work(by=self.person, reason="stop", now=clock())
        if halted.exists():
            release_all_work(by=self.person, now=clock())

    # --- What has come of it ---

    def faults(self):
        """What did not come out as it would have without a kill; nothing, if nothing was lost or done twice."""
        ends = Counter((one.mode, one.status) for one in AgentSession.objects.exclude(mode=Mode.CHAT))
        letters = Counter(line for line in Outside.noted() if line.startswith("letter"))
        found = (
            [] if ends == {(Mode.PHASED, Status.COMPLETED): 1, (Mode.LOOP, Status.COMPLETED): 1} else [f"ends {ends}"]
        )
        found += [] if list(letters.values()) == [1] else [f"letters {letters}"]
        found += [f"{mode} goes on" for mode in AgentSession.objects.exclude(status__in=TERMINAL).values_list("mode")]
        return found


@contextmanager
def told(effects, at=START):
    """What the story needs of a process; its clock stands still unless the story moves it."""
    Outside.effects = effects
    kept = {
        "LQOPS_SKILL_MODULES": ["tests.flows.story"],
        "LQOPS_MODEL_ROLES": {"main": [WALKS], "small": [WALKS], "judges": [WALKS]},
        "LQOPS_EVENTS_KEPT": 2,
        "EMAIL_HOST": "localhost",
        "EMAIL_BACKEND": "tests.flows.story.Mailbox",
    }
    with (
        override_settings(**kept),
        serving(WALKS, Model()),
        serving(LOOPS, Model()),
        time_machine.travel(at, tick=False) as time,
    ):
        installed_skills.cache_clear()
        invalidate_estimates()
        try:
            yield time
        finally:
            installed_skills.cache_clear()
            invalidate_estimates()
