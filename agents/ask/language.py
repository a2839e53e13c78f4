"""A short request as words, and grammars over them. Pure.

A grammar covers a request only if every word of it is one that the grammar knows. So whatever is said beside an order
(a negation, a condition, a question about it, a second order) makes it something that the grammar does not cover, and
it goes to the model.
"""

import logging
import re
import unicodedata
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

logger = logging.getLogger(__name__)


LONGEST: Final = 300
MOST_WORDS: Final = 40
MOST_NAMED: Final = 200
_LOOKED_AT: Final = 2_000
_TOKEN: Final = re.compile(
    r"\"([^\"]*)\"|“([^”]*)”|„([^“”\"]*)[“”\"]|[«»]([^«»]*)[«»]|`([^`]*)`"
    r"|(?<!\w)['\u2018\u201a]([^'\u2018\u2019]*)['\u2018\u2019](?!\w)|([^\s\"“”„«»`]+)|([\"“”„«»`])"
)
_QUOTES: Final = 6  # the first groups of it
_EDGES: Final = re.compile(r"^([(\[{]*)(.*?)([)\]},.;:!?…]*)$")
_ID: Final = re.compile(r"#?(?=[0-9a-f-]*\d)[0-9a-f][0-9a-f-]{0,63}")
_SPACES: Final = frozenset("\t\n\r ")
_FADING: Final = frozenset(",:")
_ENDING: Final = frozenset(",.!…")

EXPANDED: Final = {
    "what's": ("what", "is"),
    "whats": ("what", "is"),
    "how's": ("how", "is"),
    "where's": ("where", "is"),
    "i'd": ("i", "would"),
    "i've": ("i", "have"),
    "we've": ("we", "have"),
    "let's": ("let", "us"),
}
# Said as one: a word of such a phrase alone means something else, and is not in the grammars.
PHRASES: Final[dict[tuple[str, ...], str]] = {
    ("do", "i", "have"): "i-have",
    ("do", "we", "have"): "i-have",
    ("have", "i", "got"): "i-have",
    ("have", "we", "got"): "i-have",
    ("can", "i", "see"): "show",
    ("could", "i", "see"): "show",
    ("may", "i", "see"): "show",
    ("can", "i", "have"): "show",
    ("let", "me", "see"): "show",
    ("a", "list", "of"): "list",
    ("tell", "me"): "show",
    ("let", "me", "know"): "show",
    ("pull", "up"): "show",
    ("bring", "up"): "show",
    ("at", "the", "moment"): "currently",
    ("in", "progress"): "running",
    ("under", "way"): "running",
    ("up", "to"): "up-to",
    ("call", "off"): "call-off",
    ("signed", "off"): "signed-off",
    ("say", "yes", "to"): "approve",
    ("say", "no", "to"): "reject",
    ("is", "there"): "there-is",
    ("are", "there"): "there-is",
    ("how", "many"): "how-many",
    ("how", "much"): "how-much",
    ("so", "far"): "so-far",
    **{
        (last, span + own): f"last-{span}"
        for last in ("last", "previous")
        for span in ("week", "month")
        for own in ("", "'s")
    },
    ("kick", "off"): "kick-off",
    ("shut", "down"): "shut-down",
    ("set", "up"): "set-up",
    ("sign", "off"): "sign-off",
    ("what", "can", "you", "do"): "what-can-you-do",
    ("what", "can", "i", "ask"): "what-can-you-do",
    ("what", "can", "i", "do"): "what-can-you-do",
    ("what", "can", "i", "say"): "what-can-you-do",
    ("what", "can", "you", "help", "with"): "what-can-you-do",
    ("what", "can", "you", "help", "me", "with"): "what-can-you-do",
    ("how", "does", "this", "work"): "what-can-you-do",
    ("how", "do", "i", "use", "this"): "what-can-you-do",
    ("what", "can", "i", "ask", "you"): "what-can-you-do",
    ("what", "can", "i", "ask", "for"): "what-can-you-do",
    ("what", "do", "you", "understand"): "what-can-you-do",
    ("what", "you", "can", "do"): "what-can-you-do",
    ("what", "are", "you", "able", "to", "do"): "what-can-you-do",
    ("how", "can", "you", "help"): "what-can-you-do",
    ("how", "can", "you", "help", "me"): "what-can-you-do",
    ("what", "are", "my", "options"): "what-can-you-do",
    ("i", "approve"): "i-approve",
    ("i", "accept"): "i-accept",
    ("i", "allow"): "i-allow",
    ("i", "permit"): "i-permit",
    ("i", "reject"): "i-reject",
    ("i", "deny"): "i-deny",
    ("i", "refuse"): "i-refuse",
    ("i", "decline"): "i-decline",
}
_BEFORE: Final = (
    "hi", "hello", "hey", "hi there", "hello there", "hey there", "good morning", "good afternoon", "good evening",
    "lqops", "ok", "okay", "please", "pls", "kindly", "just", "quickly", "can you", "could you", "would you",
    "will you", "i want you to", "i would like you to", "i need you to", "i want to", "i would like to", "i need to",
    "go ahead and", "let us", "be so kind and",
)  # fmt: skip
_AFTER: Final = (
    "please", "pls", "thanks", "thank you", "thx", "cheers", "thanks a lot", "many thanks", "thank you very much",
    "for me", "if you can", "if you would", "if you could", "if possible", "now", "right now", "right away",
    "immediately", "at once", "asap",
)  # fmt: skip
_ASKED_OF_YOU: Final = frozenset({"can you", "could you", "would you", "will you"})


