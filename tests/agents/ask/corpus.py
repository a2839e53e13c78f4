"""Requests in words, by what becomes of them: {s}, {a} and {d} are the ids of a run, an approval and its digest."""

# Wordings of the thirteen common requests, by fast path.
UNDERSTOOD = """
help             | help
help             | Help me, please!
help             | What can you do?
help             | show me the available commands
service_status   | status
service_status   | Is everything ok?
service_status   | How is the system doing?
service_status   | what's the service status?
service_status   | list agents
service_status   | which agents do I have?
service_status   | what are my agents doing?
list_triggers    | triggers
list_triggers    | Hi, could you show me my schedules?
list_triggers    | Which triggers are paused?
list_triggers    | do I have any watches?
list_triggers    | what's scheduled?
list_sessions    | my sessions
list_sessions    | which runs are active?
list_sessions    | show me the failed runs of last week
list_sessions    | are there any active sessions?
list_sessions    | What's running?
list_sessions    | what ran yesterday?
list_sessions    | did anything fail today?
show_receipt     | show receipt {s}
show_receipt     | the receipt for run {s}, please
show_receipt     | show me the latest receipt
show_receipt     | receipt of the last run
halt_session     | halt run {s}
halt_session     | Please stop {s} now!
halt_session     | Could you kill the session {s}?
halt_session     | Hi, cancel session #{s}. Thanks!
halt_session     | stop run “{s}”
halt_session     | stop everything
switch_agent     | pause agent Clerk
switch_agent     | Please switch Clerk off
switch_agent     | resume the agent clerk
switch_agent     | turn on "Clerk"
switch_agent     | disable „Clerk“
switch_agent     | Stop the clerk
list_approvals   | pending approvals
list_approvals   | What needs my approval?
list_approvals   | What waits for me?
list_approvals   | Is there anything to approve?
list_approvals   | list questions
list_approvals   | which approvals are open?
decide_approval  | approve {a} {d}
decide_approval  | Please reject {a} {d}
decide_approval  | deny approval {a} with digest {d}
decide_approval  | approve request {a}, digest {d}
decide_approval  | I approve {a}
decide_approval  | approve all
list_precedents  | precedents
list_precedents  | Show me my precedents please
list_precedents  | What recurring patterns are there?
cost_summary     | cost summary
cost_summary     | How much have I spent today?
cost_summary     | What's our spending this month?
cost_summary     | What did yesterday cost?
cost_summary     | cost per agent last week
cost_summary     | cost of Clerk last month
cost_summary     | how much did Clerk spend?
run_now          | run the weekly scan
run_now          | Run playbook Lease on collection Leases
run_now          | Could you start Weekly scan now, please?
run_now          | check Leases against Lease
run_now          | run nda-review over acme.txt again
create_schedule  | every 6 hours run playbook Lease on Leases
create_schedule  | Run Lease on Leases daily
create_schedule  | schedule Lease over Leases every 30 minutes
create_schedule  | check Leases with Lease each Monday at 9:30
create_schedule  | create a daily schedule for Lease on Leases
"""
# Requests that resemble one of them, and are for the model: questions, negations, reports, quotations, other subjects.
FOR_THE_MODEL = """
help me write a letter
what does help desk mean?
help Jane with her lease
what is the status of session {s}?
status of the Acme lease
why is the system down?
what are triggers?
what do the triggers do?
show me how triggers work
why did my sessions fail?
what is a session?
don't list sessions
explain what a receipt is
why is receipt {s} so long?
show me what a receipt is
why did you halt session {s}?
don't halt anything
halt session {s}?
should I halt session {s}
can I halt session {s}
"halt session {s}"
what does `halt session {s}` do?
never halt {s}
tomorrow halt session {s}
he said: halt session {s}
should I pause Clerk?
why is Clerk paused?
don't pause Clerk
what happens when I pause agent Clerk
why do I need approvals?
what should I approve?
explain approvals
answer these questions
ask me something
what questions should I ask the landlord?
list questions for the landlord
who asked for the lease?
should I approve 12?
don't approve {a} {d}
approve {a} {d}?
what happens if I approve {a} {d}
say "approve {a} {d}"
what is a precedent?
is there a precedent for this clause?
dismiss the precedent
why are the costs so high?
how much would it cost to run the scan?
reduce my costs
what would happen if I run the weekly scan
don't run the weekly scan
run the weekly scan?
who can run playbook Lease on Leases
why is Lease on Leases run every 6 hours?
don't run Lease on Leases every 6 hours
what if we run Lease on Leases every hour?
how do I halt a session?
who halted session {s}?
is it safe to approve {a} {d}
undo the approval of {a}
I approved {a} {d} yesterday
explain the costs
predict my costs
what does Clerk do?
Clerk is paused, why?
make Clerk faster
forget session {s}
compare session {s} with the last one
the status quo
help wanted: paralegal
list the parties of the lease
show me the money clause
which patterns appear in acme.txt
end the letter politely
cancel the lease
kill the second paragraph
enable dark mode
check the spelling
review my essay with care
once upon a time
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
# Requests that are almost one of the thirteen, by the fast path that asks back.
SUGGESTED = """
halt_session     | halt session nonsense
halt_session     | halt session {s} and run the weekly scan
halt_session     | halt session {s} if it costs too much
halt_session     | Halt session {s}. Then start it again.
halt_session     | halt session {s} unless it is done
switch_agent     | pause agent Clark
switch_agent     | pause Clerk if it costs too much
switch_agent     | pause Clerk and Jane
switch_agent     | paus agent Clerk
decide_approval  | aprove {a} {d}
decide_approval  | approve {a} {d} unless it is risky
decide_approval  | approve {a} {d} and reject the rest
decide_approval  | approve the request of Jane
run_now          | run playbook Lease on collection Contractz
run_now          | run the weekly scan twice
list_triggers    | list trigers
list_sessions    | show my sesions, please
"""


def rows(table):
    """The rows of a table, as tuples of their columns."""
    return [tuple(part.strip() for part in line.split("|", 1)) for line in table.strip().splitlines()]
