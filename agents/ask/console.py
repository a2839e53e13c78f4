"""The console: questions about lqops itself, answered by a model that can only read the person's own rows.

A question is a message of a chat, so it is a run like any other: guarded, capped, stopped by a halt, with a receipt.
Links in its answer come from rows that its skills returned; buttons from the calls of `propose_action`. Without a model
the answer is a search over the same rows, and the nearest commands.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth.models import User

from agents.ask.chats import Way, chat_send
from agents.ask.commands import nearest_commands
from agents.ask.naming import Answer, AskContext, Wanted, lines, message
from agents.ask.proposals import Proposal, propose
from agents.conf import clock, console_cap, manual_folder
from agents.definitions.catalogue import declaration_of, model_for
from agents.enums import Outcome
from agents.exceptions import LqopsError
from agents.knowledge.search import search_chunks
from agents.ledger.boundary import require_may_start
from agents.models import AgentSession, ToolCall
from agents.people.access import require_start_permission
from agents.policy.model_catalogue import CONSOLE
from agents.sessions.own_rows import (
    REF,
    ROWS,
    manual_reference,
    reference,
    references_cited,
    references_in,
    row_referred,
    rows_with,
    significant,
    without_questions,
)
from agents.sessions.pauses import pause_message, work_paused
from agents.sessions.reads import purposes
from agents.skills.registry import console_skills
from agents.text.clean import one_line
from agents.text.manual import find_sections

NO_MODEL: Final = "No model is set up for the console (docs/models.md)."
OFF: Final = "No model was asked."
MAX_LINKS: Final = 12
PROPOSE_ACTION: Final = "propose_action"  # the skill whose calls become buttons
REFERENCE: Final = REF  # to a row, in the text of an answer
_PER_KIND: Final = 4
_NAME_CHARS: Final = 100


# --- Asking the model ---


def model_refusal(by: User) -> str:
    """Why this person cannot ask the console's model now; empty if they can."""
    if declaration_of(model_for(CONSOLE)).get("provider") == "offline":
        return NO_MODEL
    try:
        require_start_permission(by)
        require_may_start(by.pk)
    except LqopsError as refusal:
        return str(refusal)
    paused = work_paused()
    return pause_message(paused) if paused else ""


def ask_model(context: AskContext, chat: Any, wanted: Iterable[Wanted] = ()) -> AgentSession:
    """Send the question to the console's model: a run under the console's cap."""
    return chat_send(
        owner=context.user,
        by=context.user,
        text=context.text,
        now=context.now,
        chat=chat,
        max_cost_usd=console_cap() if context.max_cost_usd is None else context.max_cost_usd,
        way=Way.CONSOLE,
        wanted=wanted,
    )


# --- What an answer is shown with ---


@dataclass(frozen=True)
class Link:
    """A row, or a section of the manual, that an answer is about. `row` is None for the manual."""

    ref: str
    kind: str
    name: str
    row: Any = None


def links_of(session: AgentSession, answer: str, by: User) -> list[Link]:
    """The rows that an answer cites, among those that its calls returned; without any, the first that were returned.

    Each is found again for the person who reads the answer: what they may not see is left out.
    """
    returned = references_in(_results(session))
    cited = [ref for ref in references_cited(answer) if ref in set(returned)]
    return list(links_for(cited or returned, by))[:MAX_LINKS]


def _results(session: AgentSession) -> list[Any]:
    names = [name for name in console_skills() if name != PROPOSE_ACTION]
    calls = ToolCall.objects.filter(session=session, name__in=names, outcome=Outcome.SUCCESS)
    return [call.result for call in calls.order_by("pk")]


def links_for(refs: Iterable[str], by: User) -> Iterator[Link]:
    """What references stand for, as far as this person may see it."""
    for ref in refs:
        kind, _, key = ref.partition(":")
        if kind == "manual":
            yield Link(ref, kind, key.replace("#", ": ").replace("-", " "))
        elif (row := row_referred(ref, by.pk)) is not None:
            yield Link(ref, kind, row_name(kind, row), row)


def row_name(kind: str, row: Any) -> str:
    """The name of a row in a link."""
    names: dict[str, Callable[[], Any]] = {
        "run": lambda: purposes([row])[row.pk],
        "finding": lambda: row.title,
        "approval": lambda: row.action,
        "event": lambda: row.sentence,
    }
    return one_line(str(names[kind]() if kind in names else row.name), _NAME_CHARS)


def proposals_of(session: AgentSession, by: User) -> list[Proposal]:
    """The buttons of an answer: for what its fast path or its model proposed, as the rows are now."""
    wanted = [
        (f"{session.public_id}:{place}", Wanted(**one)) for place, one in enumerate(session.params.get("wanted", []))
    ]
    calls = ToolCall.objects.filter(session=session, name=PROPOSE_ACTION, outcome=Outcome.SUCCESS).order_by("pk")
    for call in calls:
        given = call.arguments["arguments"]
        row = row_referred(str(given["target"]), by.pk)
        if row is not None:
            target = f"{given['target'].partition(':')[0]}:{row.public_id}"
            wanted.append((str(call.public_id), Wanted(str(given["action"]), target)))
    return proposals_for(wanted, by)


def proposals_for(wanted: Iterable[tuple[str, Wanted]], by: User) -> list[Proposal]:
    """Make the buttons, one for each action and row; what has disappeared since gets none."""
    found: dict[tuple[str, str], Proposal] = {}
    for place, one in wanted:
        try:
            found.setdefault((one.action, one.target), propose(one, by=by, now=clock(), place=place))
        except LqopsError:
            continue
    return list(found.values())


# --- Without a model ---


def search(context: AskContext, why: str, *wanted: Wanted) -> Answer:
    """The nearest commands, and what holds the words: rows, documents and sections of the manual."""
    found = found_rows(context.text, context.user)
    forms = nearest_commands(context.text)
    head = f"{why} Nearest commands: {'; '.join(f'`{form}`' for form in forms)}."
    rows = [{"kind": link.kind, "name": link.name, "ref": link.ref} for link in found]
    text = lines(f"{head} Found:", [f"{link.kind} {link.name} ({link.ref})" for link in found]) if found else head
    return message(text, *wanted, results=rows, commands=forms)


def found_rows(text: str, by: User) -> list[Link]:
    """Rows that hold words of a text, of every kind, best first, then sections of the manual."""
    words = " ".join(significant(text))
    if not words:
        return []
    found: list[tuple[int, Link]] = []
    for kind in ROWS:
        own = ROWS[kind].own(by.pk)
        for row in rows_with(kind, by.pk, words, without_questions(own) if kind == "run" else own)[:_PER_KIND]:
            name = row_name(kind, row)
            held = sum(word in f"{name} {ROWS[kind].describe(row)}".lower() for word in words.split())
            found.append((held, Link(reference(kind, row), kind, name, row)))
    for hit in search_chunks(owner_id=by.pk, query=words, limit=_PER_KIND):
        ref = f"document:{hit.document_public_id.hex[:12]}"
        if all(link.ref != ref for _, link in found) and (row := row_referred(ref, by.pk)) is not None:
            found.append((1, Link(ref, "document", row_name("document", row), row)))
    best = [link for _, link in sorted(found, key=lambda one: -one[0])[:MAX_LINKS]]
    manual = find_sections(manual_folder(), words, limit=3)
    return [*best, *links_for((manual_reference(one.page, one.anchor) for one in manual), by)]