@dataclass(frozen=True)
class Word:
    """A word as it is compared, and where it stands in the text. A quoted one is only ever a name or an id."""

    said: str
    start: int
    end: int
    quoted: bool = False

    @property
    def is_id(self) -> bool:
        return _ID.fullmatch(self.said) is not None


@dataclass(frozen=True)
class Request:
    """One short request without its courtesies. `is_question` is false of an order put as one: can you …?"""

    text: str
    words: tuple[Word, ...]
    is_question: bool = False

    def without(self, taken: frozenset[int]) -> "Request":
        """The request as if these words, by their places, had not been said."""
        left = tuple(word for place, word in enumerate(self.words) if place not in taken)
        return Request(self.text, left, self.is_question)

    @property
    def said(self) -> frozenset[str]:
        return frozenset(word.said for word in self.words)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(word.said.lstrip("#") for word in self.words if word.is_id)


def read(text: str) -> Request | None:
    """The words of a text that can be one short order; None for anything longer, odd or of several sentences."""
    if len(text) > 4 * LONGEST or len(stripped := text.strip()) > LONGEST or "\n" in stripped:
        return None
    if any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn"} and char not in _SPACES for char in stripped):
        return None
    marked = _marked(text)
    if len(marked) > MOST_WORDS:
        return None
    asks, marked = _without_courtesies(marked)
    if any(_is_mark(word) for word in marked):
        return None
    return Request(text, _folded(marked), asks) if marked else None


def opening(text: str) -> Request | None:
    """What a short text says after its greeting, marks aside and whatever it is; to see with which word it begins."""
    if len(text.strip()) > LONGEST:
        return None
    asks, marked = _without_courtesies(_marked(text))
    said = [word for word in marked if not _is_mark(word)][:MOST_WORDS]
    return Request(text, _folded(said), asks) if said else None


def plain_words(text: str) -> tuple[Word, ...]:
    """The first words of a text of any length, as they stand; for looking up names, not for judging what is meant."""
    return tuple(word for word in _marked(text[:_LOOKED_AT]) if word.quoted or word.said[:1].isalnum())[:MOST_NAMED]


def _marked(text: str) -> list[Word]:
    """Words and marks, in order. A mark that stands alone is a word that no grammar knows."""
    found: list[Word] = []
    for match in _TOKEN.finditer(text):
        quoted = next((group for group in match.groups()[:_QUOTES] if group is not None), None)
        if quoted is not None:
            found.append(Word(" ".join(quoted.casefold().split()), match.start() + 1, match.end() - 1, quoted=True))
            continue
        edges = _EDGES.match(match[0])
        before, core, after = edges.groups() if edges else ("", match[0], "")
        start = match.start() + len(before)
        found += [Word(mark, match.start(), match.start() + 1) for mark in before]
        if core:
            said = core.casefold().replace("\u2019", "'")
            found += [Word(one, start, start + len(core)) for one in EXPANDED.get(said, (said,))]
        found += [Word(mark, match.end() - 1, match.end()) for mark in after]
    return found


def _is_mark(word: Word) -> bool:
    return not word.quoted and len(word.said) == 1 and not word.said.isalnum() and word.said not in _FADING


