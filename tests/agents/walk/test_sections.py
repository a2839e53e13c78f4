"""Documents of any length: read in sections, paid for once, and what was not checked is said to be."""

import json
import random
from dataclasses import replace
from decimal import Decimal
from unittest.mock import patch

import pytest

from agents.definitions.playbooks import Position
from agents.enums import ApprovalStatus, NoticeKind, Outcome, RunResult, Status
from agents.knowledge.playbooks import playbook_create, playbook_edit
from agents.models import Approval, ToolCall
from agents.providers.base import Fault, ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.runner import run_session
from agents.sessions.halts import session_halt
from agents.types import Usage
from agents.walk.analysis import plan_of_documents
from agents.walk.intake import Slice
from agents.walk.walk import walk
from tests.agents.walk.scene import blocks_of, lose, model, reply, run
from tests.factories import NOW, make_agent, make_price
from tests.serving import serving

pytestmark = pytest.mark.django_db

ROOM = 4_000
EMPTY = reply(findings=[], suggested_memories=[], suggested_precedents=[], seen=[])


@pytest.fixture(autouse=True)
def _small_sections(monkeypatch):
    monkeypatch.setattr("agents.walk.analysis.SECTION_CHARS", ROOM)


def contract(sections=4, **clauses):
    """A contract with an article for each section; `a3="..."` puts words into the third."""
    filler = "The parties agree on what has been agreed before. " * 60
    return "".join(f"Article {n}\n\n{filler}{clauses.get(f'a{n}', '')}\n\n" for n in range(1, sections + 1))


class Answering(ScriptedProvider):
    """Answers by what it is asked."""

    def __init__(self, answer):
        super().__init__([Step()])
        self._answer = answer

    def _next(self, request):
        return replace(super()._next(request), text=self._answer(request))


def answering(**found):
    """A model that reports these words, by title, in whichever section they stand, and says what is missing."""

    def answer(request):
        blocks = blocks_of(request)
        shown = "".join(block.text for block in blocks if block.kind == "document")
        listed = "".join(block.text for block in blocks if block.kind == "sections")
        findings = [
            {"title": title, "severity": "warn", "content": "Departs.", "quote": words}
            for title, words in found.items()
            if words in shown
        ]
        if listed and "Payment terms" not in listed:
            findings.append({"title": "Payment terms missing", "severity": "critical", "content": "Nowhere."})
        seen = ["Payment terms"] if "pay invoices" in shown else []
        return reply(findings=findings, suggested_memories=[], suggested_precedents=[], seen=seen)

    return serving("offline", Answering(answer))


def declare(settings, **more):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "offline": {**settings.LQOPS_MODELS["offline"], **more}}


def titles(session):
    return [one.title for one in session.findings.all()]


def numbers(asked):
    """Which section each question is about; nothing for the last one."""
    marks = [[block.text for block in blocks_of(request) if block.kind == "section"] for request in asked.requests]
    return [mark[0].split()[1] if mark else "" for mark in marks]


# --- Everything is read ---


def test_every_section_is_asked_about_once_and_quotes_are_found_in_the_whole_document(scene):
    text = contract(a1="Alpha is due at once.", a2="Beta is due never.", a4="Gamma ends it. We pay invoices.")
    with answering(A="Alpha is due at once.", B="Beta is due never.", C="Gamma ends it.") as asked:
        session = run(scene.of_document(text))
    assert titles(session) == ["A", "B", "C", "Ethics review: none flagged"]
    for finding in session.findings.filter(quote_check="verified"):
        assert text[finding.quote_start :].startswith(finding.quote)
    assert session.findings.filter(quote_check="verified").count() == 3
    total = len(asked.requests) - 1
    assert numbers(asked) == [*map(str, range(1, total + 1)), ""]
    shown = [block.text for request in asked.requests for block in blocks_of(request) if block.kind == "document"]
    assert "".join(shown) == text
    assert max(map(len, shown)) <= ROOM
    assert (session.run_result, session.result_reason) == (RunResult.FINDINGS, "Everything was checked.")
    assert session.metadata["reading"] == {
        "room": ROOM, "sections": total, "read": total, "estimate_usd": "0.09", "names": [],
    }  # fmt: skip


