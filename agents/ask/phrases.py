"""The phrases of the thirteen fast paths: one table. Pure.

`[x]` is optional, `(x|y)` a choice, `*` and `+` repeat it, `{x}` is a group of words; slots are in upper case: see
`compile_phrases`. The key is a path, with the action after a colon where a path has several.
"""

from typing import Final

from agents.ask.language import Pattern, compile_phrases

# --- Groups of words ---

GROUPS: Final = {
    "show": (
        "(show|list|display|give|get|view|see|print|fetch|retrieve|tell|pull up|bring up|let me (see|know)|"
        "(can|could|may) i (see|have)|i (want|need|would like)) [me|us]"
    ),
    "the": "the|my|our|all|of|any|current|currently",
    "period": "today|today's|yesterday|yesterday's|(this|last|previous) (week|week's|month|month's)",
    "exist": "{have_any}|exist|exists",
    "have_any": "are there|is there|do i have|do we have|have i got|have we got",
    "ongoing": "running|active|in progress|under way|queued|sleeping|failed|failing|fail",
    "run": "session|sessions|run|runs|job|jobs",
    # The installation
    "system": "system|service|services|installation|platform|server|lqops|everything|things|you",
    "well": "up|running|ok|okay|fine|healthy|alive|working|online|operational|well|alright|down|broken",
    "trouble": "problem|problems|issue|issues|error|errors|trouble",
    "automated": "scheduled|automated",
    # Halts and decisions
    "halt": "halt|stop|cancel|abort|kill|terminate|end|shut down|interrupt|call off",
    "approve": "approve|accept|allow|authorise|authorize|grant|permit",
    "deny": "reject|deny|refuse|decline|disapprove|veto",
    "ticket": "[the|this|that] [pending] [approval|request|ticket|call] [number|id] ID [[with] digest] [ID]",
    "tickets": "it|all|everything|[the|this|that|my|all]* [pending] (approval|request|ticket|call|approvals|requests)",
    # Approvals and questions that wait
    "anything": "[is] [there] (anything|something)|what|who|which (calls|requests)",
    "me": "me|[my|a] (approval|decision|sign off)",
    "asker": "anybody|anyone|somebody|someone|agent|agents",
    "to_be": "(has|have|needs|need|is|are) to be|must be",
    # Costs
    "cost": "cost|costs|spend|spending|spendings|expense|expenses|bill|budget|budgets",
    "costs": "{cost} [{summary}]",
    "summary": "summary|report|overview|breakdown|total",
    "spent": "spent|spend|spending|cost|used|burned",
    "spender": "i|we|you|it|[all] this|everything|{the}* agents|{period}|{agent}",
    "so_far": "[us|me|so far|already|in total]* [[for|in|of] {period}] [so far]",
    # Things with a name
    "agent": "[the|my|this] [agent] [called|named] NAME [agent]",
    "agents": "{agent}|[the|my] (agent|agents)",
    "kind": "trigger|schedule|watch|playbook|skill|collection|folder|document|file",
    "named": "[the|my|a]* [{kind}] NAME [{kind}]",
    "on": "on|over|against|for|with|using|by|of|in|through|to",
    "start": "run|start|launch|execute|fire|begin|kick off|rerun|re-run|perform",
    "check": "check|review|audit|analyse|analyze|test|apply|use|scan|inspect|examine",
}


def _list(plural: str, which: str, singular: str = "") -> str:
    """Ways to ask for a list: show my …, which … are …, how many … are there, do I have any …"""
    nouns = f"({plural}|{singular})" if singular else f"({plural})"
    which = f"({which})"
    return f"""
        {{show}} {{the}}* [[a|an] (list|overview) of] {{the}}* {which}* {nouns} [that|which] [are] [of] [the] {which}*
        [[a|an] (list|overview) of] {{the}}* {which}* ({plural}) [of] [the] {which}*
        [{{show}}] (what|which) {{the}}* {which}* {nouns} [are|is|have|has|did] [still|been|currently]* {which}+
        [{{show}}] (what|which|how many) {{the}}* {which}* {nouns} {{exist}}
        what (are|is) (the|my|our) {which}* {nouns}
        how many {{the}}* {which}* {nouns} [are|is|have|has|did] [still|been|currently]* {which}*
        {{have_any}} {{the}}* [still] {which}* {nouns} {which}*
        (are|is|have|has|did) {{the}}* {nouns} [still|been|currently]* {which}+
    """


