"""How far the grammars reach: a hundred ways to ask for the thirteen, and a hundred that only sound like one of them.

A request that is missed costs one answer of a model; an order that nobody gave costs more. So the second table counts.
"""

import pytest

from agents.ask.fast_paths import FAST_PATHS
from agents.models import Agent, AgentSession, Trigger
from tests.agents.ask.scene import asked, is_pending, last_row, make_scene, nothing_was_inferred, trail

pytestmark = pytest.mark.django_db

REACHED = """
help             | which commands are there?
help             | list your commands
help             | tell me what you can do
help             | what are you able to do?
help             | how can you help me?
help             | what commands do I have?
help             | what are my options?
help             | show availble commands
service_status   | is the system down?
service_status   | does everything still work?
service_status   | are there any problems with the system?
service_status   | what state is the service in?
service_status   | how healthy is the platform?
service_status   | tell me the status
service_status   | what are my agents doing?
service_status   | show me the system staus
list_triggers    | what's scheduled?
list_triggers    | which schedules exist?
list_triggers    | is anything scheduled?
list_triggers    | list everything that is scheduled
list_triggers    | what runs automatically?
list_triggers    | tell me which triggers are paused
list_triggers    | give me an overview of my automations
list_triggers    | list trigers
list_sessions    | which jobs are still running?
list_sessions    | which runs failed today?
list_sessions    | what is in progress?
list_sessions    | did anything fail?
list_sessions    | have any runs crashed?
list_sessions    | what ran yesterday?
list_sessions    | tell me which sessions are unfinished
list_sessions    | show my sesions
show_receipt     | fetch the receipt of {s}
show_receipt     | I need the receipt for run {s}
show_receipt     | pull up the receipt of session {s}
show_receipt     | I want a receipt for {s}
show_receipt     | what did session {s} do?
show_receipt     | retrieve the latest receipt
show_receipt     | what did run {s} cost?
show_receipt     | show the reciept of {s}
halt_session     | interrupt session {s}
halt_session     | call off run {s}
halt_session     | shut session {s} down
halt_session     | please, stop run “{s}”
halt_session     | end job {s} at once
halt_session     | let's kill session {s}
halt_session     | go ahead and cancel the run {s}
halt_session     | stop „{s}“
switch_agent     | re-enable Clerk
switch_agent     | take Clerk offline
switch_agent     | bring Clerk back online
switch_agent     | pause „Clerk“
switch_agent     | switch the agent «Clerk» off
switch_agent     | unsuspend agent Clerk
switch_agent     | freeze the agent Clerk right now
switch_agent     | I want you to reenable the agent Clerk
list_approvals   | what has to be approved?
list_approvals   | what needs to be decided?
list_approvals   | what must be signed off?
list_approvals   | is anything pending?
list_approvals   | do I have to approve something?
list_approvals   | which calls are awaiting approval?
list_approvals   | tell me what needs my approval
list_approvals   | pendng approvals
decide_approval  | I approve {a}
decide_approval  | I reject {a} {d}
decide_approval  | say yes to {a} {d}
decide_approval  | say no to request {a}
decide_approval  | veto {a} {d}
decide_approval  | please authorize the call {a} with digest {d}
decide_approval  | {a}: approve
decide_approval  | I decline request {a}
list_precedents  | which precedents exist?
list_precedents  | what precedents have been observed so far?
list_precedents  | give me an overview of the precedents
list_precedents  | fetch my known patterns
list_precedents  | what keeps recurring?
list_precedents  | are there any new precedents?
list_precedents  | tell me which patterns have been seen
list_precedents  | list precedants
cost_summary     | how much has this cost us?
cost_summary     | how much have my agents cost?
cost_summary     | what are we spending?
cost_summary     | how expensive was yesterday?
cost_summary     | how much budget is left?
cost_summary     | tell me what I spent this week
cost_summary     | how much money did we spend today?
cost_summary     | show my spendng
run_now          | trigger Weekly scan
run_now          | trigger the weekly scan now
run_now          | rerun „Weekly scan“
run_now          | fire the trigger Weekly scan
run_now          | perform the weekly scan
run_now          | apply Lease to Leases
run_now          | use nda-review on acme.txt
run_now          | scan Leases with Lease
create_schedule  | let Lease run on Leases every day
create_schedule  | set up a weekly run of Lease on Leases
create_schedule  | apply Lease to Leases every Monday
create_schedule  | repeat Lease on Leases every 30 minutes
create_schedule  | create a daily schedule for Lease on Leases
create_schedule  | have Lease run on Leases once a week
create_schedule  | scan Leases with Lease each weekday at 7am
create_schedule  | every night run „Lease“ on „Leases“
"""
LEFT_ALONE = """
what happens if I halt session {s}?
would it hurt to halt session {s}?
do not halt session {s}
please do not stop {s}
don't you dare halt {s}
I halted session {s} this morning
session {s} was halted
someone halted session {s} yesterday
we may have to halt session {s}
if it costs more than a dollar, halt session {s}
once it is done you could halt session {s}
in an hour, halt session {s}
the manual says: halt session {s}
what does "halt session {s}" do?
„halt session {s}“
«halt session {s}»
translate "stop the run {s}" into German
how would I halt session {s}?
has anybody halted {s}
halting session {s} would be wrong
halting {s}
halt sesion {s}, or not?
don't halt everything
should everything be halted?
what does halt everything do?
I never said halt everything
a stop to everything
stop adding so much noise to the letter
explain how to cancel session {s}
is session {s} going to end?
I do not approve {a} {d}
I would approve {a} {d}
I might approve {a} {d} later
I approve {a} {d}?
if I approve {a} {d}
when I approve {a} {d} what is sent
can I approve {a} {d}
who may approve {a} {d}?
why did I approve {a} {d}
I approved {a} {d}
approving {a} {d}
was {a} {d} approved?
{a} {d} has been rejected
they want me to approve {a} {d}
he asked me: approve {a} {d}
"approve {a} {d}"
„approve {a} {d}“
does anybody approve {a} {d}
please do not reject {a} {d}
what happens if I approve {a}?
say that I approve {a} {d}
I neither approve nor reject {a} {d}
let me think before I approve {a} {d}
I do not say yes to {a} {d}
who says yes to {a} {d}?
I did not say no to {a} {d}
do not pause Clerk
Clerk was paused yesterday
I paused Clerk
pausing Clerk would be a mistake
if Clerk misbehaves, pause it
what if I pause Clerk?
is it wise to disable Clerk?
has Clerk been re-enabled?
Clerk should not be switched off
why was Clerk taken offline?
who re-enabled Clerk?
don't take Clerk offline
the clerk paused for a moment
how do I pause Clerk?
can Clerk be paused?
did you stop Clerk?
"pause Clerk"
„pause Clerk“
what does "pause Clerk" mean?
the trigger Weekly scan
Weekly scan trigger
what does trigger Weekly scan do?
is trigger Weekly scan on?
don't trigger Weekly scan
did anything trigger Weekly scan?
what could trigger Weekly scan?
who can trigger the weekly scan?
if the price falls, trigger Weekly scan
I ran the weekly scan yesterday
do not run the weekly scan
what would the weekly scan cost to run?
the weekly scan was run by Jane
weekly scan
when does the weekly scan run?
„run the weekly scan“
should I use nda-review on acme.txt?
what if I apply Lease to Leases?
Lease was applied to Leases last year
show me my posts
show the statue
what are the states?
which writing is open?
show me the coats
what is a session?
why did the runs fail today?
what should be scheduled?
what was approved yesterday?
what has been approved?
how much does a lease cost?
what will this cost us?
how expensive is a lease in Berlin?
is the tenant in trouble?
are there any problems with the lease?
tell me what a trigger is
let me know when it is done
"""


def rows(table):
    return [tuple(part.strip() for part in line.split("|", 1)) for line in table.strip().splitlines()]


@pytest.fixture
def scene():
    return make_scene()


def test_every_path_has_its_eight():
    labels = [path for path, _ in rows(REACHED)]
    assert {label: labels.count(label) for label in labels} == {path.name: 8 for path in FAST_PATHS}
    assert len(rows(LEFT_ALONE)) >= 100


@pytest.mark.parametrize(("path", "text"), rows(REACHED))
def test_it_is_reached_without_a_model(scene, path, text):
    assert asked(scene, text).path == path
    assert nothing_was_inferred()


@pytest.mark.parametrize("text", [text for (text,) in rows(LEFT_ALONE)])
def test_it_is_left_to_the_model_and_no_lever_is_pulled(scene, text):
    before = last_row()
    answer = asked(scene, text)

    assert answer.path == ""
    assert {kind for kind, *_ in trail(before)} <= {"autonomous_trigger.run_now"}  # that it was asked for
    assert not AgentSession.objects.exclude(halt_state="running").exists()
    assert is_pending(scene.approval)
    assert not Agent.objects.filter(enabled=False).exists()
    assert not Trigger.objects.filter(kind="schedule").exists()
