"""What a request has to say to be one of the common ones: the grammars of the thirteen fast paths. Pure.

Near misses are left to the model. What a path then does with what was said is in fast_paths.py.
"""

from typing import Final

from agents.ask.language import Grammar, Request, words

SHOW: Final = words("show list display give get view see print fetch retrieve")
_MINE: Final = words("me my mine our us the all of current currently")
_WHOSE: Final = words("my our mine the all i-have there-is any current currently exist exists")
_SUMMED: Final = words("summary report overview breakdown total")
_SPANS: Final = words(
    "today today's yesterday yesterday's this week month so-far for daily weekly monthly last-week last-month"
)


def _listing(nouns: str, which: str = "", *, one: str = "", most: int = 0) -> tuple[Grammar, ...]:
    """Ways to ask for a list: show me …, my …, which … are …, how many … are there, do I have any …

    `most` is 1 where a number may say how long the list is to be.
    """
    plural, qualified = words(nouns), words(which)
    known = plural | words(one)
    told = _MINE | qualified | words("is are still been have has did show")
    return (
        Grammar((SHOW, known), _MINE | qualified | words("any list a an overview that which are still"), ids=(0, most)),
        Grammar((words("want need like"), known), _MINE | qualified | words("i would a an list overview"), most=9),
        Grammar((plural,), words("my our all any the current list overview of") | qualified, ids=(0, most), most=5),
        Grammar((words("what which"), known, _WHOSE | qualified), told),
        Grammar((words("how-many"), known), told | _WHOSE),
        Grammar((words("there-is i-have"), known), _MINE | qualified | words("any still")),
        Grammar((words("are is have has did"), known, qualified), told | words("any"), most=8),
    )


_STATUSES: Final = (
    "running active open live ongoing unfinished queued waiting sleeping completed finished done halted stopped failed "
    "fail failing crashed recent recently last latest newest today today's yesterday yesterday's this week month "
    "last-week last-month"
)
_HALT: Final = words("halt stop cancel abort kill terminate end shut-down interrupt call-off")
_RUNS: Final = words("session sessions run runs job jobs")
_THIS_RUN: Final = words("the this that my with id number running active current last latest all every")
_YES: Final = words("approve accept allow authorise authorize grant permit")
_NO: Final = words("reject deny refuse decline disapprove veto")
YES: Final = _YES | {f"i-{verb}" for verb in _YES}
NO: Final = _NO | {f"i-{verb}" for verb in _NO}
_TICKETS: Final = words("approval approvals request requests ticket tickets it all everything")
_THIS_TICKET: Final = words("the this that with digest id number pending call")
_SYSTEM: Final = words("system service services installation platform server lqops everything")
_WELL: Final = words("up running ok okay fine healthy alive working online operational well alright down broken")
_ILL: Final = words("problem problems issue issues error errors wrong broken trouble")
_COSTS: Final = words("cost costs spend spending spendings expense expenses bill budget budgets")
_SO_MUCH: Final = words("i we it you us me this been was were money all everything in total already far")
_LAST: Final = words("last latest newest recent most")


_BARE: Final = _YES | _NO


def _deciding(verbs: frozenset[str]) -> tuple[Grammar, ...]:
    return (
        Grammar((verbs,), _TICKETS | _THIS_TICKET, ids=(1, 3), orders=True),
        Grammar((verbs & _BARE, _TICKETS), _THIS_TICKET | words("my"), orders=True),
        Grammar((verbs & _BARE,), most=1, orders=True),
    )


