"""Analysis: guarded questions about the inputs, section by section, or steps in which the model may call skills; then
the judges.

Without a target or anything to read nothing is asked. What the model answered is read from rows, through `reply_of`; it
is data and picks no phase of the run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import ROUND_UP, Decimal
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from django.db import transaction

from agents.anonymize.anonymizer import names_in
from agents.conf import clock
from agents.definitions.in_force import loop_config_of
from agents.engine.background import background_of, task_text
from agents.engine.loop import BUSY, BUSY_WAIT, Answered
from agents.engine.prompting import instructions_of, journaled_call, model_of, skills_of
from agents.engine.replies import without_false_claims
from agents.engine.turns import SessionKey, run_agent_turn
from agents.enums import Outcome, TerminalReason, ToolIntent
from agents.exceptions import Invalid, NotFound, SkillChanged, UnpricedModel
from agents.guard import can_be_paid
from agents.knowledge.playbooks import playbook_rendered, playbook_runnable, skill_text
from agents.ledger.journal import KEY_REFUSED, is_made_again
from agents.ledger.model_limits import ANSWER_TOKENS, answer_tokens, question_tokens
from agents.ledger.prices import price_now
from agents.models import AgentSession, Document, Message, PromptSkill, ToolCall
from agents.models.shared_texts import store_texts, texts_stored
from agents.policy.costs import worst_case
from agents.policy.guardrails import CONTINUE, CUT_OFF, joined
from agents.sessions.reads import arguments_asked, call_latest, calls_latest
from agents.sessions.transcripts import (
    READING,
    Entry,
    Inputs,
    note_inputs,
    session_note_new,
    session_note_wait,
    transcript_of,
)
from agents.text.blocks import Part, nonce_of, parse_blocks
from agents.types import ZERO, Asleep, End, Finished, SliceOver, ToolResult
from agents.walk.citations import ask_judges
from agents.walk.intake import Passage, Slice, event_of
from agents.walk.parsing import Analysis, parse_analysis
from agents.walk.prompts import (
    CLOSING_SYSTEM,
    REPAIR_TEXT,
    SECTION_SCHEMA,
    SECTION_SYSTEM,
    agentic_opening,
    analysis_question,
    form_question,
)
from agents.walk.sections import (
    CHARS_PER_TOKEN,
    CLOSING,
    EMPTY_ANSWER,
    ENDLESS,
    LEAST_SECTION_CHARS,
    MOST_SECTION_CHARS,
    NO_MONEY,
    ONLY,
    REPAIR,
    SECTION,
    SECTION_CHARS,
    UNREADABLE,
    USUAL_ANSWER_TOKENS,
    Answer,
    Section,
    Unread,
    answer_to,
    marked_chars,
    merged,
    sections_of,
    unread_of,
)
from audit.redaction import redact_exception

# --- Materials: background, playbook, skill or goal, event, documents ---
#
# Read from rows as they are now, with the ids of the versions that were read.


ISSUES: Final = "issues"  # in what a slice keeps: the names of the playbook's positions


def assembled(work: Slice, *, documents: bool = True) -> tuple[list[Part], Inputs]:
    """Put background first, then what to check against, then what to check. The background fits all of it."""
    targets, inputs = _targets(work, Inputs())
    event = event_of(work.session)
    task = [*targets, *([event] if event else [])]
    texts = [
        Part("document", passage.text, {"id": passage.document_id, "name": passage.name})
        for passage in work.reading.passages
    ]
    background = background_of(work.session, task_text([part.text for part in (*task, *texts)]))
    parts = [*background.parts, *task, *(texts if documents else ())]
    return parts, replace(inputs, **background.inputs)


def _targets(work: Slice, inputs: Inputs) -> tuple[list[Part], Inputs]:
    """Return what to work towards, what to check against, or both. A skill wins over a playbook."""
    spec = work.spec
    parts = []
    if spec.goal:
        parts.append(Part("goal", spec.goal, {}))
        inputs = replace(inputs, goal_digest=sha256(spec.goal.encode()).hexdigest())
    if spec.skill:
        skill = PromptSkill.objects.filter(name=spec.skill).first()
        if skill is None:
            raise NotFound(f"There is no skill named {spec.skill!r}; the run cannot follow it.")
        parts.append(Part("skill", skill_text(skill), {"name": skill.name}))
        inputs = replace(inputs, skill_id=str(skill.public_id), skill_version=skill.version, skill_digest=skill.digest)
    elif spec.playbook:
        playbook = playbook_runnable(owner_id=work.session.owner_id, public_id=spec.playbook)
        work.kept[ISSUES] = tuple(position.issue for position in playbook.positions.all())
        parts.append(Part("playbook", playbook_rendered(playbook), {"name": playbook.name}))
        inputs = replace(
            inputs,
            playbook_id=str(playbook.public_id),
            playbook_version=playbook.version,
            playbook_digest=playbook.digest,
        )
    return parts, inputs


# --- Agentic analysis: steps inside the analysis phase, with skills to call ---
#
# R6 holds as in any phase: what analysis does not grant, no step can do. The steps stand in the session's transcript,
# so a run that was interrupted, or waited for a person, goes on from there.


STEPS_KEY: Final = "analysis"
REPAIR_KEY: Final = f"{STEPS_KEY}:{REPAIR}"


def run_steps(work: Slice) -> End | None:
    """Run steps until the model answers, or something ends or interrupts them."""
    session = work.session
    system, opening = ("", ()) if transcript_of(session) else _opening(work)
    end = run_agent_turn(
        session.agent,
        SessionKey(session, calls=STEPS_KEY),
        opening,
        system=system,
        config=loop_config_of(session),
        max_tokens=ANSWER_TOKENS,
        started_at=work.started_at,
    )
    return None if isinstance(end, Answered) else end


def _checked_claims(work: Slice, analysis: Analysis, transcript: Sequence[Message]) -> Analysis:
    """Remove claims about calls that the run never made. Its parts are checked one by one: they are prose."""
    skills = skills_of(work.session.agent, owner_id=work.session.owner_id)

    def checked(text: str) -> str:
        return without_false_claims(text, session=work.session, transcript=transcript, skills=skills)

    findings = tuple(replace(finding, content=checked(finding.content)) for finding in analysis.findings)
    return replace(analysis, findings=findings, raw=checked(analysis.raw))


def _opening(work: Slice) -> tuple[str, tuple[Entry, ...]]:
    """Return the system message and the task."""
    parts, inputs = assembled(work)
    note_inputs(work.session, inputs, now=clock())
    system, *task = agentic_opening(parts, nonce=nonce_of(work.session.public_id, STEPS_KEY))
    return system["content"], tuple(Entry(one["role"], one["content"]) for one in task)


def _repair_steps(work: Slice) -> End | None:
    """Have an answer that cannot be read put into form, once."""
    text = joined(transcript_of(work.session))
    if text.strip() and not parse_analysis(text).is_structured and call_latest(work.session, REPAIR_KEY) is None:
        params = form_question(
            text, nonce=nonce_of(work.session.public_id, REPAIR_KEY), model=model_of(work.session.agent)
        )
        if can_be_paid(work.session, ToolIntent.RUN_SKILL, params):
            journaled_call(work.session, ToolIntent.RUN_SKILL, REPAIR_KEY, params)
    return None


def _reply_of_steps(work: Slice) -> "Reply":
    """Return the answer of the steps. Only a goal may be answered in prose."""
    transcript = transcript_of(work.session)
    text = joined(transcript)
    if not text.strip():
        return Reply(failed=EMPTY_ANSWER)
    found = parse_analysis(text)
    if not found.is_structured:
        repaired = call_latest(work.session, REPAIR_KEY)
        if repaired is not None and repaired.outcome == Outcome.SUCCESS and isinstance(repaired.result, dict):
            in_form = parse_analysis(str(repaired.result.get("text") or ""))
            found = in_form if in_form.is_structured else found
    if not found.is_structured and not work.spec.goal:
        return Reply(failed=ENDLESS if transcript[-1].stop in CUT_OFF else UNREADABLE)
    return Reply(_checked_claims(work, found, transcript), unread=tuple(_cut_off(work)))


def _cut_off(work: Slice) -> Iterator["Unread"]:
    """Yield the end of the document that was too long for the question that opens the steps."""
    reading = work.reading
    for passage in reading.passages:
        if reading.cut_chars and passage.document_id == reading.cut_id:
            end = passage.start + len(passage.text)
            yield Unread(passage.name, end, end + reading.cut_chars, "it is too long for a run of steps")


# --- Analysis in sections: one guarded question for each, and one for what is missing ---


MOST_WAITS: Final = 5
MOST_FAILED: Final = 3  # sections in a row without an answer before the others are left unread
_OF_ONE_QUESTION: Final = frozenset({Outcome.GATEWAY_ERROR, Outcome.ERROR, Outcome.TIMEOUT})
NO_ROOM: Final = (
    "the playbook or skill, the instructions, the context and the memories leave no room in the model's context window"
)
NOT_ASKED: Final = "the question was refused before it went out"
NOT_SAID: Final = "the model's answers do not say what each section deals with"


@dataclass(frozen=True)
class Reply:
    """What the model has answered: nothing, if it was not asked.

    `failed` says why nothing was checked at all, `unclosed` why nobody can say what is missing from the documents.
    """

    analysis: Analysis | None = None
    failed: str = ""
    unread: tuple[Unread, ...] = ()
    unclosed: str = ""

    @property
    def is_judged(self) -> bool:
        """Whether the answers say of everything that was to be read if there is a concern."""
        return self.analysis is None or (self.analysis.has_verdict and not self.unread)


def analysis(work: Slice) -> End | None:
    if is_due(work):
        try:
            end = run_steps(work) or _repair_steps(work) if work.spec.is_agentic else _sections(work).read()
        except (NotFound, SkillChanged) as gone:
            return Finished(TerminalReason.REFUSED, error=redact_exception(gone))
        if end is not None:
            return end
    found = reply_of(work).analysis
    return ask_judges(work, found, work.reading) if found is not None else None


def is_due(work: Slice) -> bool:
    """Return whether there is something to check, and to check it against; a goal needs nothing to read."""
    if work.reading.failed or not work.spec.has_target:
        return False
    return bool(work.spec.goal or work.reading.passages or event_of(work.session))


def reply_of(work: Slice) -> Reply:
    """Return the model's answer from the transcript of its steps, or from the journal; it is complete by then."""
    if "reply" not in work.kept:
        work.kept["reply"] = _reply_of(work)
    reply: Reply = work.kept["reply"]
    return reply