def test_all_sections_are_checked_against_the_same_playbook_although_it_is_changed_meanwhile(scene):
    def change():
        positions = [Position("Another", standard="Other words.")]
        playbook_edit(playbook=scene.playbook, positions=positions, by=scene.owner, now=NOW)

    with model(EMPTY, Step(EMPTY, before_reply=change), EMPTY) as asked:
        session = run(scene.of_document(contract(5)))
    targets = [[block for block in blocks_of(request) if block.kind == "playbook"] for request in asked.requests]
    assert len(targets) == 6
    assert {(found.text, found.attributes["name"]) for [found] in targets} == {
        (targets[0][0].text, scene.playbook.name)
    }
    assert session.run_result == RunResult.OK


def test_name_that_one_section_tells_is_hidden_in_all(scene):
    text = contract(4, a1="Between Wolfhart Ltd and Mr John Goldsmith.", a3="Wolfhart pays. Goldsmith signs.")
    with model(EMPTY) as asked:
        session = run(scene.of_document(text))
    sent = [str(request.messages) for request in asked.requests]
    assert len(sent) == 5
    assert not [text for text in sent if "Wolfhart" in text or "Goldsmith" in text]
    assert session.metadata["reading"]["names"] == ["John Goldsmith", "Wolfhart Ltd"]


def test_what_is_missing_is_asked_after_the_last_section(scene):
    with answering() as asked:
        session = run(scene.of_document(contract()))
    assert titles(session) == ["Payment terms missing", "Ethics review: none flagged"]
    [listed] = [block.text for block in blocks_of(asked.requests[-1]) if block.kind == "sections"]
    assert listed.startswith("Section 1 of 4: nothing\nSection 2 of 4: nothing\n")
    assert all("Report nothing as missing" in request.messages[0]["content"] for request in asked.requests[:-1])


def test_clause_on_the_last_page_is_not_missed(scene):
    with answering():
        session = run(scene.of_document(contract(a4="The Customer shall pay invoices within 30 days.")))
    assert titles(session) == ["Ethics review: none flagged"]
    assert session.run_result == RunResult.OK


def test_what_two_sections_say_alike_counts_once(scene):
    same = reply(seen=[], privilege_concerns=["It is marked secret."])
    with model(*[same] * 3, EMPTY):
        session = run(scene.of_document(contract(3)))
    assert titles(session) == ["Pays late", "Renews", "Ethics review: 1 flagged"]
    assert session.memories.count() == 1


def test_collection_is_read_together_where_it_fits_and_in_sections_where_not(scene):
    for name, length in (("a", 500), ("b", 500), ("c", 9_500)):
        scene.document(f"{name} ".ljust(length, "x"), name=name)
    with model(EMPTY) as asked:
        session = run(scene.session(collection=str(scene.collection.public_id)))
    read = [[b.attributes["name"] for b in blocks_of(one) if b.kind == "document"] for one in asked.requests]
    assert read == [["a", "b"], ["c"], ["c"], ["c"], []]
    assert numbers(asked) == ["", "2", "3", "4", ""], "what is shown whole is judged whole"
    assert session.run_result == RunResult.OK


def test_what_is_missing_is_asked_for_each_long_document(scene):
    for name in ("one", "two"):
        scene.document(f"{name} {contract(3)}", name=name)
    with answering() as asked:
        session = run(scene.session(collection=str(scene.collection.public_id)))
    assert numbers(asked) == ["1", "2", "3", "4", "5", "6", "", ""]
    missing = session.findings.filter(title="Payment terms missing")
    assert sorted(one.document.name for one in missing) == ["one", "two"]