_STATUSES: Final = (
    "running|active|open|live|ongoing|unfinished|in progress|under way|queued|waiting|sleeping|completed|finished|done|"
    "halted|stopped|failed|fail|failing|crashed"
)

# --- The table ---

LOOKUPS: Final = {
    "help": """
        [i (need|want)] [some] help [me] [menu]
        [{show}] what (can you|you can|are you able to) (do|help [me] with)
        what can i (do|say|ask [you|for])
        how can you help [me]
        how (does this work|do i use this)
        what (are my options|do you understand)
        [{show}] [the|your|all]* [available|possible] commands
        (what|which) commands ({exist}|can i use|are available|do you (know|understand))
    """,
    "service_status": """
        [{show}|what is|check] {the}* [overall|general] [{system}] (status|health|healthcheck|uptime) [check|report]
        [{show}|what is|check] {the}* (status|health|state|condition) of {the}* {system}
        what (state|condition) is {the}* {system} in
        (is|are) {the}* {system} [all] [still] {well}
        how (is|are|healthy is) {the}* {system} [doing|going|running]
        (does|do) {the}* {system} [all] [still] (work|run)
        [(is|are) there] [any] {trouble} (with|in) {the}* {system}
        is (anything|something) (wrong|broken) with {the}* {system}
    """,
    "service_status:agents": f"""
        {_list("agents", "running|active|enabled|disabled|paused|on|off|working", "agent")}
        what are {{the}}* agents (doing|up to)
    """,
    "list_triggers": f"""
        {_list("triggers|schedules|watches|automations|cronjobs", "active|enabled|disabled|paused|live|scheduled",
               "trigger|schedule")}
        [is] (what|which|anything|something) [is|are|currently]* {{automated}} [to run]
        {{show}} {{the}}* (what|everything|runs|jobs|tasks) [that|which] [is|are] {{automated}}
        [{{show}}] {{the}}* {{automated}} (runs|jobs|tasks)
        (what|which) [things] (runs|run|is run|are run) automatically
    """,
    "list_sessions": f"""
        {_list("sessions|runs|jobs|failures",
               _STATUSES + "|recent|recently|last|latest|newest|{period}|COUNT", "session|job")}
        [{{show}}] [is|has|did] (what|which|anything|something) [is|are|has|did|been|still]* {{ongoing}} [{{period}}]
        (what|which) [has|have] (ran|run|been run) {{period}}
    """,
    "show_receipt": """
        [{show}|open] [a] {the}* [last|latest|newest|[most] recent] (receipt|receipts)
        [{show}|open|what is] [a] {the}* (receipt|receipts) [of|for|from] {the}* [last|latest] [{run}] [number] ID [ID]*
        [{show}|open] {the}* (receipt|receipts) (of|for|from) {the}* (last|latest|newest) {run}
        ID receipt
        what did {the}* [{run}] ID (do|cost)
    """,
    "list_approvals": f"""
        {_list("approvals|questions", "pending|open|waiting|outstanding|undecided|unresolved|unanswered",
               "approval|question")}
        [{{show}}|what is in] {{the}}* approval queue
        [{{show}}|what are|{{have_any}}] {{the}}* (pending|open|outstanding) (requests|decisions)
        [{{show}}] {{anything}} [is|are] [still] (waiting|waits|pending) [(for|on) {{me}}]
        [{{show}}] {{anything}} [is|are] (need|needs|requires|awaits|awaiting|waiting for) {{me}}
        [{{show}}] {{anything}} {{to_be}} (approved|decided|signed off)
        {{anything}} [is there] [i (need|have)] to (approve|decide|sign off)
        what (do i (need|have) to|must i) (approve|decide|sign off)
        do i (need|have) to (approve|decide|sign off) (anything|something)
        (do|does|did|has|is) {{the}}* {{asker}} (ask|asks|asked|asking) (me|us) [anything|something|a question]
        (what|who) (asks|is asking) (me|us) [something]
    """,
    "list_precedents": f"""
        {_list("precedents|patterns",
               "recurring|repeated|recent|latest|last|new|known|observed|seen|recorded|found|so far",
               "precedent|pattern")}
        what (recurs|(is|keeps) recurring)
    """,
    "cost_summary": """
        [{show}|what (is|are) (the|my|our)] [a] {the}* [{period}|daily|weekly|monthly] [total] {costs} {so_far}
        [{show}] [a|an] {the}* {summary} of {the}* {cost} {so_far}
        (what|how much) [money] (have|has|did|are) {spender} {spent} {so_far}
        how much [money] (was|is|has been) spent {so_far}
        {show} what {spender} spent {so_far}
        how expensive (was|is|has) {period} [been]
        how much (money|budget) (is left|remains|do (i|we) have [left]) {so_far}
        [{show}|what is] {the}* [total] ({cost}|spent) (of|for|by) {agent} {so_far}
    """,
    "cost_summary:agents": """
        [{show}] {the}* ({cost}|spent) (per|by|[for] each) (agent|agents) {so_far}
        {show} {the}* {period} {cost} (per|by) agent
    """,
}  # fmt: skip
ACTIONS: Final = {
    # In a chat: the message that is being answered.
    "halt_session:this": "{halt} [(it|this|that|answering|working) [session|run|job]]",
    "halt_session": """
        {halt} [the|this|that|my|all|every]* [running|active|current|last|latest]* {run} [with] [id|number] [ID]*
        {halt} ID [ID]*
        [{run}] ID {halt}
        shut [the|my] [{run}] ID down
        {halt} (everything|all) [running]
    """,
    # Words release nothing: the answer says how.
    "halt_session:release": """
        (release|unhalt) [it|everything|all|[all] [the] work] [again]
        (lift|undo|end|cancel|remove|release) [the|this] halt [of (everything|all [work])]
    """,
    "decide_approval:approve": """
        ([i] {approve}|say yes to) {ticket}
        ID [ID] {approve}
        {approve} [{tickets}]
    """,
    "decide_approval:deny": """
        ([i] {deny}|say no to) {ticket}
        ID [ID] {deny}
        {deny} [{tickets}]
    """,
    "switch_agent:pause": """
        (pause|suspend|disable|deactivate|freeze) {agents}
        (switch|turn) (off {agents}|{agents} off)
        (put|place) {agents} on (hold|pause)
        take {agents} offline
    """,
    "switch_agent:resume": """
        (resume|unpause|enable|activate|reactivate|re-activate|re-enable|reenable|unfreeze|unsuspend) {agents} [again]
        (switch|turn) (on {agents}|{agents} [back] on)
        bring {agents} [back] online
    """,
    "switch_agent:stop": "(stop|halt) {agents}",
    "switch_agent:start": "(start|launch) {agents} [again]",
    "run_now": """
        {start} {named} [{on} {named}] [again|once]
        {start} [the|my|a] (trigger|playbook|skill)
        {check} {named} {on} {named}
        trigger [the|my] NAME
    """,
    "create_schedule": """
        ({start}|{check}|schedule|repeat) {named} [{on} {named}]
        (create|add|make|set up) a [new] (schedule|run|check|review) [{on}|to run|that runs] [{named} [{on} {named}]]
        (let|have) {named} {start} [{on} {named}]
    """,
}  # fmt: skip


def _compiled(phrases: str, *, is_action: bool) -> Pattern:
    return compile_phrases([line for line in phrases.splitlines() if line.strip()], GROUPS, is_action=is_action)


PATTERNS: Final = {
    **{key: _compiled(phrases, is_action=False) for key, phrases in LOOKUPS.items()},
    **{key: _compiled(phrases, is_action=True) for key, phrases in ACTIONS.items()},
}