def _without_courtesies(marked: list[Word]) -> tuple[bool, list[Word]]:
    """What is left between greeting and thanks, and whether it is a question rather than an order put as one."""
    of_you, asked = False, False
    while True:
        if marked and marked[-1].said == "?" and not marked[-1].quoted:
            asked, marked = True, marked[:-1]
        elif marked and marked[-1].said in _ENDING and not marked[-1].quoted:
            marked = marked[:-1]
        elif marked and marked[0].said in _ENDING and not marked[0].quoted:
            marked = marked[1:]
        elif count := _courtesy(marked, _BEFORE, first=True):
            of_you = of_you or " ".join(word.said for word in marked[:count]) in _ASKED_OF_YOU
            marked = marked[count:]
        elif count := _courtesy(marked, _AFTER, first=False):
            marked = marked[:-count]
        else:
            return asked and not of_you, [word for word in marked if word.quoted or word.said not in _FADING]


def _courtesy(marked: list[Word], known: tuple[str, ...], *, first: bool) -> int:
    """How many words at this end are a courtesy; the longest counts, and something has to be left."""
    for count in range(min(5, len(marked) - 1), 0, -1):
        words = marked[:count] if first else marked[-count:]
        if not any(word.quoted for word in words) and " ".join(word.said for word in words) in known:
            return count
    return 0


def _folded(words: list[Word]) -> tuple[Word, ...]:
    found: list[Word] = []
    at = 0
    while at < len(words):
        for count in range(min(6, len(words) - at), 1, -1):
            run = words[at : at + count]
            phrase = PHRASES.get(tuple(word.said for word in run))
            if phrase and not any(word.quoted for word in run):
                found.append(Word(phrase, run[0].start, run[-1].end))
                at += count
                break
        else:
            found.append(words[at])
            at += 1
    return tuple(found)


@dataclass(frozen=True)
class Grammar:
    """`needs` has one word from each of its sets; `also` may be said beside them. Every other word is one too many.

    `ids` is how many ids, or numbers, there may be, least and most. An order (`orders`) is not given with a question
    mark, and has one verb of the first set: to cancel a halt is no halt.
    """

    needs: tuple[frozenset[str], ...]
    also: frozenset[str] = frozenset()
    ids: tuple[int, int] = (0, 0)
    most: int = 14
    orders: bool = False
    verbs: int = 1

    def covers(self, request: Request) -> bool:
        if (self.orders and request.is_question) or len(request.words) > self.most:
            return False
        known = self.also.union(*self.needs)
        plain = [word for word in request.words if word.quoted or word.said not in known]
        least, most = self.ids
        if not all(word.is_id for word in plain) or not least <= len(plain) <= most:
            return False
        said = [word.said for word in request.words if not word.quoted]
        if self.orders and sum(word in self.needs[0] for word in said) > self.verbs:
            return False
        return all(wanted.intersection(said) for wanted in self.needs)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- What a request has to say to be one of the common ones: the grammars of the thirteen fast paths. Pure ---
