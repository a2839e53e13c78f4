"""Contracts of up to two megabytes, read by real workers from a real model server: all of it, once."""

import threading
from decimal import Decimal

import pytest

from agents.enums import Outcome, RunResult, Status
from agents.models import Notification
from agents.text.blocks import parse_blocks
from audit.receipts import build_receipt
from audit.verify import verify_chain
from tests.factories import make_price
from tests.flows.cluster import ended, lose_worker_of, session_of, worker_of
from tests.flows.model_server import NAME
from tests.flows.processes import until
from tests.flows.scenes import Scene

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _ceiling(settings):
    settings.LQOPS_CEILING_RUN_USD = Decimal(50)  # these documents are long


SMALL, SAMPLE = 250_000, 700_000
FULL = pytest.param(2_000_000, marks=pytest.mark.stress)
DEPARTURES = {
    "Unlimited liability": "The Supplier is liable without any limit.",
    "Price may rise at will": "The Supplier may raise all prices at any time.",
    "Courts of another country": "The courts of Atlantis alone decide.",
}
REQUIRED = "Liability of the Customer is capped at the fees of one year."


def contract(start="", middle="", end="", *, chars=SAMPLE):
    """Clauses as such contracts have them, with words of their own at the start, in the middle and on the last page."""
    clause = "The parties shall perform what they have agreed in the order in which it was agreed. " * 12
    count = chars // (len(clause) + 20)
    own = {1: start, count // 2: middle, count: end}
    return "".join(f"{number}. Clause\n\n{clause}{own.get(number, '')}\n\n" for number in range(1, count + 1))


def blocks_of(request):
    return [block for message in request["messages"] for block in parse_blocks(message["content"])]


def section_of(request):
    """The number of the section that a request is about; 0 for the one about what is missing."""
    [number] = [int(block.text.split()[1]) for block in blocks_of(request) if block.kind == "section"] or [0]
    return number


def reader(request):
    """A model that reports each departure in the section where it stands, and at the end what no section dealt with."""
    text = "".join(block.text for block in blocks_of(request) if block.kind == "document")
    found = [
        {"title": title, "severity": "critical", "content": "Departs.", "quote": words}
        for title, words in DEPARTURES.items()
        if words in text
    ]
    if not section_of(request):
        dealt_with = "".join(block.text for block in blocks_of(request) if block.kind == "sections")
        if "Liability of the Customer" not in dealt_with:
            found.append({"title": "Liability is missing", "severity": "critical", "content": "Nowhere.", "quote": ""})
    return {
        "findings": found,
        "seen": ["Liability of the Customer"] if REQUIRED in text else [],
        "suggested_memories": [],
        "suggested_precedents": [],
        "privilege_concerns": [],
        "scope_concerns": [],
    }


def titles(session):
    return set(session.findings.values_list("title", flat=True)) - {"Ethics review: none flagged"}


@pytest.mark.long
@pytest.mark.parametrize("chars", [SMALL, pytest.param(SAMPLE, marks=pytest.mark.long), FULL])
def test_departures_at_the_start_in_the_middle_and_at_the_end_are_found_and_none_is_falsely_missed(model, chars):
    scene, model.answer = Scene(), reader
    watch = scene.watch(cap="50")
    start, middle, end = DEPARTURES.values()
    document = scene.attach(contract(start, middle, end + REQUIRED, chars=chars))
    session = ended(session_of(watch), 300)

    assert (session.status, session.run_result) == (Status.COMPLETED, RunResult.FINDINGS), session.error
    assert titles(session) == set(DEPARTURES)
    for finding in session.findings.exclude(quote=""):
        assert finding.quote_check == "verified"
        assert document.text[finding.quote_start : finding.quote_end] == finding.quote
    read = [section_of(request) for request in model.requests]
    assert sorted(read) == list(range(len(read))), "every section and the last question, once each"
    assert len(read) > chars // 60_000


@pytest.mark.long
def test_what_no_section_contains_is_missed(model):
    scene, model.answer = Scene(), reader
    watch = scene.watch(cap="50")
    scene.attach(contract(chars=SMALL))
    assert titles(ended(session_of(watch), 300)) == {"Liability is missing"}


@pytest.mark.parametrize("chars", [pytest.param(SAMPLE, marks=pytest.mark.long), FULL])
def test_worker_killed_in_the_ninth_section_is_replaced_there_and_nothing_is_paid_twice(model, chars):
    scene, held, at_nine = Scene(), threading.Event(), threading.Event()

    def answer(request):
        if section_of(request) == 9 and not at_nine.is_set():
            at_nine.set()
            held.wait(60)
        return reader(request)

    model.answer = answer
    watch = scene.watch(cap="50")
    start, middle, end = DEPARTURES.values()
    scene.attach(contract(start, middle, end + REQUIRED, chars=chars))
    session = session_of(watch)
    until(at_nine.is_set)
    before = dict(session.tool_calls.filter(outcome=Outcome.SUCCESS).values_list("key", "charged_usd"))
    assert len([key for key in before if key.startswith("section:")]) == 8
    first = worker_of(session)

    lose_worker_of(session)
    ended(session, 300)
    held.set()

    assert (session.status, session.run_result) == (Status.COMPLETED, RunResult.FINDINGS), session.error
    assert titles(session) == set(DEPARTURES)
    assert first != int(session.lease_owner.rpartition(":")[2] or 0)
    asked = [section_of(request) for request in model.requests]
    assert [asked.count(number) for number in range(1, 11)] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 1]
    calls = session.tool_calls.exclude(model="")
    twice = calls.filter(attempt__gt=1)
    assert [call.outcome for call in calls.filter(key=twice.get().key).order_by("attempt")] == [
        Outcome.WORKER_LOST,
        Outcome.SUCCESS,
    ]
    assert session.cost_total_usd == sum((call.charged_usd for call in calls), Decimal(0))
    assert dict(calls.filter(key__in=before).values_list("key", "charged_usd")).items() <= before.items()
    assert verify_chain(session.chain).verified


@pytest.mark.long
def test_cap_for_a_few_sections_gives_a_partial_result_with_the_unread_ranges(model):
    scene, model.answer, model.prompt_tokens = Scene(), reader, 20_000
    price = make_price(NAME, input_usd=10, output_usd=10)  # 0.20 dollars a section, 0.70 at the worst
    watch = scene.watch(cap="2")
    document = scene.attach(contract(*DEPARTURES.values()))
    session = ended(session_of(watch), 300)
    price.delete()

    assert session.run_result == RunResult.PARTIAL, (session.status, session.result_reason)
    read = [section_of(request) for request in model.requests]
    assert 3 <= len(read) < 15
    [warning] = session.findings.filter(title__contains="not checked")
    assert f"{len(document.text):,}" in warning.content
    assert "Unlimited liability" in titles(session)
    assert "Liability is missing" not in titles(session), "what was not read is not said to be missing"
    assert Notification.objects.filter(owner=scene.owner, session=session).exists()
    assert build_receipt(session.chain)["result"] == "partial"
