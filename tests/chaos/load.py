"""The load: signed events, chats, an agent in a loop, approvals that are decided, halts and releases."""

import contextlib
import http.client
import itertools
import json
import time
from collections import Counter
from pathlib import Path

from django.db import Error, connection
from standardwebhooks import Webhook

from agents.ask.chats import chat_send
from agents.conf import clock
from agents.definitions.playbooks import Position
from agents.enums import AnalysisMode, ApprovalStatus, Mode, Outcome, Status, TriggerKind, TurnState
from agents.exceptions import LqopsError
from agents.knowledge.documents import collection_create, document_add
from agents.knowledge.playbooks import playbook_create
from agents.models import AgentSession, Approval, InboundEvent, ToolCall, Turn
from agents.policy.transitions import TERMINAL
from agents.roster.agents import agent_start, agent_stop
from agents.sessions.approvals import Decision, approval_approve, tool_call_resolve
from agents.sessions.halts import halt_all_work, release_all_work, session_halt
from agents.triggers.triggers import trigger_create, trigger_secret
from audit.models import AuditEvent
from tests.factories import make_agent, make_user
from tests.flows.model_server import structured
from tests.invariants import CALLED

WORKING = "instructions: Work {}.\nskills: all\n"
TURNS, TURNS_OF_A_WATCH = itertools.count(1), 3
LOOPING = "You are the watchman of these tests."
TEXT = "The Customer shall pay invoices within 60 days of receipt. The lease renews each year."


def answer(request):
    """The model: a letter first, then findings; a watchman sleeps, and ends his watch; whoever chats is greeted."""
    words = "\n".join(str(message.get("content") or "") for message in request["messages"])
    if LOOPING in words:
        if next(TURNS) % TURNS_OF_A_WATCH == 0:
            return '<skill>yield(mode="shutdown", reason="The watch is over.")</skill>'
        return '<skill>yield(mode="sleep", sleep=2, reason="All is quiet.")</skill>'
    if "is about to be called" in words or "Hello number" in words:
        return "Fine."
    if "with a letter" in words and "The letter was sent" not in words:
        return '<skill>send_letter(what="a reminder")</skill>'
    return structured(request)