def _reply_of(work: Slice) -> Reply:
    if not is_due(work):
        return Reply()
    return _reply_of_steps(work) if work.spec.is_agentic else _sections(work).reply()


def _sections(work: Slice) -> "SectionReader":
    if SECTION not in work.kept:
        work.kept[SECTION] = SectionReader(work)
    reader: SectionReader = work.kept[SECTION]
    return reader


# --- The plan: how many sections there are, and about what they cost ---

CENT: Final = Decimal("0.01")
MOST_NAMES: Final = 500  # of people and firms that are hidden in all sections


@dataclass(frozen=True)
class ReadingPlan:
    """How many characters of the documents one question holds, how many sections that makes, about what they cost.

    `cap_usd` is a cap that leaves room for the worst case of the last question too.
    """

    room: int
    sections: int
    estimate_usd: Decimal | None = None
    cap_usd: Decimal | None = None


def beside_documents(work: Slice) -> list[Part]:
    """Return what every question holds beside the documents: the other inputs, and the agent's instructions."""
    others, _ = assembled(work, documents=False)
    return [*others, _instructions(work.session)]


def _instructions(session: AgentSession) -> Part:
    return Part("instructions", instructions_of(session.agent), {})


def section_room(model: str, others: Sequence[Part]) -> int:
    """Return how many characters of the documents a question has room for, beside its other parts."""
    window = question_tokens(model, answer=answer_tokens(model)) * CHARS_PER_TOKEN
    if not window:
        return SECTION_CHARS
    taken = sum(len(part.text) for part in others) + len(SECTION_SYSTEM)
    return min(window - taken, MOST_SECTION_CHARS)


