"""More ways to say it, and more that only sounds like it: written after the grammars, to see how far they reach."""

import pytest

from tests.agents.ask.scene import asked, make_scene

pytestmark = pytest.mark.django_db

HITS = {
    "help": [
        "I need help",
        "what can I ask?",
        "what commands can I use?",
        "hey, help please",
    ],
    "service_status": [
        "what's the system status?",
        "is the service still running?",
        "health check",
        "are things ok?",
    ],
    "list_triggers": [
        "give me a list of my triggers",
        "what schedules do we have?",
        "any active triggers?",
        "triggers?",
    ],
    "list_sessions": [
        "show all jobs",
        "what sessions do I have?",
        "any running sessions?",
        "display my latest 5 sessions",
        "is anything running?",
        "what's queued?",
        "recent failures",
    ],
    "show_receipt": [
        "I'd like to see the receipt for {s}",
        "print receipt {s}",
        "{s} receipt",
    ],
    "halt_session": [
        "terminate {s}",
        "abort session {s} immediately",
        "session {s} stop",
        "would you end the session {s}, please?",
    ],
    "switch_agent": [
        "disable Clerk",
        "reactivate agent Clerk",
        "turn Clerk off please",
        "suspend the Clerk agent",
        "Can you unpause Clerk?",
    ],
    "list_approvals": [
        "anything waiting for my approval?",
        "list all pending approvals",
        "which approvals are open?",
        "what is there to approve?",
    ],
    "decide_approval": [
        "accept {a} {d}",
        "please decline {a} {d}",
        "approve request {a}, digest {d}",
    ],
    "list_precedents": [
        "any precedents?",
        "show recurring patterns",
        "how many precedents do we have?",
    ],
    "cost_summary": [
        "what did we spend this week?",
        "show me the budget",
        "what's my total spend so far?",
        "costs today",
    ],
    "run_now": [
        "launch Weekly scan",
        "please run Lease against the document acme.txt",
        "kick off the weekly scan",
        "review acme.txt with nda-review",
        "execute trigger Weekly scan",
    ],
    "create_schedule": [
        "run playbook Lease on Leases every two hours",
        "add a schedule: Lease on Leases, weekly",
        "each day at 6am check Leases against Lease",
        "review Leases using Lease once a week",
    ],
}
MISSES = [
    "how do I halt a session?",
    "who halted session {s}?",
    "is it safe to approve {a} {d}",
    "undo the approval of {a}",
    "I approved {a} {d} yesterday",
    "explain the costs",
    "predict my costs",
    "what does Clerk do?",
    "Clerk is paused, why?",
    "make Clerk faster",
    "forget session {s}",
    "compare session {s} with the last one",
    "the status quo",
    "help wanted: paralegal",
    "list the parties of the lease",
    "show me the money clause",
    "which patterns appear in acme.txt",
    "end the letter politely",
    "cancel the lease",
    "kill the second paragraph",
    "enable dark mode",
    "check the spelling",
    "review my essay with care",
    "once upon a time",
]


@pytest.mark.parametrize(("path", "text"), [(path, text) for path, texts in HITS.items() for text in texts])
def test_paraphrase_reaches_its_path(path, text):
    assert asked(make_scene(), text).path == path


@pytest.mark.parametrize("text", MISSES)
def test_other_talk_reaches_the_model(text):
    answer = asked(make_scene(), text)
    assert answer.path == ""
    assert answer.strategy is not None