HELP: Final = (
    Grammar((words("help"),), words("me i need some want show get the menu with lqops"), most=6),
    Grammar((words("what-can-you-do"),), words("here lqops show all"), most=4),
    Grammar(
        (words("commands"),),
        SHOW
        | _MINE
        | words("available what which are help possible there-is i-have exist")
        | words("your you know understand can i use"),
        most=7,
    ),
)
STATUS: Final = (
    Grammar(
        (words("status health healthcheck uptime"),),
        SHOW | _SYSTEM | words("me the what is check overall general current of report"),
        most=8,
    ),
    Grammar((words("is are"), _WELL, _SYSTEM | words("you things")), words("the all still there"), most=7),
    Grammar((words("how"), _SYSTEM | words("things")), words("is are the doing going running healthy well"), most=6),
    Grammar((words("state condition"), _SYSTEM), SHOW | words("me the what is of our in which"), most=8),
    Grammar((words("does do"), words("work run"), _SYSTEM), words("the all still"), most=6),
    Grammar((_ILL, _SYSTEM), words("is are there-is any anything something with in the"), most=8),
)
AGENT: Final = words("agent agents")
AGENTS: Final = (
    *_listing("agents", "running active enabled disabled paused on off working", one="agent"),
    Grammar((words("what"), words("agents"), words("doing up-to")), words("are my our the all currently"), most=6),
)
_TIMED: Final = words("scheduled automated")
TRIGGERS: Final = (
    *_listing(
        "triggers schedules watches automations cronjobs",
        "active enabled disabled paused live scheduled",
        one="trigger schedule",
    ),
    Grammar((words("what which anything something"), _TIMED), words("is are there-is currently to run show"), most=7),
    Grammar((words("runs jobs tasks everything"), _TIMED), SHOW | _MINE | words("what which is are that"), most=7),
    Grammar((words("what which"), words("automatically")), words("is are runs run show things triggers"), most=6),
)
_DAYS: Final = words("today yesterday this week month last-week last-month")
SESSIONS: Final = (
    *_listing("sessions runs jobs failures", _STATUSES, one="session job", most=1),
    Grammar(
        (words("what which anything something"), words("running active queued sleeping failed failing fail")),
        words("is are there-is currently still has have did been show") | _DAYS,
        most=7,
    ),
    Grammar((words("what which"), words("ran run"), _DAYS), words("has have did been show"), most=7),
)
RECEIPT: Final = (
    Grammar(
        (SHOW | words("open want need like"), words("receipt receipts")),
        _MINE | _RUNS | _LAST | words("for from i would a number"),
        ids=(0, 3),
    ),
    Grammar((words("receipt receipts"),), _RUNS | _LAST | words("my the of for from number"), ids=(0, 3), most=7),
    Grammar((words("what"), words("is"), words("receipt")), _RUNS | words("the of for from"), ids=(1, 3)),
    Grammar((words("what"), words("did"), words("do cost")), _RUNS | words("the my"), ids=(1, 1), most=7),
)
HALT: Final = (
    Grammar((_HALT, _RUNS), _THIS_RUN, ids=(0, 5), orders=True),
    Grammar((_HALT,), _THIS_RUN, ids=(1, 5), orders=True),
    Grammar((words("shut"), words("down")), _RUNS | words("the my"), ids=(1, 1), most=6, orders=True),
    Grammar((_HALT, words("everything all")), words("running"), most=3, orders=True),
)
# To lift a halt of all work. No path does: it takes the lever itself.
RELEASE: Final = (
    Grammar(
        (words("release unhalt"), words("everything all work it halt")),
        words("the again of lqops"),
        most=5,
        orders=True,
    ),
    Grammar((words("release unhalt"),), most=1, orders=True),
    Grammar(
        (words("lift undo end cancel remove release"), words("halt")), words("the this of all work everything"), most=6
    ),
)
# Said in a chat whose last message is being worked on: that is what is meant.
HALT_THIS: Final = (
    Grammar((_HALT,), most=1, orders=True),
    Grammar((_HALT, words("it this that answering working")), words("session run job"), most=3, orders=True),
)
ASKING: Final = words("ask asks asked asking")
QUESTIONS: Final = ASKING | words("question questions")
APPROVALS: Final = (
    *_listing("approvals", "pending open waiting outstanding undecided unresolved", one="approval"),
    *_listing("questions", "pending open waiting outstanding unanswered", one="question"),
    Grammar(
        (
            words("do does did has is are"),
            words("anybody anyone agent agents somebody someone"),
            ASKING,
        ),
        words("me us my any an of the there-is something anything question questions have waiting for"),
        most=8,
    ),
    Grammar((words("what who"), ASKING, words("me us")), words("is are do does agents my the something"), most=8),
    Grammar((words("approval"), words("queue")), SHOW | _MINE | words("what is in"), most=7),
    Grammar(
        (words("pending open outstanding"), words("requests decisions")),
        SHOW | _MINE | words("what which are there-is i-have any"),
        most=6,
    ),
    Grammar((words("what who anything something"), words("waiting waits")), words("is there-is on for me"), most=6),
    Grammar((words("what anything something"), words("pending")), words("is there-is still for me show"), most=6),
    Grammar(
        (
            words("what which who anything something"),
            words("approval approve approved approving sign-off signed-off decision decide decided me"),
            words("need needs waiting waits wait awaits awaiting requires i-have to must pending"),
        ),
        words("do i is are for my there-is a calls requests on be has have still show call"),
        most=9,
    ),
)
DECIDE: Final = (*_deciding(YES), *_deciding(NO))
PRECEDENTS: Final = (
    *_listing(
        "precedents patterns",
        "recurring repeated recent latest last new known observed seen recorded found so-far",
        one="precedent pattern",
    ),
    Grammar((words("what"), words("recurs recurring")), words("keeps is show"), most=4),
)
_SPENT: Final = words("spent cost spend spending used burned")
COSTS: Final = (
    Grammar((SHOW, _COSTS), _MINE | _SUMMED | _SPANS | words("a an in")),
    Grammar((_COSTS,), words("my our the of") | _SUMMED | _SPANS, most=6),
    Grammar((words("what"), words("is are"), _COSTS, _WHOSE | _SPANS | _SUMMED), _MINE),
    Grammar((words("how-much"), _SPENT), _SPANS | _SO_MUCH | words("have has did are show my our the") | AGENT),
    Grammar((words("what"), _SPENT, words("have has did are")), _SPANS | _SO_MUCH | words("show my our the") | AGENT),
    Grammar((words("what"), words("spent"), SHOW), _SPANS | _SO_MUCH),
    Grammar((words("how"), words("expensive"), words("was is has"), _SPANS), words("been it all"), most=7),
    Grammar((words("how-much"), words("money budget")), _SPANS | words("is left do i we i-have remains my our the")),
    Grammar((_COSTS | words("spent"), words("per by each"), AGENT), SHOW | _MINE | _SPANS),
)
# The same of one agent, whose name is taken out before: see spending.py.
COSTS_OF_ONE: Final = (
    Grammar(
        (_COSTS | words("spent"),), words("the my of for by from total did does has agent what is are") | SHOW | _SPANS
    ),
    Grammar((words("how-much what"), _SPENT), words("did does has have the my agent money so-far") | _SPANS),
)
COST_WORDS: Final = _COSTS | _SPENT