def test_section_is_as_long_as_the_context_window_of_its_model_allows(scene, settings):
    declare(settings, context_window=8_192)
    with model(EMPTY) as asked:
        run(scene.of_document(contract(14)))
    assert all(sum(len(one["content"]) for one in request.messages) <= 3 * 4_096 + 500 for request in asked.requests)
    assert 4 <= len(asked.requests) <= 30


def questions_fit(asked, *, tokens):
    """Whether each question fits into so many tokens, apart from the marks of its blocks."""
    return all(sum(len(one["content"]) for one in one.messages) <= 3 * tokens + 1_000 for one in asked.requests)


def test_instructions_of_the_agent_take_room_from_the_sections(scene, settings):
    declare(settings, context_window=16_384)
    agent = make_agent(owner=scene.owner, definition=f"name: clerk\ninstructions: {'Be brief. ' * 2_000}\n")
    text = contract(10)
    with model(EMPTY) as asked:
        session = run(scene.of_document(text, agent=agent))
    assert questions_fit(asked, tokens=16_384 - 4_096)
    assert "Be brief. Be brief." in asked.requests[0].messages[0]["content"]
    planned = plan_of_documents(session, scene.owner.lqops_documents.all())
    assert planned.sections == len(asked.requests) - 1
    without = plan_of_documents(scene.of_document(text), scene.owner.lqops_documents.all())
    assert planned.estimate_usd > without.estimate_usd


@pytest.mark.long
def test_many_short_documents_fit_with_the_marks_around_them(scene, settings):
    declare(settings, context_window=16_384)
    for number in range(220):
        scene.document(f"Note {number}.", name=f"note-{number}-{'x' * 60}.txt")
    with model(EMPTY) as asked:
        session = run(scene.session(collection=str(scene.collection.public_id)))
    assert questions_fit(asked, tokens=16_384 - 4_096)
    assert sum(block.kind == "document" for one in asked.requests for block in blocks_of(one)) == 220
    assert session.run_result == RunResult.OK


def test_model_without_room_for_anything_is_a_failed_run_and_not_asked(scene, settings):
    declare(settings, context_window=1_024)
    with model(EMPTY) as asked:
        session = run(scene.of_document())
    assert asked.requests == []
    assert session.run_result == RunResult.FAILED
    assert "no room in the model's context window" in session.result_reason


# --- Interrupted ---


class WorkerDied(BaseException):
    """As SIGKILL: nothing below the worker catches it."""


def test_worker_that_dies_in_section_three_leaves_it_to_the_next_and_nothing_is_paid_twice(scene):
    make_price("offline")
    session = scene.of_document(contract(5))

    def die():
        raise WorkerDied

    steps = [Step(EMPTY, usage=Usage(1_000, 0)) for _ in range(2)]
    with model(*steps, Step(before_reply=die)) as asked, pytest.raises(WorkerDied):
        run_session(session.pk, walk, owner="first")
    assert numbers(asked) == [str(n) for n in range(1, 4)]
    lose(session)
    with model(Step(EMPTY, usage=Usage(1_000, 0))) as asked:
        run(session)
    assert numbers(asked) == ["3", "4", "5", ""]
    assert session.run_result == RunResult.OK
    settled = ToolCall.objects.filter(session=session, key__startswith="section:", outcome=Outcome.SUCCESS)
    assert settled.count() == 5
    assert len({call.actual_usd for call in settled}) == 1
    lost = ToolCall.objects.get(session=session, outcome=Outcome.WORKER_LOST)
    assert lost.key == "section:3:1"


def test_each_section_may_end_a_slice_of_work(scene):
    session = scene.of_document(contract(3))
    with model(EMPTY) as asked, patch.object(Slice, "is_over", True):
        for done in range(1, 5):
            run_session(session.pk, walk, owner="worker")
            session.refresh_from_db()
            if done > 1:  # the first slice ends before the analysis
                assert len(asked.requests) == done - 1
        run(session)
    assert numbers(asked) == ["1", "2", "3", ""]
    assert session.run_result == RunResult.OK


