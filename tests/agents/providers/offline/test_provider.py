"""Replies of the offline provider: exact quotes, bounded tokens, deterministic."""

import json
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.definitions.playbooks import Position
from agents.enums import Purpose
from agents.policy.costs import input_bound
from agents.providers.base import ProviderError
from agents.providers.offline.provider import OfflineProvider
from agents.providers.offline.text import looks_english, words_of
from agents.text.blocks import render_block
from agents.types import ModelRequest, Price
from tests.agents.providers.listeners import ignore
from tests.agents.providers.offline.corpora import clauses
from tests.agents.providers.offline.offline_calls import NONCE, analysis, answer, document, playbook, request, skill
from tests.effort import grows_too_fast, takes_at_most
from tests.table import every_row

POSITIONS = tuple(dict.fromkeys(case.position for case in clauses.CASES))
PRICE = Price("offline", Decimal(1), Decimal(2), overhead_tokens=0)
ODD = [
    "\r\n\r\n",
    "\u00ad",
    "\ufb01nal ",
    "\u201cquoted\u201d ",
    "<<<",
    "\x00",
    "中文。",
    "- ",
    "7.2 ",
    "? No ",
    "e.g. ",
]
PIECES = [case.document for case in clauses.CASES] + ODD
DOCUMENTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=15), max_size=8).map("".join)
KEYS = {"findings", "suggested_memories", "suggested_precedents", "privilege_concerns", "scope_concerns", "analyst"}
ONE = {"title", "severity", "content", "document_id", "quote", "start", "end", "position", "verdict"}


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS)
def test_every_quote_is_exact(text):
    result = analysis(playbook(*POSITIONS), document(text))
    shown = document(text).split("\n", 1)[1]

    assert result.keys() == KEYS
    for found in result["findings"]:
        assert found.keys() == ONE
        assert shown[found["start"] : found["end"]] == found["quote"]
        assert found["document_id"] == "d1"


@settings(max_examples=25, deadline=None)
@given(DOCUMENTS, st.integers(0, 900))
def test_an_answer_is_valid_json_within_its_tokens(text, max_tokens):
    sent = request(playbook(*POSITIONS), document(text), max_tokens=max_tokens)
    reply = OfflineProvider().stream(sent, ignore)
    full = OfflineProvider().stream(request(playbook(*POSITIONS), document(text)), ignore)

    assert reply.usage.output_tokens <= max_tokens
    assert 0 < reply.usage.input_tokens <= input_bound(sent, PRICE)
    assert (reply.stop_reason == "max_tokens") == (reply.text != full.text)
    if max_tokens >= 4:
        kept = json.loads(reply.text)["findings"]
        assert kept == json.loads(full.text)["findings"][: len(kept)]


def test_the_most_severe_findings_are_kept():
    positions = [
        Position(f"Topic {number}", severity, "Zebras graze.")
        for number, severity in enumerate(("info", "warn", "critical"))
    ]
    full = answer(playbook(*positions), document("Nothing of that."))
    less = answer(playbook(*positions), document("Nothing of that."), max_tokens=full.usage.output_tokens - 1)

    assert [one["severity"] for one in json.loads(less.text)["findings"]] == ["critical", "warn"]
    assert (full.stop_reason, less.stop_reason) == ("end_turn", "max_tokens")
    assert answer(playbook(*positions), document("x"), max_tokens=0).text == ""
    assert answer(playbook(*positions), document("x"), max_tokens=1).text == "{}"


def test_the_same_request_has_the_same_answer():
    sent = request(
        playbook(*POSITIONS),
        document("\n\n".join(case.document for case in clauses.CASES)),
        response_schema={"type": "object"},
    )
    reply = OfflineProvider().stream(sent, ignore)

    assert OfflineProvider().stream(sent, ignore) == reply
    assert reply.stop_reason == "end_turn"
    assert json.loads(reply.text)["findings"]


def test_an_answer_describes_the_analyst_and_counts_verdicts():
    result = analysis(playbook(clauses.PAYMENT, clauses.LAW), document(clauses.CASES[3].document))

    assert result["analyst"]["name"] == "offline"
    assert "not a language model" in result["analyst"]["what_it_is"]
    assert result["analyst"]["verdicts"] == {"fallback": 1, "missing": 1}
    assert result["suggested_precedents"] == []


def test_a_deviation_suggests_a_precedent_that_recurs():
    clause = "Customer shall pay undisputed invoices within {} days of receipt."
    first, second = (analysis(playbook(clauses.PAYMENT), document(clause.format(days))) for days in (60, 90))

    assert first["suggested_precedents"] == second["suggested_precedents"]
    assert first["suggested_precedents"] == [
        {"pattern_kind": "playbook_deviation", "summary": "Payment terms: deviates from the standard"}
    ]


@every_row(
    ("parts", "note"),
    [
        ((), "No document"),
        (("Hello",), "No document"),
        ((document("x"),), "No playbook"),
        ((playbook(clauses.LAW),), "No document"),
        ((document("x"), skill("Be careful.")), "no checkable rule"),
    ],
)
def test_an_analysis_without_document_or_rules_says_so(parts, note):
    result = analysis(*parts)

    assert result["findings"] == result["suggested_memories"] == result["scope_concerns"] == []
    assert any(note in said for said in result["analyst"]["notes"])


