"""emit_finding: what it stores, and that nobody's word is taken for a quote."""

import uuid

import pytest

from agents.enums import Outcome, Phase, ToolIntent
from agents.guard import guarded_tool_call
from agents.models import Document, Finding
from audit.redaction import redact
from tests.factories import NOW, make_session, make_user

pytestmark = pytest.mark.django_db
TEXT = "Präambel 🚀 „§“ The Customer shall pay within 60 days of receipt. Pay within 60 days."
QUOTE = "shall pay within 60 days"
START = TEXT.index(QUOTE)


@pytest.fixture
def session():
    return make_session(current_phase=Phase.DRAFTING)


@pytest.fixture
def document(session):
    return make_document(session.owner)


def make_document(owner, text=TEXT, **fields):
    digest = uuid.uuid4().hex * 2
    return Document.objects.create(
        owner=owner, name="lease.txt", media_type="text/plain", digest=digest, size=1, text=text, **fields
    )


def emit(session, **params):
    result = guarded_tool_call(session, ToolIntent.EMIT_FINDING, {"title": "t", **params}, now=NOW)
    assert result.outcome == Outcome.SUCCESS, result.error
    finding = Finding.objects.get(public_id=result.data["finding_id"])
    assert result.data["quote_check"] == finding.quote_check
    return finding


def place(finding):
    return finding.quote_check, finding.quote_start, finding.quote_end


def test_a_quote_at_its_place_is_verified(session, document):
    finding = emit(session, document=str(document.public_id), quote=QUOTE, quote_start=START)
    assert finding.document == document
    assert place(finding) == ("verified", START, START + len(QUOTE))
    assert TEXT[finding.quote_start : finding.quote_end] == finding.quote == QUOTE


def test_a_verified_quote_has_the_place_of_its_document(session):
    middle = START + 5
    document = make_document(session.owner, marks=[[0, "page 6"], [START, "page 7"], [middle, "page 8"]])
    about = {"document": str(document.public_id)}

    assert emit(session, **about, quote=QUOTE, quote_start=START).location == "page 7 to page 8"
    assert emit(session, **about, quote=TEXT[START:middle], quote_start=START).location == "page 7"
    assert emit(session, **about, quote=TEXT[middle:], quote_start=middle).location == "page 8"
    assert emit(session, **about, quote="never said", quote_start=START).location == ""


@pytest.mark.parametrize(
    "claimed",
    [
        {"quote_start": START + 1},
        {"quote_start": 10**6},
        {"quote_start": None},
        {"quote_start": -1},
        {"quote_start": True},
        {"quote_start": "25"},
        {"quote_start": 2**31},
        {"quote": "shall pay within 61 days", "quote_start": START},
    ],
)
def test_the_callers_word_is_not_taken_for_it(session, document, claimed):
    told = {"quote": QUOTE, "quote_check": "verified", "quote_end": START + len(QUOTE), **claimed}
    finding = emit(session, document=str(document.public_id), **told)
    assert place(finding) == ("unverified", None, None)
    assert (finding.document, finding.quote) == (document, told["quote"])


def test_the_document_of_somebody_else_is_unknown(session):
    other = make_document(make_user())
    finding = emit(session, document=str(other.public_id), quote=QUOTE, quote_start=START)
    assert (finding.document, *place(finding)) == (None, "unverified", None, None)


@pytest.mark.parametrize("named", ["", "event", "not-an-id", "00000000-0000-4000-8000-000000000000"])
def test_an_unknown_document_is_left_out(session, named):
    finding = emit(session, document=named, quote=QUOTE, quote_start=0)
    assert (finding.document, *place(finding)) == (None, "unverified", None, None)


def test_a_deleted_document_is_unknown(session):
    gone = make_document(session.owner, deleted_at=NOW)
    assert emit(session, document=str(gone.public_id), quote=QUOTE, quote_start=START).document is None


def test_a_finding_without_a_quote_has_no_check(session, document):
    finding = emit(session, document=str(document.public_id))
    assert (finding.document, finding.quote, *place(finding)) == (document, "", "", None, None)


def test_a_quote_too_short_to_prove_anything_is_not_verified(session, document):
    assert place(emit(session, document=str(document.public_id), quote="60", quote_start=TEXT.index("60")))[0] == (
        "unverified"
    )


def test_a_masked_secret_is_not_verified_even_if_the_document_holds_the_mask(session):
    masked = redact("The key is AKIAIOSFODNN7EXAMPLE.")
    holder = make_document(session.owner, masked)
    assert place(emit(session, document=str(holder.public_id), quote=masked, quote_start=0))[0] == "unverified"


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"judges_for": 1, "judges_asked": 2}, (1, 2)),
        ({"judges_for": 0, "judges_asked": 1}, (0, 1)),
        ({"judges_for": 0, "judges_asked": 0}, (None, None)),
        ({"judges_for": 3, "judges_asked": 2}, (None, None)),
        ({"judges_for": "1", "judges_asked": 2}, (None, None)),
        ({"judges_for": 1}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_votes_that_make_no_sense_are_none(session, said, stored):
    finding = emit(session, **said)
    assert (finding.judges_for, finding.judges_asked) == stored


def test_findings_keep_an_odd_severity_and_have_a_title(session):
    finding = emit(session, title="", severity="rather grave")
    assert (finding.title, finding.severity) == ("(untitled)", "rather grave")