def test_document_that_is_deleted_while_it_is_read_is_read_to_its_end(scene):
    session = scene.of_document(contract(3))

    def delete():
        scene.owner.lqops_documents.update(deleted_at=session.created_at)

    with model(EMPTY, Step(EMPTY, before_reply=delete), EMPTY) as asked:
        run(session)
    assert numbers(asked) == ["1", "2", "3", ""]
    assert session.run_result == RunResult.OK


# --- Partial ---


def partial(session):
    """The lines about what was not checked."""
    [note] = session.findings.filter(title__endswith="of the documents were not checked")
    assert note.severity == "warn"
    assert session.run_result == RunResult.PARTIAL
    assert session.status == Status.COMPLETED
    assert session.notifications.get().title.startswith("Run partly done: ")
    return [line for line in note.content.splitlines() if line.startswith("- ")]


def test_cap_that_pays_for_two_sections_gives_a_partial_result_with_the_unread_ranges(scene):
    make_price("offline", input_usd="0.1", output_usd="0.1")
    text = contract(5, a2="Alpha is due at once.")
    with answering(A="Alpha is due at once.") as asked:
        session = run(scene.of_document(text, max_cost_usd=Decimal("0.0105")))
    assert numbers(asked) == ["1", "2"]
    assert "A" in titles(session)
    lines = partial(session)
    start = text.index("Article 3")
    assert len(lines) == 3
    assert lines[0].startswith(f"- lease.txt, characters {start:,} to ")
    assert lines[0].endswith(": the rest of the run's money is too little for it")
    assert lines[-1].split(" to ")[1].startswith(f"{len(text):,}:")
    assert not session.cost_cap_reached
    assert "lease.txt" in session.result_reason
    assert session.result["result"] == "partial"


def test_section_whose_answer_cannot_be_read_is_reported_and_the_others_count(scene):
    with model(EMPTY, "no json", "still none", reply(seen=[])) as asked:
        session = run(scene.of_document(contract(4)))
    assert numbers(asked) == ["1", "2", "2", "3", "4"]
    [line] = partial(session)
    assert line.endswith("the model's answer could not be read")
    assert "Pays late" in titles(session)


def test_server_that_refuses_is_not_asked_about_the_rest(scene):
    refused = Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))
    with model(EMPTY, EMPTY, refused) as asked:
        session = run(scene.of_document(contract(6)))
    assert numbers(asked) == ["1", "2", "3"]
    assert len(partial(session)) == 4


def test_section_that_the_server_does_not_answer_is_reported_and_the_others_are_read(scene):
    rejected = Step(error=ProviderError("cannot read this", fault=Fault.INVALID_REQUEST, contacted=True))
    with model(EMPTY, rejected, EMPTY) as asked:
        session = run(scene.of_document(contract(5)))
    assert numbers(asked) == ["1", "2", "3", "4", "5"]
    [line] = partial(session)
    assert "cannot read this" in line


def test_server_that_answers_nothing_about_three_sections_in_a_row_is_not_asked_about_the_rest(scene):
    rejected = Step(error=ProviderError("cannot read this", fault=Fault.INVALID_REQUEST, contacted=True))
    with model(EMPTY, rejected, rejected, rejected) as asked:
        session = run(scene.of_document(contract(7)))
    assert numbers(asked) == ["1", "2", "3", "4"]
    assert len(partial(session)) == 6


def test_fallback_reads_on_where_the_server_refuses_the_key(scene, settings):
    declare(settings, fallback=["other"])
    make_price("other")
    refused = Step(error=ProviderError("no such key", fault=Fault.AUTH, contacted=True))
    with model(EMPTY, EMPTY, refused) as asked, serving("other", ScriptedProvider([Step(EMPTY)])) as other:
        session = run(scene.of_document(contract(5)))
    assert numbers(asked)[:3] == ["1", "2", "3"]
    assert sorted(set(numbers(asked)[:2] + numbers(other))) == ["", "1", "2", "3", "4", "5"]
    assert session.run_result == RunResult.OK