@every_row(
    ("text", "title"),
    [
        ("", "Empty document"),
        (" \n\t", "Empty document"),
        (
            "Der Mieter zahlt die Miete monatlich im Voraus und hinterlegt eine Kaution von drei Monatsmieten.",
            "Document not in English",
        ),
        ("本合同适用中国法律。双方应当遵守保密义务。", "Document not in English"),
    ],
)
def test_an_unreadable_document_is_undecided(text, title):
    result = analysis(playbook(clauses.DEPOSIT, clauses.LAW), document(text))

    assert [(one["title"], one["verdict"]) for one in result["findings"]] == [(title, "undecided")]


LOG = """2026-03-01T02:11:04Z ERROR checkout-7f9 payment gateway timeout after 30000ms order=8812 retry=3
2026-03-01T02:11:05Z WARN checkout-7f9 circuit breaker open upstream=payments errors=41
2026-03-01T02:11:09Z INFO db-primary failover started replica=db-2 lag=120ms
"""


@every_row(
    ("text", "is_english"),
    [
        (LOG * 5, True),
        ("Name, Amount, Date\nAlpha, 100, 2026\nBravo, 200, 2026\nCharlie, 300, 2026\n" * 4, True),
        ("SELECT id FROM orders WHERE total > 100 GROUP BY region HAVING count > 5 LIMIT 20", True),
        ("Le contrat est régi par le droit français et les parties se soumettent aux tribunaux de Paris.", False),
        ("El contrato se rige por la ley de España y las partes se someten a los tribunales de Madrid.", False),
        ("Umowa jest regulowana przez prawo polskie oraz nie może być zmieniona bez zgody obu stron na piśmie.", False),
        (
            "Perjanjian ini tunduk pada hukum Indonesia dan para pihak sepakat untuk tidak mengubahnya dengan lisan.",
            False,
        ),
        ("本合同适用中国法律。双方应当遵守保密义务。" * 8, False),
    ],
)
def test_logs_and_tables_count_as_english_and_other_languages_do_not(text, is_english):
    assert looks_english(words_of(text)) == is_english


def test_phrases_are_found_in_any_language():
    position = Position("Recht", "warn", must_contain=("deutsches Recht",), must_not_contain=("中国法律",))

    (found,) = (
        one
        for one in analysis(playbook(position), document("本合同适用中国法律。双方应当遵守。"))["findings"]
        if one["quote"]
    )
    assert found["quote"] == "本合同适用中国法律。"


def test_a_truncated_document_is_reported():
    result = analysis(
        playbook(clauses.LAW), f"<<<document {NONCE}>>>\nThis Agreement is governed by the laws of Portugal."
    )

    assert [(one["title"], one["document_id"]) for one in result["findings"]] == [("Document cut off", "document-1")]


def test_markings_of_privilege_are_quoted():
    stamp = "PRIVILEGED & CONFIDENTIAL"
    text = f"{stamp}\nAttorney-client communication.\nEach party keeps confidential information secret.\n{stamp}\n"

    assert analysis(playbook(clauses.LAW), document(text))["privilege_concerns"] == [
        "PRIVILEGED & CONFIDENTIAL",
        "Attorney-client communication",
    ]


def test_markings_of_privilege_are_found_when_there_is_only_a_goal():
    goal = render_block("goal", "Write a letter.", nonce=NONCE)
    result = analysis(goal, document("Without prejudice."))

    assert [one["title"] for one in result["findings"]] == ["The goal was not worked towards"]
    assert result["privilege_concerns"] == ["Without prejudice"]


def test_several_documents_and_parts_of_messages():
    parts = [{"type": "text", "text": playbook(clauses.LAW)}, {"type": "image"}, document("Nothing.", "a"), None, 5]
    messages = (
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": parts},
        {"role": "user", "content": document("Nothing.", "b")},
        {"role": "user"},
    )
    reply = OfflineProvider().stream(ModelRequest("offline", messages, max_tokens=5_000), ignore)

    assert [one["document_id"] for one in json.loads(reply.text)["findings"]] == ["a", "b"]


def test_embeddings_are_refused():
    with pytest.raises(ProviderError, match="no embeddings") as failed:
        answer("text", purpose=Purpose.EMBEDDING)

    assert not failed.value.contacted


def paragraphs(size, seed=5):
    """Seeded text of about the given size, on the topics of the positions."""
    drawn, found, length = random.Random(seed), [], 0
    while length < size:
        words = drawn.choices(drawn.choice(clauses.CASES).document.split(), k=14)
        found.append(" ".join(words) + drawn.choice([". ", ".\n\n"]))
        length += len(found[-1])
    return "".join(found)[:size]


@pytest.mark.parametrize("size", [60_000, pytest.param(1_000_000, marks=pytest.mark.stress)])
def test_a_megabyte_takes_seconds_and_linear_time(size):
    thirty = playbook(*(POSITIONS * 2)[:30])

    def read(sent):
        OfflineProvider().stream(sent, ignore)

    def make(size):
        return request(thirty, document(paragraphs(size)))

    assert takes_at_most(5, lambda: read(make(size)))
    assert not grows_too_fast(read, make, size // 10)


@every_row("piece", ["\n", ". ", "a-\n", "((", "pay within 30 days ", "Yes? No\n", "one ", "中"])
def test_repetitive_texts_take_no_longer(piece):
    sent = request(playbook(*POSITIONS), document(piece * (12_000 // len(piece))))
    assert takes_at_most(0.36, lambda: OfflineProvider().stream(sent, ignore))