#
# Near misses are left to the model. What a path then does with what was said is in fast_paths.py.


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
_AUTOMATED: Final = words("scheduled automated")
TRIGGERS: Final = (
    *_listing(
        "triggers schedules watches automations cronjobs",
        "active enabled disabled paused live scheduled",
        one="trigger schedule",
    ),
    Grammar(
        (words("what which anything something"), _AUTOMATED), words("is are there-is currently to run show"), most=7
    ),
    Grammar((words("runs jobs tasks everything"), _AUTOMATED), SHOW | _MINE | words("what which is are that"), most=7),
    Grammar((words("what which"), words("automatically")), words("is are runs run show things triggers"), most=6),
)
_PERIODS: Final = words("today yesterday this week month last-week last-month")
SESSIONS: Final = (
    *_listing("sessions runs jobs failures", _STATUSES, one="session job", most=1),
    Grammar(
        (words("what which anything something"), words("running active queued sleeping failed failing fail")),
        words("is are there-is currently still has have did been show") | _PERIODS,
        most=7,
    ),
    Grammar((words("what which"), words("ran run"), _PERIODS), words("has have did been show"), most=7),
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
_LINKING: Final = words("the my a an on over against for with using by of in through to collection document file")
_PARTS_ALSO: Final = words("folder documents files trigger playbook skill schedule watch once again all everything")
_PARTS_OF_RUN: Final = _LINKING | _PARTS_ALSO
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


# Whether there is something to do in a text, and not only something that is so. Pure, and linear in its length.
#
# `Every morning check the inbox` is an order; `I drink coffee every day and wonder why` is none, in spite of its
# time.


_VERBS: Final = (
    "add|alert|analy[sz]e|answer|apply|archive|ask|assess|audit|back|begin|book|bring|build|calculate|call|cancel|check|"
    "clean|clear|close|collect|compare|compile|compute|confirm|convert|copy|count|create|delete|deliver|do|download|draft|"
    "email|ensure|evaluate|execute|export|extract|fetch|file|fill|find|flag|follow|forward|gather|generate|get|give|go|"
    "hand|identify|import|inform|inspect|investigate|keep|launch|let|list|listen|load|log|look|mail|make|measure|message|"
    "monitor|move|notify|open|organi[sz]e|ping|plan|poll|post|prepare|print|process|produce|publish|pull|push|put|query|"
    "rank|read|rebuild|recheck|reconcile|record|refresh|remind|remove|repeat|reply|report|request|rerun|research|reset|"
    "restart|retry|review|run|save|scan|schedule|score|scrape|search|see|send|set|share|show|sort|start|store|submit|"
    "summari[sz]e|sweep|sync|take|tell|test|text|track|translate|trigger|try|update|upload|use|validate|verify|wake|"
    "warn|watch|write"
)
_CLAUSE: Final = (
    r"(?:^|[.!?;:,\n])\W{0,4}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey|just|so)\W{1,3}){0,4}"
)
# Who or what a sentence is about, when it tells rather than asks for something.
_TELLS: Final = re.compile(
    r"^\W{0,4}(?:(?:and|also|ok|okay|hi|hello|hey|so|well|but)\W{1,3}){0,3}"
    r"(?:i|we|he|she|they|it|you|there|this|that|these|those|the|my|our|his|her|its|their|some|most|many|people|"
    r"somebody|someone|everybody|everyone|nobody|if|when|because|since|while|although)\b",
    re.IGNORECASE,
)
_BEGINS: Final = re.compile(
    rf"{_CLAUSE}(?:(?:{_VERBS})\b|(?!\w{{0,20}}(?:s|[^e]ed|ing)\b)\w{{3,20}}\s(?:the|my|our|all|these|those|them|me|us|any)\b)",
    re.IGNORECASE,
)
_REQUESTS: Final = re.compile(
    r"\bplease\b|\b(?:can|could|would|will)\syou\b|\bwhy\sdon'?t\syou\b|\b(?:i|we)(?:\swould|'d)\slike\b|"
    r"\b(?:i|we)\s(?:want|need)\b|\b(?:should|must|has\sto|have\sto|needs?\sto)\sbe\b|\byou\s(?:should|must|have\sto)\b|"
    rf"\bmake\ssure\b|\blet\sme\sknow\b|\bremind\s(?:me|us)\b|\b(?:{_VERBS})\s(?:me|us)\b|\bon\sa\sschedule\b|\bcron",
    re.IGNORECASE,
)


def asks_for_something(text: str) -> bool:
    """It says so, or begins with what is to be done. Whoever tells of themselves asks for nothing by that."""
    if _REQUESTS.search(text):
        return True
    return not _TELLS.match(text) and _BEGINS.search(text) is not None


# --- Slips of a finger in requests that only look: `list trigers`, `pendng approvals`. Pure ---
#
# Only what is listed or shown may be misspelt, by one letter, and from its second letter on. Nothing here is asked
# about an order: a lever is pulled by words that are spelt as they should be, or not at all.


SHORTEST_TYPO: Final = 5
MOST_SLIPS: Final = 2
_HELP: Final = dict.fromkeys(words("hlep hepl helpp hellp heelp halp"), "help")  # too short to be judged by the rule
_MEANT: Final = words(
    "triggers trigger schedules schedule automations sessions session receipt receipts approvals approval precedents "
    "precedent patterns pattern costs spending expenses budget status health commands agents agent summary overview "
    "pending running failed active waiting queued scheduled paused completed yesterday approve available"
)
# Words of their own that one letter parts from one of those.
_OTHERS: Final = words(
    "casts coasts coats costa cysts statue states sending ruining writing wanting wafting filed foiled passed pauses "
    "queues penning budged heath healths healthy commends command summery patters scheduler competed completes trigged "
    "approved approver approves"
)


def mended(request: Request) -> Request | None:
    """The request with what was misspelt as it was meant; None if nothing was, or too much."""
    found = tuple(_mended(word) for word in request.words)
    slips = sum(one is not word for one, word in zip(found, request.words, strict=True))
    return replace(request, words=found) if 0 < slips <= MOST_SLIPS else None


def _mended(word: Word) -> Word:
    if not word.quoted and word.said in _HELP:
        return replace(word, said=_HELP[word.said])
    if (
        word.quoted
        or len(word.said) < SHORTEST_TYPO
        or not word.said.isalpha()
        or word.said in _MEANT | _OTHERS | LEVERS
    ):
        return word
    meant = [one for one in sorted(_MEANT) if _is_slip(word.said, one)]
    return replace(word, said=meant[0]) if len(meant) == 1 else word


def _is_slip(said: str, meant: str) -> bool:
    """One letter too many, too few, another one, or two in the wrong order; never the first."""
    if said[:1] != meant[:1] or abs(len(said) - len(meant)) > 1:
        return False
    same = next((place for place, (one, other) in enumerate(zip(said, meant, strict=False)) if one != other), None)
    if same is None:
        return len(said) != len(meant)
    here, there = said[same:], meant[same:]
    swapped = here[:2] == there[1::-1] and here[2:] == there[2:]
    return swapped or here[1:] == there[1:] or here[1:] == there or here == there[1:]


# --- Times that come back, as people say them, and the cron fields that mean the same. Pure ---
#
# Cron knows no seconds, and only such intervals as divide the next larger unit; what it cannot keep is said, not
# bent.


_NUMBERS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "sixty": 60, "other": 2,
}  # fmt: skip
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_WEEKDAY: Final = r"(?:sun|mon|tues|wednes|thurs|fri|satur)day"
_NUMBER: Final = rf"(?:\d{{1,4}}|{'|'.join(_NUMBERS)})"
_UNIT: Final = r"(?:minute|min|hour|hr|day|week|month|morning|evening|night|weekday|workday|weekend)"
EVERY: Final = re.compile(rf"\b(?:every|each)\s+(?:({_NUMBER})\s+)?({_UNIT})s?\b", re.IGNORECASE)
EVERY_DAY: Final = re.compile(
    rf"\b(?:(?:every|each)\s+|on\s+(?={_WEEKDAY}s))({_WEEKDAY}s?(?:\s*(?:,|and|&)\s*(?:every\s+|on\s+)?{_WEEKDAY}s?){{0,6}})\b",
    re.IGNORECASE,
)
NAMED: Final = re.compile(r"\b(hourly|daily|nightly|weekly|monthly)\b", re.IGNORECASE)
TIMES_A: Final = re.compile(rf"\b(once|twice)\s+(?:a|an|every|each|per)\s+({_UNIT})\b", re.IGNORECASE)
ON_PART: Final = re.compile(r"\bon\s+(weekday|workday|weekend)s\b", re.IGNORECASE)
AT: Final = re.compile(
    r"\bat\s+(?:(\d{1,2})(?:[:.](\d{2}))?\s*(am|pm|o'clock)?\b(?!\s*(?:%|percent))|(noon|midnight)\b)", re.IGNORECASE
)
_ALIASES: Final = {"min": "minute", "hr": "hour", "workday": "weekday"}
_PARTS_OF_DAY: Final = {"morning": 6, "evening": 18, "night": 0, "nightly": 0}
_DEFAULT_HOUR: Final = 6
_DIVIDED: Final = {"minute": 60, "hour": 24}