def test_halt_between_two_sections_ends_the_run_there(scene):
    session = scene.of_document(contract(6))

    def halt():
        session_halt(session.pk, by=None, reason="Enough.", now=NOW)

    with model(EMPTY, Step(EMPTY, before_reply=halt), EMPTY) as asked:
        run(session)
    assert numbers(asked) == ["1", "2"]
    assert (session.status, session.run_result) == (Status.HALTED, RunResult.FAILED)
    assert session.result["result"] == "failed"


def test_answer_without_an_end_is_asked_for_in_halves(scene):
    endless = Step("and so on ", stop_reason="max_tokens", usage=Usage(10, 10))
    with model(EMPTY, endless, endless, endless, EMPTY) as asked:
        session = run(scene.of_document(contract(3)))
    assert numbers(asked) == ["1", "2", "2", "2", "2", "2", "3", ""]
    [mark] = [block.text for block in blocks_of(asked.requests[4]) if block.kind == "section"]
    assert mark == "Section 2 of 3, part 1"
    shown = [block.text for one in asked.requests[4:6] for block in blocks_of(one) if block.kind == "document"]
    [whole] = [block.text for block in blocks_of(asked.requests[1]) if block.kind == "document"]
    assert "".join(shown) == whole
    assert session.run_result == RunResult.OK


def test_missing_things_that_could_not_be_asked_for_make_it_partial(scene):
    with model(*[EMPTY] * 3, "no json"):
        session = run(scene.of_document(contract(3)))
    assert "What is missing was not checked" in titles(session)
    assert session.run_result == RunResult.PARTIAL
    assert session.result_reason.startswith("What is missing was not checked: the model's answer could not be read")


def test_nothing_is_missing_if_a_section_does_not_say_what_it_deals_with(scene):
    silent = json.dumps({name: value for name, value in json.loads(EMPTY).items() if name != "seen"})
    with model(EMPTY, silent, EMPTY, reply()) as asked:
        session = run(scene.of_document(contract(3)))
    assert numbers(asked) == ["1", "2", "3"]
    assert titles(session) == ["What is missing was not checked", "Ethics review: none flagged"]
    assert session.run_result == RunResult.PARTIAL
    assert session.result_reason.endswith("the model's answers do not say what each section deals with")


# --- Hostile answers ---

GOOD = json.loads(reply())


def hostile(seed):
    """An answer that cannot be read as one, whatever it pretends."""
    source = random.Random(seed)
    text = json.dumps(GOOD)
    ways = [
        lambda: text[: source.randrange(1, len(text))],
        lambda: "I have read it carefully, and all is fine. No findings.",
        lambda: text.replace('"findings": [', '"findings": [<think>are there any?</think>'),
        lambda: f"<think>{EMPTY}</think> All is fine.",
        lambda: f"{EMPTY}</think> All is fine.",
        lambda: f"<think>Perhaps {EMPTY}",
        lambda: json.dumps({"type": "object", "properties": {"findings": {"type": "array"}}}),
        lambda: json.dumps({"findings": [{"title": "", "severity": "info | warn | critical", "content": ""}]}),
        lambda: json.dumps({"findings": source.choice(["none", None, 0, True, 3.5])}),
        lambda: json.dumps({"findings": [source.choice([{}, [], 0, None, {"severity": "warn"}])]}),
        lambda: json.dumps({"answer": json.loads(EMPTY)}),
        lambda: f"{EMPTY}\n{text}",
        lambda: "x" * 1_000_000,
        lambda: "{" * 100_000,
        lambda: "",
    ]
    return ways[seed % len(ways)]()