class Load:
    """Acts once a moment; what the database or the web process does not take is tried again, or left."""

    def __init__(self, installation, random):
        self._installation, self._random = installation, random
        self.person = make_user(username="chaos", is_staff=True, is_superuser=True)
        by = {"owner": self.person, "by": self.person, "now": clock()}
        collection = collection_create(name="Inbox", **by)
        document_add(name="lease.txt", data=TEXT.encode(), collection=collection, **by)
        self.triggers = [
            trigger_create(
                kind=TriggerKind.EVENT,
                name=str(mode),
                collection=collection,
                playbook=playbook_create(name=f"{mode} {more}", positions=[Position("Terms", standard="30")], **by),
                agent=make_agent(owner=self.person, definition=WORKING.format(more), definition_version=1),
                analysis_mode=mode,
                max_runs_per_hour=10_000,
                pause_after=0,
                **by,
            )
            for mode, more in ((AnalysisMode.SINGLE, "plainly"), (AnalysisMode.AGENTIC, "with a letter"))
        ]
        text = f"instructions: {LOOPING}\nautonomy: {{enabled: true}}\n"
        self.watchman = make_agent(owner=self.person, definition=text, definition_version=1)
        self.unsent = []
        self.accepted = set()
        self.done = Counter()

    def act(self):
        """One thing, or none if the database is away."""
        acts = {
            self.event: 8,
            self.send_again: 4,
            self.chat: 2,
            self.loop: 1.5,
            self.stop_loop: 0.7,
            self.approve: 6,
            self.resolve: 2,
            self.halt_one: 1,
            self.halt_all: 0.15,
        }
        [act] = self._random.choices(list(acts), list(acts.values()))
        with self._patience(act.__name__):
            act()
            self.done[act.__name__] += 1

    @contextlib.contextmanager
    def _patience(self, what):
        try:
            yield
        except (Error, LqopsError, OSError, http.client.HTTPException) as error:
            self.done[f"{what} failed"] += 1
            self.last_error = error
            connection.close()

    # --- Runs ---

    def event(self):
        trigger = self._random.choice(self.triggers)
        name = f"msg_{self._random.getrandbits(64):x}"
        self.unsent.append((trigger, name))
        self._send(trigger, name)

    def send_again(self):
        """A sender tries until it is told that the event was taken."""
        if self.unsent:
            self._send(*self._random.choice(self.unsent))

    def _send(self, trigger, name):
        body = json.dumps({"type": "invoice.late", "title": name})
        at = clock()
        signature = Webhook(trigger_secret(trigger)).sign(name, at, body)
        headers = {
            "webhook-id": name,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signature,
            "content-type": "application/json",
        }
        web = http.client.HTTPConnection("127.0.0.1", self._installation.port, timeout=10)
        try:
            web.request("POST", f"/hooks/{trigger.public_id}", body, headers)
            taken = web.getresponse().status == http.client.OK
        finally:
            web.close()
        if taken:
            self.accepted.add(name)
            self.unsent = [one for one in self.unsent if one[1] != name]

    def chat(self):
        chat_send(owner=self.person, by=self.person, text=f"Hello number {self._random.random()}", now=clock())

    def loop(self):
        agent_start(agent=self.watchman, by=self.person, now=clock())

    def stop_loop(self):
        agent_stop(agent=self.watchman, by=self.person, now=clock())

    # --- People ---

    def approve(self):
        for ticket in Approval.objects.filter(status=ApprovalStatus.PENDING)[:5]:
            with contextlib.suppress(LqopsError):
                approval_approve(ticket.pk, by=self.person, digest=ticket.digest, now=clock())

    def resolve(self):
        sent = self.letters()
        for call in ToolCall.objects.unknown().select_related("session")[:5]:
            happened = sent[f"{call.session.public_id}:{call.key}"]
            decision = Decision.HAPPENED if happened else Decision.DID_NOT_HAPPEN
            tool_call_resolve(call.pk, decision, by=self.person, now=clock(), result="The letter was sent: a reminder")

    def halt_one(self):
        active = list(AgentSession.objects.active().values_list("pk", flat=True))
        if active:
            session_halt(self._random.choice(active), by=self.person, reason="enough", now=clock())

    def halt_all(self):
        halt_all_work(by=self.person, reason="stop", now=clock())
        time.sleep(self._random.uniform(0.5, 3))
        self._release()

    def _release(self):
        while True:
            try:
                release_all_work(by=self.person, now=clock())
            except Error:
                connection.close()
                time.sleep(0.5)
            except LqopsError:
                return

    # --- The end ---

    def _unknown(self):
        """How many calls nobody knew the outcome of, also if a person has said it since."""
        events = AuditEvent.objects.filter(kind=CALLED, details__outcome=Outcome.UNKNOWN)
        return len(set(events.values_list("details__call_id", flat=True)))

    def letters(self):
        effects = Path(self._installation.environment["LQOPS_CHAOS_EFFECTS"])
        return Counter(effects.read_text().split()) if effects.exists() else Counter()

    def rest(self, seconds):
        """Start nothing more, decide everything, and wait until all runs are over. Return those that are not."""
        self._release()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._installation.ensure()
            with self._patience("rest"):
                agent_stop(agent=self.watchman, by=self.person, now=clock())
                for trigger, name in list(self.unsent):
                    self._send(trigger, name)
                self.approve()
                self.resolve()
                if not self.unsent and not AgentSession.objects.active().exists():
                    return []
            time.sleep(1)
        return list(AgentSession.objects.active())

    def figures(self):
        """What became of everything."""
        sessions = AgentSession.objects.all()
        completed = sessions.filter(status=Status.COMPLETED)
        fired = Counter(InboundEvent.objects.filter(session__isnull=False).values_list("webhook_id", flat=True))
        return {
            "runs": sessions.count(),
            "ends": dict(Counter(sessions.values_list("status", flat=True))),
            "reasons": dict(Counter(sessions.values_list("terminal_reason", flat=True))),
            "modes": dict(Counter(sessions.values_list("mode", flat=True))),
            "events accepted": len(self.accepted),
            "letters": sum(self.letters().values()),
            "approvals used": Approval.objects.filter(consumed_at__isnull=False).count(),
            "unknown outcomes": self._unknown(),
            "lost": len(self.accepted - fired.keys()) + sessions.exclude(status__in=TERMINAL).count(),
            "doubled": sum(number > 1 for number in (*fired.values(), *self.letters().values())),
            "acts": dict(self.done),
            "completed walks": completed.filter(mode=Mode.PHASED).count(),
            "completed chats": completed.filter(mode=Mode.CHAT).count(),
            "completed loops": completed.filter(mode=Mode.LOOP).count(),
            "turns of loops": Turn.objects.filter(session__mode=Mode.LOOP, state=TurnState.DONE).count(),
        }