@dataclass(frozen=True)
class When:
    """A schedule, the words that said it, and where these stand; `fault` says why there is no cron for it."""

    cron: str
    said: str
    spans: tuple[tuple[int, int], ...]
    fault: str = ""


def when_of(text: str) -> When | None:
    """The first time in the text that comes back, with the hour that is named; None if nothing comes back."""
    found = next((match for form in _FORMS if (match := form.search(text))), None)
    if found is None:
        return None
    at = AT.search(text)
    spans = (found.span(), at.span()) if at and not _overlap(found.span(), at.span()) else (found.span(),)
    said = " ".join(" ".join(text[start:end].split()) for start, end in sorted(spans))
    clock = _clock(at) if at else None
    if at and clock is None:
        return When("", said, spans, fault=f"{at[0]!r} is no time of day")
    cron, fault = _FORMS[found.re](found, clock)
    return When(cron, said, spans, fault)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _clock(at: re.Match[str]) -> tuple[int, int] | None:
    hour, minute, half, word = at.groups()
    if word:
        return (12, 0) if word.lower() == "noon" else (0, 0)
    hours, minutes, half = int(hour), int(minute or 0), (half or "").lower()
    if half in {"am", "pm"}:
        if not 1 <= hours <= 12:  # noqa: PLR2004 hours of half a day
            return None
        hours = hours % 12 + (12 if half == "pm" else 0)
    return (hours, minutes) if hours < 24 and minutes < 60 else None  # noqa: PLR2004 hours and minutes