def is_covered(request: Request, grammars: tuple[Grammar, ...]) -> bool:
    return any(grammar.covers(request) for grammar in grammars)


# Orders that name rows of a person. The names are taken out before these are asked: see naming.py.
_THIS_AGENT: Final = AGENT | words("the my this called named again back")
PAUSE: Final = (
    Grammar((words("pause suspend disable deactivate freeze"),), _THIS_AGENT, orders=True),
    Grammar((words("switch turn"), words("off")), _THIS_AGENT, orders=True),
    Grammar((words("put place"), words("hold pause")), _THIS_AGENT | words("on"), orders=True),
    Grammar((words("take"), words("offline")), _THIS_AGENT, orders=True),
)
RESUME: Final = (
    Grammar(
        (words("resume unpause enable activate reactivate unfreeze re-enable reenable re-activate unsuspend"),),
        _THIS_AGENT,
        orders=True,
    ),
    Grammar((words("switch turn"), words("on")), _THIS_AGENT, orders=True),
    Grammar((words("bring"), words("online")), _THIS_AGENT, orders=True),
)
STOP: Final = (Grammar((words("stop halt"),), _THIS_AGENT, orders=True),)
START: Final = (Grammar((words("start launch"),), _THIS_AGENT, orders=True),)
_PARTS: Final = words("the my a an on over against for with using by of in through to collection document file")
_PARTS_ALSO: Final = words("folder documents files trigger playbook skill schedule watch once again all everything")
_PARTS_OF_RUN: Final = _PARTS | _PARTS_ALSO
STARTING: Final = words("run start launch execute fire begin kick-off rerun re-run perform")
READING: Final = words("check review audit analyse analyze test apply use scan inspect examine")
RUN: Final = (Grammar((STARTING,), _PARTS_OF_RUN, orders=True),)
CHECK: Final = (Grammar((READING,), _PARTS_OF_RUN, orders=True),)
# `trigger` is a noun as a rule; it is an order when it comes first and nothing but a name follows: see runs.py.
TRIGGER: Final = (Grammar((words("trigger"),), words("the my"), most=2, orders=True),)
SCHEDULE: Final = (
    Grammar(
        (STARTING | READING | words("schedule repeat create add make set-up"),),
        _PARTS_OF_RUN | words("new that which runs checks reviews interval let have should be and"),
        orders=True,
        verbs=2,
    ),
)
# Words that begin an order. They are never taken for a slip of another word.
LEVERS: Final = frozenset().union(
    *(grammar.needs[0] for grammar in (*HALT, *DECIDE, *PAUSE, *RESUME, *STOP, *START, *RUN, *CHECK, *TRIGGER))
)