def plan_reading(
    passages: Sequence[Passage], *, room: int, model: str, others: Sequence[Part] = ()
) -> ReadingPlan | None:
    """Plan the sections; None if a question has no room for one. The other parts are those that every question has.

    The cost is by the model's price, for all that is asked and an answer of usual length to each question; None for a
    model without a price, which the guard refuses.
    """
    if room < LEAST_SECTION_CHARS:
        return None
    sections = len(sections_of(passages, room=room))
    questions = sections + (sections > 1)  # and the one about what is missing
    read, beside = sum(map(marked_chars, passages)), sum(len(part.text) for part in others)
    with suppress(UnpricedModel):
        price = price_now(model)
        asked = (read + questions * beside) // CHARS_PER_TOKEN
        cost = worst_case(price, asked, questions * USUAL_ANSWER_TOKENS)
        last = worst_case(price, min(read, room) + beside + price.overhead_tokens, answer_tokens(model))
        return ReadingPlan(room, sections, cost.quantize(CENT, ROUND_UP), (cost + last).quantize(CENT, ROUND_UP))
    return ReadingPlan(room, sections)


def plan_of_documents(session: AgentSession, documents: Iterable[Document]) -> ReadingPlan:
    """Plan a run over these documents. The session need not be saved; nothing is written."""
    passages = [Passage(str(document.public_id), document.name, 0, document.text) for document in documents]
    model = model_of(session.agent)
    others = beside_documents(Slice(session, clock()))
    plan = plan_reading(passages, room=section_room(model, others), model=model, others=others)
    if plan is None:
        raise Invalid(f"Nothing would be read: {NO_ROOM}.")
    if plan.estimate_usd is None:
        raise Invalid(f"Model {model} has no price, so it would be refused. Declare its price first.")
    return plan


