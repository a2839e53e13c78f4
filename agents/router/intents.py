"""What a request has to say to be one of the common ones: the grammars of the thirteen fast paths. Pure.

Near misses are left to the model. What a path then does with what was said is in fast_paths.py.
"""

from typing import Final

from agents.router.words import Grammar, Request, words

SHOW: Final = words("show list display give get view see print")
_MINE: Final = words("me my mine our us the all of current currently")
_WHOSE: Final = words("my our mine the all i-have there-is any current currently")
_SUMMED: Final = words("summary report overview breakdown total")
_SPANS: Final = words("today today's yesterday yesterday's this week month so-far for daily weekly monthly")


def _listing(nouns: str, which: str = "", *, one: str = "", most: int = 0) -> tuple[Grammar, ...]:
    """Ways to ask for a list: show me …, my …, which … are …, how many … are there, do I have any …

    `most` is 1 where a number may say how long the list is to be.
    """
    plural, qualified = words(nouns), words(which)
    known = plural | words(one)
    return (
        Grammar((SHOW, known), _MINE | qualified | words("any list"), ids=(0, most)),
        Grammar((plural,), words("my our all any the current list") | qualified, ids=(0, most), most=5),
        Grammar((words("what which"), known, _WHOSE | qualified), _MINE | words("is are")),
        Grammar((words("how-many"), known), _MINE | _WHOSE | qualified | words("are have")),
        Grammar((words("there-is i-have"), known), _MINE | qualified | words("any")),
    )


_STATUSES: Final = (
    "running active open queued waiting sleeping completed finished done halted stopped failed recent recently last "
    "latest newest"
)
_HALT: Final = words("halt stop cancel abort kill terminate end shut-down")
_RUNS: Final = words("session sessions run runs job jobs")
_THIS_RUN: Final = words("the this that my with id number running active current last latest all every")
YES: Final = words("approve accept allow authorise authorize grant permit")
NO: Final = words("reject deny refuse decline disapprove")
_TICKETS: Final = words("approval approvals request requests ticket tickets it all everything")
_THIS_TICKET: Final = words("the this that with digest id number pending call")
_SYSTEM: Final = words("system service services installation platform server lqops everything")
_WELL: Final = words("up running ok okay fine healthy alive working online operational well")
_COSTS: Final = words("cost costs spend spending spendings expense expenses bill budget budgets")
_SO_MUCH: Final = words("i we it you been was money all everything in total already")
_LAST: Final = words("last latest newest recent most")


def _deciding(verbs: frozenset[str]) -> tuple[Grammar, ...]:
    return (
        Grammar((verbs,), _TICKETS | _THIS_TICKET, ids=(1, 3), orders=True),
        Grammar((verbs, _TICKETS), _THIS_TICKET | words("my"), orders=True),
        Grammar((verbs,), most=1, orders=True),
    )