Clock = tuple[int, int] | None


def _every(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    number = 1 if found[1] is None else _NUMBERS.get(found[1].lower()) or int(found[1])
    unit = _ALIASES.get(found[2].lower(), found[2].lower())
    if unit in _DIVIDED:
        return _interval(number, unit, clock)
    return _calendar(unit, clock) if number == 1 else ("", f"every {number} {unit}s cannot be kept: say every {unit}")


def _interval(number: int, unit: str, clock: Clock) -> tuple[str, str]:
    whole = _DIVIDED[unit]
    if clock is not None:
        return "", f"a time of day does not go with every {number} {unit}s"
    if number == whole:
        number, unit, whole = 1, "hour" if unit == "minute" else "day", 24
    if number < 1 or whole % number:
        fits = ", ".join(str(count) for count in range(1, whole) if whole % count == 0)
        return "", f"every {number} {unit}s cannot be kept: choose one of {fits}"
    if unit == "day":
        return _calendar("day", None)
    step = "*" if number == 1 else f"*/{number}"
    return (f"{step} * * * *" if unit == "minute" else f"0 {step} * * *"), ""


def _calendar(unit: str, clock: Clock) -> tuple[str, str]:
    hour, minute = clock or (_PARTS_OF_DAY.get(unit, _DEFAULT_HOUR), 0)
    days = {"week": "* * 1", "weekly": "* * 1", "month": "1 * *", "monthly": "1 * *", "weekday": "* * 1-5"}
    return f"{minute} {hour} {days.get(unit, '* * 0,6' if unit == 'weekend' else '* * *')}", ""


def _days(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    hour, minute = clock or (_DEFAULT_HOUR, 0)
    said = found[1].lower()
    return f"{minute} {hour} * * {','.join(str(number) for number, day in enumerate(_WEEKDAYS) if day in said)}", ""


def _named(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    word = found[1].lower()
    return _interval(1, "hour", clock) if word == "hourly" else _calendar(word, clock)


def _times(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    unit = _ALIASES.get(found[2].lower(), found[2].lower())
    if found[1].lower() == "once":
        return _interval(1, unit, clock) if unit in _DIVIDED else _calendar(unit, clock)
    return ("0 6,18 * * *", "") if unit == "day" and clock is None else ("", "only a day is divided in two")


def _on_part(found: re.Match[str], clock: Clock) -> tuple[str, str]:
    return _calendar(_ALIASES.get(found[1].lower(), found[1].lower()), clock)


_FORMS: Final = {EVERY: _every, EVERY_DAY: _days, TIMES_A: _times, ON_PART: _on_part, NAMED: _named}


# What requests of each strategy look like, as patterns. Each looks ahead a bounded way, so that time stays linear.


def form(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(parts), re.IGNORECASE)


URL: Final = form(r"\bhttps?://[^\s<>\"']{1,500}")
SENTENCE_END: Final = re.compile(r"[.!?](?=\s|$)|\n")
ENTITY: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[\w.+-]{1,64}@[\w-]{1,63}\.[\w.-]{1,63}"  # an address
    r"|\b[\w-]{1,60}\.(?:pdf|docx?|txt|md|csv|xlsx?|html?|py|sh)\b"  # a file
    r"|\b[A-Z][\w&-]{1,40}(?: [A-Z][\w&-]{1,40}){1,4}\b"  # a name of several words
)
_OFTEN: Final = r"(?:hourly|daily|nightly|weekly|monthly)"
_MOMENT: Final = r"(?:\d{1,2}(?:[:.]\d{2})?\s?(?:am|pm)?|noon|midnight)"
_FUTURE_DAY: Final = r"(?:tomorrow|tonight|next\s\w{3,10}|on\s\w{3,6}day)"
# When, and nothing else: without it, what is to be done then is left.
MOMENTS: Final = (
    EVERY,
    EVERY_DAY,
    TIMES_A,
    ON_PART,
    # An adverb ("check it daily") or something new ("a daily summary"), but not "the daily summary".
    form(rf"\b{_OFTEN}(?=\s{{0,9}}(?:$|[.,;!?]|(?:at|on|from|by|and)\b))"),
    form(r"\bin\s(?:\d{1,3}|an?|two|three|five|ten)\s(?:minute|hour|day|week|month)s?(?=\s{0,9}(?:$|[.,;!?]|from\b))"),
    form(rf"\b{_FUTURE_DAY}\s(?:at|around|before)\s\w|\bat\s{_MOMENT}\s{_FUTURE_DAY}"),
)
TIMES: Final = (
    *MOMENTS,
    form(rf"\b(?:a|an)\s(?:new\s)?{_OFTEN}\s\w"),
    form(r"\bremind\s(?:me|us)\b|\bset\s(?:up\s)?an?\s(?:reminder|alarm|timer)\b"),
    form(r"(?:^|\b(?:please|you|and|to)\s)(?:re)?schedule\s(?:an?|the|this|that|it|my|our|me)\b"),
    form(
        r"\bcron(?:\s?job|tab)?\b|\brecurring\s(?:task|run|job|check)\b|\bon\sa\sschedule\b|\bat\sregular\sintervals\b"
    ),
)
_WORKER: Final = r"(?:sub-?\s?agents?|agents?|assistants?|bots?|workers?)\b"
_NEW: Final = r"(?:an|a\snew|another|a\sseparate|a\sdedicated)\s(?:\w{1,20}\s)?"
SUB_AGENTS: Final = (
    form(
        r"\b(?:create|make|build|spawn|launch|deploy|hire|add|set\sup|spin\sup|start|want|need|(?:get|give)\sme)\s",
        r"(?:(?!(?:the|my|our|this|that|to|from|by|for|with|of)\b)[\w-]{1,20}\s){0,4}",
        _WORKER,
        r"(?!\s(?:reports?|lists?|licen[cs]e|fees?|agreements?)\b)",
    ),
    form(r"\bdelegate\s(?:this|it|that|the|these|all)\b|\bassign\s(?:(?:this|it|that)\sto\s)?", _NEW, _WORKER),
    form(r"\b(?:have|let|use)\s", _NEW, _WORKER),
)

_CODE: Final = r"(?:script|code|snippet|command|program|function|query|sql|python|shell|bash|skill)\b"
SCRIPTS: Final = (
    form(r"\b(?:run|execute|evaluate|eval)\s(?:[\w-]{1,20}\s){0,4}", _CODE),
    form(r"\b(?:use|call|invoke|apply)\s(?:[\w-]{1,40}\s){0,3}(?:skill|function|tool)\b"),
    form(r"<skill>"),
    form(r"\b(?:calculate|compute|work\sout|add\sup|multiply|divide|convert)\b[^!?\n]{0,120}\d"),
    form(r"\b(?:fetch|download|scrape|crawl|open|load|read|get)\b[^!?\n]{0,60}\bhttps?://"),
)

_WORK: Final = (
    r"(?:review|analy[sz]e|audit|investigate|research|compare|prepare|compile|draft|extract|collect|gather|plan|"
    r"organi[sz]e|monitor|evaluate|assess|verify|check|find|identify|negotiate|migrate|clean\sup|sort\sout|"
    r"figure\sout|make\ssure|ensure|go\sthrough|work\sthrough|put\stogether|set\sup)\b"
)
GOALS: Final = (
    form(r"^\W{0,3}(?:(?:please|kindly|now|then|and|also|ok|okay|hi|hello|hey)\W{1,3}){0,3}", _WORK),
    form(r"\b(?:please|you|you\sto|i\swant\sto|we\sneed\sto|need\sto|help\sme(?:\sto)?|can\syou)\s", _WORK),
    form(r"\b(?:and\sthen|after\sthat|afterwards|step\sby\sstep|until\s(?:it|all|every)|one\sby\sone)\b"),
    form(r"\bfirst\b[^?\n]{1,200}\bthen\b"),
    form(r"^\W{0,3}(?:goal|objective|mission|task)\s?:"),
    form(r"(?:^|\n)\s{0,4}1[.)]\s[^\n]{1,300}\n\s{0,4}2[.)]\s"),
)

# What is asked about, or is only a piece of writing, is no order. "Can you …?" is one, and "why don't you …?", too.
ASKS: Final = form(
    r"^\W{0,3}(?:(?:so|and|but|hi|hello|hey|ok|okay|please)\W{1,3}){0,2}",
    r"(?:why(?!\sdon'?t\syou)|what|what's|whats|who|whose|whom|when|where|which|how|is|are|am|was|were|do(?!\sthis)|",
    r"does|did|has|have(?!\s(?:an?|another)\b)|had|should|shall|may|might|(?:can|could|would)\s(?:i|we|it|they|an?|the)|",
    r"will\s(?:it|they|the)|explain|describe|tell\sme\s(?:about|why|how|what|when|who)|define|translate|",
    r"summari[sz]e|rephrase|proofread)\b(?!:)",
)
_DOING: Final = (
    r"(?:schedul|remind|creat|mak|run|execut|check|send|review|start|us(?:e|ing)|ask|delegat|spawn|set|monitor|build|"
    r"fetch|analy[sz])\w{0,12}\b"
)
REFUSES: Final = form(
    r"\b(?:don'?t|do\snot|never|no\sneed\sto|stop|without|instead\sof|forget\sabout|not\sto)\s(?:\w{1,20}\s){0,2}",
    _DOING,
)


# --- Which of five strategies fits a request: rules over its words, in one pass and without a model. Pure ---
#
# The order of the rules is the order of priority: SCHEDULED_TASK, SUB_AGENT, SCRIPT, GOAL, and DIRECT_RESPONSE for
# all the rest. A text is only read here, never changed. Whatever goes wrong, the answer is DIRECT_RESPONSE.


SHORTEST_REQUEST: Final = 7
LONGEST_LOOKED_AT: Final = 400
_MOST_PIECES: Final = 20
_PIECE_CHARS: Final = 120
_SPACE: Final = re.compile(r"[^\S\n]+")


class Strategy(StrEnum):
    DIRECT_RESPONSE = "DIRECT_RESPONSE"
    GOAL = "GOAL"
    SCHEDULED_TASK = "SCHEDULED_TASK"
    SUB_AGENT = "SUB_AGENT"
    SCRIPT = "SCRIPT"


_TIMED: Final = Strategy.SCHEDULED_TASK
_RULES: Final = (
    (Strategy.SCHEDULED_TASK, TIMES),
    (Strategy.SUB_AGENT, SUB_AGENTS),
    (Strategy.SCRIPT, SCRIPTS),
    (Strategy.GOAL, GOALS),
)


def classify(text: str) -> Strategy:
    """The strategy for a request. It raises nothing."""
    try:
        return _judged(text)
    except Exception:
        logger.exception("a request could not be classified; it is answered directly")
        return Strategy.DIRECT_RESPONSE


def _judged(text: str) -> Strategy:
    said = _SPACE.sub(" ", text).strip().replace("\u2019", "'")
    if len(said) < SHORTEST_REQUEST:
        return Strategy.DIRECT_RESPONSE
    looked_at = reduced(said)
    if ASKS.search(looked_at) or REFUSES.search(looked_at):
        return Strategy.DIRECT_RESPONSE
    for strategy, known in _RULES:
        if any(form.search(looked_at) for form in known) and (strategy != _TIMED or _is_task(looked_at)):
            return strategy
    return Strategy.DIRECT_RESPONSE


def _is_task(text: str) -> bool:
    """A time alone makes no schedule: there has to be something to do then. It is looked for in what is left."""
    without = text
    for form in (*MOMENTS, AT):
        without = form.sub(" ", without)
    return asks_for_something(_SPACE.sub(" ", without).strip(" ,.;:"))


def reduced(text: str) -> str:
    """What is looked at of a long text: its first sentence, and the times, entities and addresses of the rest."""
    if len(text) <= LONGEST_LOOKED_AT:
        return text
    end = SENTENCE_END.search(text)
    first = text[: min(end.end() if end else LONGEST_LOOKED_AT, LONGEST_LOOKED_AT)]
    rest = text[len(first) :]
    kept = [piece for form in (*TIMES, ENTITY, URL) for piece in _pieces(form, rest)]
    return " ".join([first, *kept])


def _pieces(form: re.Pattern[str], text: str) -> list[str]:
    found = []
    for match in form.finditer(text):
        found.append(match[0][:_PIECE_CHARS])
        if len(found) == _MOST_PIECES:
            break
    return found