class SectionReader:
    """Asks about one section after the other, as far as the slice of work and the money reach."""

    def __init__(self, work: Slice) -> None:
        self._work = work
        self._session = work.session
        self._intent = ToolIntent.RUN_SKILL if work.spec.skill else ToolIntent.RUN_PLAYBOOK
        self._model = model_of(work.session.agent)
        self._noted: dict[str, Any] = dict(work.session.metadata.get(READING) or {})
        self._inputs: Inputs | None = None
        self._is_plan_new = False
        self._answers: dict[str, Answer] = {}
        made = calls_latest(self._session, under=(ONLY, SECTION, CLOSING))
        self._made: dict[str, ToolCall] = {key: call for key, call in made.items() if not is_made_again(call)}

    def read(self) -> End | None:
        """Ask until all is read, or something ends or interrupts it."""
        if "room" not in self._noted:
            self._plan()
        end = self._read()
        if self._is_plan_new:
            self._note()
        return end

    def _read(self) -> End | None:
        for section in self._sections:
            for part in self._parts(section):
                end = self._ask(part.key, partial(self._question, part))
                if end is not None or self._is_stopped:
                    return end
            if section.total > 1:
                self._note(read=int(section.path))
        for parts in self._cut_up():
            if all(self._seen_in(part) is not None for part in parts):
                end = self._ask(_closing_key(parts), partial(self._closing_question, parts))
                if end is not None or self._is_stopped:
                    return end
        return None

    def reply(self) -> Reply:
        for key in [key for key, call in self._made.items() if is_made_again(call)]:
            del self._made[key]
            self._answers.clear()
        analyses = [found for part in self._leaves if (found := self._answer(part).analysis) is not None]
        unread = tuple(self._unread())
        if not analyses:
            return Reply(failed=self._why_nothing(), unread=unread)
        unclosed = ""
        for parts in self._cut_up():
            closing = self._answer_to(_closing_key(parts))
            if closing.analysis is not None:
                analyses.append(_about(closing.analysis, parts[0].passages[0].document_id))
            else:
                unclosed = unclosed or closing.why or self._stopped or NOT_SAID
        return Reply(merged(analyses), unread=unread, unclosed=unclosed)

    # --- The plan, and what became of it ---

    def _plan(self) -> None:
        """Decide once how much of the documents one question holds. It is noted before the first is asked."""
        passages, others = self._work.reading.passages, [*self._assembled[0], _instructions(self._session)]
        room = self._room_without_plan or section_room(self._model, others)
        plan = plan_reading(passages, room=room, model=self._model, others=others)
        if plan is None:
            self._note(room=0, stopped=NO_ROOM)
        else:
            estimate = str(plan.estimate_usd or ZERO)
            self._noted |= {"room": plan.room, "sections": plan.sections, "read": 0, "estimate_usd": estimate}
            self._is_plan_new = True

    def _note(self, **notes: Any) -> None:
        self._noted |= notes
        session_note_new(self._session, {READING: dict(self._noted)})
        self._is_plan_new = False

    def _note_before(self, question: dict[str, Any]) -> frozenset[str]:
        """Note the plan and the inputs before the first question, with its long texts; return these."""
        if self._inputs is None and not self._is_plan_new:
            return frozenset()
        with transaction.atomic():
            if self._inputs is None:
                self._note()
            else:
                note_inputs(self._session, self._inputs, now=clock(), **{READING: dict(self._noted)})
            texts = store_texts(question)
        self._inputs, self._is_plan_new = None, False
        return texts

    @property
    def _room_without_plan(self) -> int:
        """Return how much one question held if it was asked by a version that planned no sections; 0 otherwise."""
        if "room" in self._noted or f"{ONLY}:1" not in self._made:
            return 0
        return max(sum(len(passage.text) for passage in self._work.reading.passages), LEAST_SECTION_CHARS)

    @property
    def _stopped(self) -> str:
        return str(self._noted.get("stopped") or "")

    @property
    def _is_stopped(self) -> bool:
        return bool(self._stopped)

    @property
    def _sections(self) -> tuple[Section, ...]:
        room = int(self._noted.get("room") or self._room_without_plan)
        return sections_of(self._work.reading.passages, room=room) if room else ()

    @property
    def _leaves(self) -> list[Section]:
        """The sections, with halves in the place of those that were halved."""
        parts = (part for section in self._sections for part in self._parts(section))
        return [part for part in parts if not (self._answer(part).is_endless and part.halved())]

    def _parts(self, section: Section) -> Iterator[Section]:
        """Yield the section itself, then its halves if its answer had no end."""
        yield section
        if self._answer(section).is_endless:
            for half in section.halved():
                yield from self._parts(half)

    def _is_part(self, section: Section) -> bool:
        """Return whether the section is a part of a passage that was cut up."""
        whole = {(one.document_id, one.start, len(one.text)) for one in self._work.reading.passages}
        return any((one.document_id, one.start, len(one.text)) not in whole for one in section.passages)

    def _cut_up(self) -> list[list[Section]]:
        """Return the parts of each document that was cut up."""
        found: dict[str, list[Section]] = {}
        for part in self._leaves:
            if self._is_part(part):
                found.setdefault(part.passages[0].document_id, []).append(part)
        return list(found.values())

    def _answer_to(self, key: str) -> Answer:
        """Return the answer to what was asked under this key; it is read once, until more is asked."""
        if key not in self._answers:
            self._answers[key] = answer_to(key, self._made)
        return self._answers[key]

    def _answer(self, section: Section) -> Answer:
        return self._answer_to(section.key)

    def _seen_in(self, section: Section) -> tuple[str, ...] | None:
        """Return what the section deals with; None if it was not checked, or the answer does not say."""
        found = self._answer(section).analysis
        return None if found is None else found.seen

    def _unread(self) -> Iterator[Unread]:
        for part in self._leaves:
            answer = self._answer(part)
            if answer.analysis is None:
                yield from unread_of(part, answer.why or self._stopped or NOT_ASKED)

    def _why_nothing(self) -> str:
        return next((why for part in self._leaves if (why := self._answer(part).why)), "") or self._stopped or NOT_ASKED

    # --- One question ---

    def _ask(self, key: str, question: Callable[[], dict[str, Any]]) -> End | None:
        """Ask until there is an answer, or none is to be had. Each request may end the slice of work."""
        while True:
            answer = self._answer_to(key)
            if answer.analysis is not None or answer.why:
                return None
            place, params = self._request(key, answer, question)
            # The very first request is left to the brake, so that a run without any money ends for this reason.
            if self._made and not can_be_paid(self._session, self._intent, params):
                self._note(stopped=NO_MONEY)
                return None
            with texts_stored(self._note_before(params)):
                asked = journaled_call(self._session, self._intent, place, params)
            if asked.detail == BUSY and session_note_wait(self._session) <= MOST_WAITS:
                return Asleep(clock() + BUSY_WAIT)
            if (made := self._call_made(place, asked)) is not None:
                self._made[place] = made
                self._answers.pop(key, None)
            if not asked.ok:
                if not self._can_go_on_after(asked):
                    self._note(stopped=asked.error or str(asked.outcome))
                return None
            if self._work.is_over and not asked.replayed and self._has_more(key):
                return SliceOver()

    def _call_made(self, place: str, asked: ToolResult) -> ToolCall | None:
        """Return the call that was just made, as far as an answer is read from it."""
        if not asked.ok:
            return call_latest(self._session, place)
        return ToolCall(key=place, outcome=asked.outcome, detail=asked.detail, result=asked.data)

    def _can_go_on_after(self, failed: ToolResult) -> bool:
        """Return whether the other sections are read although the answer about one failed.

        A server that fails at several in a row, or refuses the key, would fail at the others too.
        """
        answers = [answer for part in self._leaves if (answer := self._answer(part)).analysis or answer.why]
        last = answers[-MOST_FAILED:]
        fails = len(last) == MOST_FAILED and not any(answer.analysis for answer in last)
        return failed.outcome in _OF_ONE_QUESTION and failed.detail != KEY_REFUSED and not fails

    def _has_more(self, key: str) -> bool:
        """Return whether more is asked after this request: about this section or others, or by judges."""
        return self._answer_to(key).analysis is None or key != ONLY or self._work.spec.judge_citations

    def _request(self, key: str, answer: Answer, question: Callable[[], dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Return where the next request stands in the journal, and its parameters."""
        asked = arguments_asked(self._session, f"{key}:1") or question()
        if not answer.is_asked:
            return f"{key}:1", asked
        place, then = (f"{key}:{answer.part}", CONTINUE.text) if answer.goes_on else (f"{key}:{REPAIR}", REPAIR_TEXT)
        said = [{"role": "assistant", "content": answer.text or "-"}, {"role": "user", "content": then}]
        params = {**asked, "messages": [*asked["messages"], *said]}
        if answer.goes_on:  # no schema binds what begins in the middle
            params.pop("response_schema", None)
        return place, params

    def _question(self, section: Section) -> dict[str, Any]:
        others = self._others()
        documents = [
            Part("document", passage.text, {"id": passage.document_id, "name": passage.name})
            for passage in section.passages
        ]
        nonce = nonce_of(self._session.public_id, section.key)
        instructions = instructions_of(self._session.agent)
        if not self._is_part(section):
            return analysis_question([*others, *documents], nonce=nonce, model=self._model, instructions=instructions)
        question = analysis_question(
            [*others, Part("section", str(section), {}), *documents],
            nonce=nonce,
            model=self._model,
            instructions=instructions,
            system=SECTION_SYSTEM,
            schema=SECTION_SCHEMA,
        )
        return {**question, "parties": self._names}

    def _closing_question(self, parts: Sequence[Section]) -> dict[str, Any]:
        """Ask what is missing from a document, now that each of its sections has said what it deals with."""
        lines = [f"{part}: {'; '.join(self._seen_in(part) or ()) or 'nothing'}" for part in parts]
        targets = [part for part in self._others() if part.kind in {"playbook", "skill"}]
        [document] = parts[0].passages
        about = {"id": document.document_id, "name": document.name}
        question = analysis_question(
            [*targets, Part("sections", "\n".join(lines), about)],
            nonce=nonce_of(self._session.public_id, _closing_key(parts)),
            model=self._model,
            instructions=instructions_of(self._session.agent),
            system=CLOSING_SYSTEM,
        )
        return {**question, "parties": self._names}

    def _others(self) -> list[Part]:
        """Return the inputs beside the documents, as the first question had them: all sections are checked alike."""
        asked = arguments_asked(self._session, f"{self._sections[0].key}:1")
        if asked is None:
            others, self._inputs = self._assembled
            return others
        blocks = [block for message in asked["messages"][1:] for block in parse_blocks(str(message["content"]))]
        return [Part(block.kind, block.text, block.attributes) for block in blocks if block.kind not in _OF_ONE_SECTION]

    @cached_property
    def _assembled(self) -> tuple[list[Part], Inputs]:
        return assembled(self._work, documents=False)

    @cached_property
    def _names(self) -> list[str]:
        """The people and firms of all documents: a name that one section tells is hidden in the others too."""
        if "names" not in self._noted:
            texts = (passage.text for passage in self._work.reading.passages)
            self._note(names=list(islice(names_in(texts), MOST_NAMES)))
        return list(self._noted["names"])


_OF_ONE_SECTION: Final = frozenset({"document", "section"})


def _closing_key(parts: Sequence[Section]) -> str:
    return f"{CLOSING}:{parts[0].path}"


def _about(analysis: Analysis, document_id: str) -> Analysis:
    """Return what is missing as findings about the document that it is missing from. It has no quote."""
    findings = tuple(replace(one, document_id=document_id, quote="") for one in analysis.findings)
    return Analysis(findings=findings, has_verdict=analysis.has_verdict, dropped=analysis.dropped)