@pytest.mark.parametrize(
    "seeds",
    [
        range(0, 12, 5),
        pytest.param(range(15), marks=pytest.mark.long),
        pytest.param(range(100), marks=pytest.mark.stress),
    ],
)
def test_answer_that_cannot_be_read_is_never_a_result_and_never_delivered(scene, seeds, approver):
    for seed in seeds:
        stop = "max_tokens" if seed % 3 == 0 else "end_turn"
        with model(Step(hostile(seed), stop_reason=stop, usage=Usage(10, 10))):
            session = run(scene.of_document(f"Words of document {seed}.", review_flagged=True))
        assert session.run_result == RunResult.FAILED, hostile(seed)[:200]
        assert titles(session) == ["Analysis failed: nothing was produced"]
        assert "finding" not in session.notifications.get().title


@pytest.mark.parametrize("missing", ["privilege_concerns", "scope_concerns"])
def test_without_a_readable_verdict_a_person_decides(scene, missing, approver):
    answer = {name: value for name, value in GOOD.items() if name != missing}
    with model(json.dumps(answer)):
        session = run(scene.of_document(review_flagged=True))
    assert session.status == Status.WAITING
    assert Approval.objects.get(session=session).status == ApprovalStatus.PENDING
    assert not session.notifications.filter(kind__in=(NoticeKind.RUN_FINDINGS, NoticeKind.RUN_COMPLETED)).exists()


@pytest.mark.parametrize(
    "answer",
    [
        {"findings": []},
        {**GOOD, "privilege_concerns": [{"reason": "advice of counsel"}]},
        {**GOOD, "findings": [], "scope_concerns": [["beyond the order"]]},
    ],
)
def test_concern_that_cannot_be_read_is_shown_to_a_person(scene, answer, approver):
    with model(json.dumps(answer)):
        session = run(scene.of_document(review_flagged=True))
    assert session.status == Status.WAITING
    assert "Ethics review: no readable verdict" in titles(session)
    assert not session.notifications.filter(kind__in=(NoticeKind.RUN_FINDINGS, NoticeKind.RUN_COMPLETED)).exists()


def test_person_decides_when_a_section_was_not_checked(scene, approver):
    with model(EMPTY, "no json", "still none", reply(seen=[])):
        session = run(scene.of_document(contract(3), review_flagged=True))
    assert session.status == Status.WAITING
    assert "Ethics review: no readable verdict" in titles(session)


# --- The offline analyst ---


STANDARDS = {
    "Payment terms": "The Customer shall pay invoices within 30 days of receipt.",
    "Governing law": "This agreement is governed by the laws of Ireland.",
    "Insurance": "The Supplier keeps liability insurance of at least 5 million euro.",
}


def long_contracts(scene):
    positions = [Position(name, "warn", standard) for name, standard in STANDARDS.items()]
    return str(playbook_create(name="Long contracts", positions=positions, **scene.by).public_id)


def test_offline_analyst_reports_as_missing_only_what_no_section_holds(scene):
    late = STANDARDS["Payment terms"].replace("30", "90")
    text = contract(6, a2=late, a6=STANDARDS["Governing law"])
    session = run(scene.of_document(text, playbook=long_contracts(scene)))
    assert session.tool_calls.filter(key__startswith="section:").count() == 6
    assert [title for title in titles(session) if "review" not in title and "analyst" not in title] == [
        "Payment terms: deviates from the standard",
        "Insurance: not found in the document",
    ]
    assert session.run_result == RunResult.FINDINGS


def test_offline_analyst_misses_nothing_in_a_language_that_it_does_not_read(scene):
    text = "Der Mieter zahlt die Miete im Voraus und haftet nicht für Schäden durch höhere Gewalt.\n\n" * 120
    session = run(scene.of_document(text, playbook=long_contracts(scene)))
    assert "Document not in English" in titles(session)
    assert not [title for title in titles(session) if "not found" in title]
