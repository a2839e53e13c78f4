"""Requests in words, by what becomes of them: {s}, {a} and {d} are the ids of a run, an approval and its digest."""

# Paraphrases of the thirteen common requests, by fast path.
UNDERSTOOD = """
help             | help
help             | Can you help me?
help             | What can you do?
help             | show me the available commands, please
help             | HELP!
help             | I need help
help             | what can I ask?
help             | what commands can I use?
help             | hey, help please
help             | which commands are there?
help             | list your commands
help             | tell me what you can do
help             | what are you able to do?
help             | how can you help me?
help             | what commands do I have?
help             | what are my options?
help             | show availble commands
service_status   | status
service_status   | Is everything ok?
service_status   | How is the system doing?
service_status   | Please show me the service status.
service_status   | are you up?
service_status   | list agents
service_status   | what's the system status?
service_status   | is the service still running?
service_status   | health check
service_status   | are things ok?
service_status   | is the system down?
service_status   | does everything still work?
service_status   | are there any problems with the system?
service_status   | what state is the service in?
service_status   | how healthy is the platform?
service_status   | tell me the status
service_status   | what are my agents doing?
service_status   | show me the system staus
list_triggers    | list triggers
list_triggers    | Which triggers are paused?
list_triggers    | Do I have any watches?
list_triggers    | Hi, could you show me my schedules?
list_triggers    | How many triggers are there?
list_triggers    | give me a list of my triggers
list_triggers    | what schedules do we have?
list_triggers    | any active triggers?
list_triggers    | triggers?
list_triggers    | what's scheduled?
list_triggers    | which schedules exist?
list_triggers    | is anything scheduled?
list_triggers    | list everything that is scheduled
list_triggers    | what runs automatically?
list_triggers    | tell me which triggers are paused
list_triggers    | give me an overview of my automations
list_triggers    | list trigers
list_sessions    | my sessions
list_sessions    | What's running?
list_sessions    | Which sessions failed?
list_sessions    | list the latest runs
list_sessions    | are there any active sessions?
list_sessions    | show all jobs
list_sessions    | what sessions do I have?
list_sessions    | any running sessions?
list_sessions    | display my latest 5 sessions
list_sessions    | is anything running?
list_sessions    | what's queued?
list_sessions    | recent failures
list_sessions    | which jobs are still running?
list_sessions    | which runs failed today?
list_sessions    | what is in progress?
list_sessions    | did anything fail?
list_sessions    | have any runs crashed?
list_sessions    | what ran yesterday?
list_sessions    | tell me which sessions are unfinished
list_sessions    | show my sesions
show_receipt     | show receipt {s}
show_receipt     | Receipt for session {s}, please
show_receipt     | give me the latest receipt
show_receipt     | can I see the receipt of {s}?
show_receipt     | I'd like to see the receipt for {s}
show_receipt     | print receipt {s}
show_receipt     | {s} receipt
show_receipt     | fetch the receipt of {s}
show_receipt     | I need the receipt for run {s}
show_receipt     | pull up the receipt of session {s}
show_receipt     | I want a receipt for {s}
show_receipt     | what did session {s} do?
show_receipt     | retrieve the latest receipt
show_receipt     | what did run {s} cost?
show_receipt     | show the reciept of {s}
halt_session     | halt session {s}
halt_session     | Please stop {s} now!
halt_session     | Could you kill the run {s}?
halt_session     | Hi, cancel session #{s}. Thanks!
halt_session     | HALT {s}
halt_session     | terminate {s}
halt_session     | abort session {s} immediately
halt_session     | session {s} stop
halt_session     | would you end the session {s}, please?
halt_session     | interrupt session {s}
halt_session     | call off run {s}
halt_session     | shut session {s} down
halt_session     | please, stop run “{s}”
halt_session     | end job {s} at once
halt_session     | let's kill session {s}
halt_session     | go ahead and cancel the run {s}
halt_session     | stop „{s}“
switch_agent     | pause agent Clerk
switch_agent     | Please switch Clerk off
switch_agent     | resume the agent clerk
switch_agent     | turn on "Clerk"
switch_agent     | put Clerk on hold
switch_agent     | Stop the clerk
switch_agent     | disable Clerk
switch_agent     | reactivate agent Clerk
switch_agent     | turn Clerk off please
switch_agent     | suspend the Clerk agent
switch_agent     | Can you unpause Clerk?
switch_agent     | re-enable Clerk
switch_agent     | take Clerk offline
switch_agent     | bring Clerk back online
switch_agent     | pause „Clerk“
switch_agent     | switch the agent «Clerk» off
switch_agent     | unsuspend agent Clerk
switch_agent     | freeze the agent Clerk right now
switch_agent     | I want you to reenable the agent Clerk
list_approvals   | who is waiting on me?
list_approvals   | anything I need to sign off?
list_approvals   | pending approvals
list_approvals   | What needs my approval?
list_approvals   | Is there anything to approve?
list_approvals   | What's waiting for me?
list_approvals   | show open approvals
list_approvals   | list questions
list_approvals   | open questions
list_approvals   | does anybody ask me something?
list_approvals   | do my agents ask me anything?
list_approvals   | are there any unanswered questions?
list_approvals   | who asks me something?
list_approvals   | anything waiting for my approval?
list_approvals   | list all pending approvals
list_approvals   | which approvals are open?
list_approvals   | what is there to approve?
list_approvals   | what has to be approved?
list_approvals   | what needs to be decided?
list_approvals   | what must be signed off?
list_approvals   | is anything pending?
list_approvals   | do I have to approve something?
list_approvals   | which calls are awaiting approval?
list_approvals   | tell me what needs my approval
list_approvals   | pendng approvals
decide_approval  | approve {a} {d}
decide_approval  | Please reject {a} {d}
decide_approval  | deny approval {a} with digest {d}
decide_approval  | approve {a}
decide_approval  | approve all
decide_approval  | accept {a} {d}
decide_approval  | please decline {a} {d}
decide_approval  | approve request {a}, digest {d}
decide_approval  | I approve {a}
decide_approval  | I reject {a} {d}
decide_approval  | say yes to {a} {d}
decide_approval  | say no to request {a}
decide_approval  | veto {a} {d}
decide_approval  | please authorize the call {a} with digest {d}
decide_approval  | {a}: approve
decide_approval  | I decline request {a}
list_precedents  | list precedents
list_precedents  | What recurring patterns are there?
list_precedents  | Show me my precedents please
list_precedents  | precedents
list_precedents  | any precedents?
list_precedents  | show recurring patterns
list_precedents  | how many precedents do we have?
list_precedents  | which precedents exist?
list_precedents  | what precedents have been observed so far?
list_precedents  | give me an overview of the precedents
list_precedents  | fetch my known patterns
list_precedents  | what keeps recurring?
list_precedents  | are there any new precedents?
list_precedents  | tell me which patterns have been seen
list_precedents  | list precedants
cost_summary     | cost summary
cost_summary     | How much have I spent today?
cost_summary     | show my costs
cost_summary     | What did yesterday cost?
cost_summary     | cost per agent
cost_summary     | What's our spending this month?
cost_summary     | what did we spend this week?
cost_summary     | show me the budget
cost_summary     | what's my total spend so far?
cost_summary     | costs today
cost_summary     | how much has this cost us?
cost_summary     | how much have my agents cost?
cost_summary     | what are we spending?
cost_summary     | how expensive was yesterday?
cost_summary     | how much budget is left?
cost_summary     | tell me what I spent this week
cost_summary     | how much money did we spend today?
cost_summary     | show my spendng
run_now          | run the weekly scan
run_now          | Run playbook Lease on collection Leases
run_now          | Could you start Weekly scan now, please?
run_now          | check Leases against Lease
run_now          | run nda-review over acme.txt
run_now          | launch Weekly scan
run_now          | please run Lease against the document acme.txt
run_now          | kick off the weekly scan
run_now          | review acme.txt with nda-review
run_now          | execute trigger Weekly scan
run_now          | trigger Weekly scan
run_now          | trigger the weekly scan now
run_now          | rerun „Weekly scan“
run_now          | fire the trigger Weekly scan
run_now          | perform the weekly scan
run_now          | apply Lease to Leases
run_now          | use nda-review on acme.txt
run_now          | scan Leases with Lease
create_schedule  | every 6 hours run playbook Lease on Leases
create_schedule  | Run Lease on Leases daily
create_schedule  | schedule Lease over Leases every 30 minutes
create_schedule  | check Leases with Lease each Monday at 9:30
create_schedule  | run playbook Lease on Leases every two hours
create_schedule  | add a schedule: Lease on Leases, weekly
create_schedule  | each day at 6am check Leases against Lease
create_schedule  | review Leases using Lease once a week
create_schedule  | let Lease run on Leases every day
create_schedule  | set up a weekly run of Lease on Leases
create_schedule  | apply Lease to Leases every Monday
create_schedule  | repeat Lease on Leases every 30 minutes
create_schedule  | create a daily schedule for Lease on Leases
create_schedule  | have Lease run on Leases once a week
create_schedule  | scan Leases with Lease each weekday at 7am
create_schedule  | every night run „Lease“ on „Leases“
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
# Requests for an action that cannot be made out, by the fast path that answers with a suggestion.
SUGGESTED = """
halt_session     | halt session nonsense
halt_session     | stop the inbox clerk
halt_session     | halt session {s} and run the weekly scan
halt_session     | halt session {s} if it costs too much
halt_session     | Halt session {s}. Then start it again.
halt_session     | halt session {s} unless it is done
halt_session     | halt session {s} when it is done
halt_session     | halts session {s}
halt_session     | stop that at once please
halt_session     | stop everything you are doing now
switch_agent     | pause agent Clark
switch_agent     | resume Clark
switch_agent     | pause Clerk if it costs too much
switch_agent     | pause the music
switch_agent     | pause Clerk and Jane
switch_agent     | paus agent Clerk
decide_approval  | aprove 8a296ba9
decide_approval  | aprove {a} {d}
decide_approval  | please reject the first one
decide_approval  | deny them both
decide_approval  | approve the merger
decide_approval  | approve {a} {d} unless it is risky
decide_approval  | approve {a} {d} and reject the rest
decide_approval  | approved {a} {d}
run_now          | run playbook Lease on collection Contractz
run_now          | run playbook Leese on collection Leases
run_now          | start Inbox clerk
run_now          | run the weekly scan twice
run_now          | run away
create_schedule  | every blah run playbook Lease on collection Leases
create_schedule  | every lease has a term
"""


def rows(table):
    """The rows of a table, as tuples of their columns."""
    return [tuple(part.strip() for part in line.split("|", 1)) for line in table.strip().splitlines()]