HELP: Final = (
    Grammar((words("help"),), words("me i need some want show get the menu with lqops"), most=6),
    Grammar((words("what-can-you-do"),), words("here lqops"), most=3),
    Grammar((words("commands"),), SHOW | _MINE | words("available what which are help possible"), most=7),
)
STATUS: Final = (
    Grammar(
        (words("status health healthcheck uptime"),),
        SHOW | _SYSTEM | words("me the what is check overall general current of report"),
        most=8,
    ),
    Grammar((words("is are"), _WELL, _SYSTEM | words("you things")), words("the all still there"), most=7),
    Grammar((words("how"), _SYSTEM | words("things")), words("is are the doing going running"), most=6),
)
AGENT: Final = words("agent agents")
AGENTS: Final = _listing("agents", "running active enabled disabled paused on off working", one="agent")
TRIGGERS: Final = _listing(
    "triggers schedules watches automations", "active enabled disabled paused live scheduled", one="trigger schedule"
)
SESSIONS: Final = (
    *_listing("sessions runs jobs", _STATUSES, one="session", most=1),
    Grammar((words("what which anything"), words("running active")), words("is are there-is currently"), most=5),
)
RECEIPT: Final = (
    Grammar((SHOW | words("open"), words("receipt receipts")), _MINE | _RUNS | _LAST | words("for from"), ids=(0, 3)),
    Grammar((words("receipt receipts"),), _RUNS | _LAST | words("my the of for from"), ids=(0, 3), most=7),
    Grammar((words("what"), words("is"), words("receipt")), _RUNS | words("the of for from"), ids=(1, 3)),
)
HALT: Final = (
    Grammar((_HALT, _RUNS), _THIS_RUN, ids=(0, 5), orders=True),
    Grammar((_HALT,), _THIS_RUN, ids=(1, 5), orders=True),
    Grammar((_HALT, words("everything all")), words("running"), most=3, orders=True),
)
APPROVALS: Final = (
    *_listing("approvals", "pending open waiting outstanding undecided unresolved", one="approval"),
    Grammar((words("approval"), words("queue")), SHOW | _MINE | words("what is in"), most=7),
    Grammar((words("pending"), words("requests decisions")), SHOW | _MINE, most=6),
    Grammar((words("what who anything"), words("waiting waits")), words("is there-is on for me"), most=6),
    Grammar(
        (
            words("what which anything something"),
            words("approval approve sign-off decision decide me"),
            words("need needs waiting waits wait awaits awaiting requires i-have to"),
        ),
        words("do i is are for my there-is a calls requests on"),
        most=9,
    ),
)
DECIDE: Final = (*_deciding(YES), *_deciding(NO))
PRECEDENTS: Final = _listing(
    "precedents patterns", "recurring repeated recent latest last new known observed", one="precedent pattern"
)
COSTS: Final = (
    Grammar((SHOW, _COSTS), _MINE | _SUMMED | _SPANS),
    Grammar((_COSTS,), words("my our the") | _SUMMED | _SPANS, most=6),
    Grammar((words("what"), words("is are"), _COSTS, _WHOSE | _SPANS | _SUMMED), _MINE),
    Grammar((words("how-much"), words("spent cost spend")), _SPANS | _SO_MUCH | words("have has did")),
    Grammar((words("what"), words("spent cost spend"), words("have has did")), _SPANS | _SO_MUCH),
    Grammar((_COSTS | words("spent"), words("per by each"), AGENT), SHOW | _MINE | _SPANS),
)


def is_covered(request: Request, grammars: tuple[Grammar, ...]) -> bool:
    return any(grammar.covers(request) for grammar in grammars)


# Orders that name rows of a person. The names are taken out before these are asked: see naming.py.
_THIS_AGENT: Final = AGENT | words("the my this called named again back")
PAUSE: Final = (
    Grammar((words("pause suspend disable deactivate freeze"),), _THIS_AGENT, orders=True),
    Grammar((words("switch turn"), words("off")), _THIS_AGENT, orders=True),
    Grammar((words("put place"), words("hold pause")), _THIS_AGENT | words("on"), orders=True),
)
RESUME: Final = (
    Grammar((words("resume unpause enable activate reactivate unfreeze"),), _THIS_AGENT, orders=True),
    Grammar((words("switch turn"), words("on")), _THIS_AGENT, orders=True),
)
STOP: Final = (Grammar((words("stop halt"),), _THIS_AGENT, orders=True),)
START: Final = (Grammar((words("start launch"),), _THIS_AGENT, orders=True),)
_PARTS: Final = words("the my a an on over against for with using by of in through to collection document file")
_PARTS_ALSO: Final = words("folder documents files trigger playbook skill schedule watch once again all everything")
_PARTS_OF_RUN: Final = _PARTS | _PARTS_ALSO
_RUN: Final = words("run start launch execute fire begin kick-off")
_CHECK: Final = words("check review audit analyse analyze test")
RUN: Final = (Grammar((_RUN,), _PARTS_OF_RUN, orders=True),)
CHECK: Final = (Grammar((_CHECK,), _PARTS_OF_RUN, orders=True),)
SCHEDULE: Final = (
    Grammar(
        (_RUN | _CHECK | words("schedule repeat create add make set-up"),),
        _PARTS_OF_RUN | words("new that which runs checks reviews interval"),
        orders=True,
        verbs=2,
    ),
)
