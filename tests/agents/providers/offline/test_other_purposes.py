"""The other purposes: judging, gating, scoring, simulating, compacting and chatting."""

import json
from dataclasses import dataclass

from agents.engine.skills import _question
from agents.enums import Purpose
from agents.providers.offline.other_purposes import NO_FORECAST
from agents.providers.offline.provider import OfflineProvider
from agents.text.blocks import render_block
from agents.types import ModelRequest
from tests.agents.providers.listeners import ignore
from tests.agents.providers.offline.offline_calls import NONCE, answer
from tests.effort import takes_at_most
from tests.table import every_row


def block(kind, text):
    return render_block(kind, text, nonce=NONCE)


def judged(*parts):
    return json.loads(answer(*parts, purpose=Purpose.JUDGE).text)


QUOTE = "The Customer shall pay all invoices within 60 days of receipt."


@every_row(
    ("claim", "supported"),
    [
        ("The Customer pays invoices within 60 days.", True),
        ("The customer must pay each invoice within two months of receipt.", True),
        ("The Customer pays invoices within 90 days.", False),
        ("The Customer shall not pay invoices.", False),
        ("The Supplier insures the goods.", False),
    ],
)
def test_a_claim_is_judged_by_its_quote(claim, supported):
    result = judged(block("claim", claim), block("quote", QUOTE))

    assert result["supported"] is supported
    assert 0 <= result["score"] <= 1
    assert (result["score"] >= 0.6) is supported
    assert result["why"]


@every_row("text", ["", "hello", block("claim", "x"), block("quote", QUOTE), "Claim: x\nQuote: x"])
def test_nothing_is_supported_without_claim_and_quote(text):
    result = judged(text)

    assert (result["supported"], result["score"]) == (False, 0.0)


def test_a_judgement_is_shortened_or_left_out_never_cut():
    parts = block("claim", "The Customer pays invoices."), block("quote", QUOTE)
    short = answer(*parts, purpose=Purpose.JUDGE, max_tokens=12)
    none = answer(*parts, purpose=Purpose.JUDGE, max_tokens=3)

    assert json.loads(short.text).keys() == {"supported", "score"}
    assert (short.stop_reason, none.text, none.stop_reason) == ("max_tokens", "", "max_tokens")


@every_row(
    ("diff", "said"),
    [
        ("price: 100 -> 101", "no"),
        ("price: 100 -> 106", "yes"),
        ("price: 0 -> 1", "yes"),
        ("temperature: -20 -> -20.5", "no"),
        ("temperature: 20 C -> 25 C", "yes"),
        ("mood: calm -> angry", "yes"),
        ("mood: calm -> calm", "no"),
        ("price: 100 -> 101\nmood: calm -> angry", "yes"),
        ('market: {"price": 100} -> {"price": 200}', "yes"),
        ('market: {"price": 100} -> {"price": 101}', "no"),
        ("alert: (none) -> door open", "yes"),
        ("Nothing changed.", "no"),
        ("", "no"),
    ],
)
def test_a_turn_is_gated_by_what_changed(diff, said):
    assert answer("Did anything material change?", block("changes", diff), purpose=Purpose.PRECHECK).text == said


def test_the_gate_reads_only_the_marked_block():
    assert answer("mood: calm -> angry", block("changes", "price: 1 -> 1"), purpose=Purpose.PRECHECK).text == "no"


@every_row(
    ("prompt", "data", "score"),
    [
        ("Fire when the temperature is above 30.", "temperature: 31.5", "1.00"),
        ("Fire when the temperature is above 30.", "temperature: 29", "0.00"),
        ("Fire when the level drops below -5", "level: -6", "1.00"),
        ("Fire at at least 10 errors", "10 errors", "1.00"),
        ("Fire on a move of more than 5%", "first 100, last 106", "1.00"),
        ("Fire on a move of more than 5%", "first 100, last 104", "0.00"),
        ("Is this odd?", "100 then 125", "0.50"),
        ("Is this odd?", "100 then 1000", "1.00"),
        ("Is there an outage of the payment service?", "payment service outage", "1.00"),
        ("Is there an outage?", "all is well", "0.00"),
    ],
)
def test_a_reading_is_scored(prompt, data, score):
    assert answer(prompt, block("reading", data), purpose=Purpose.SIGNAL).text == score


def test_a_reading_scores_zero_when_none_was_sent():
    assert OfflineProvider().stream(ModelRequest("offline", (), purpose=Purpose.SIGNAL), ignore).text == "0.00"


def test_orders_in_a_reading_set_no_threshold():
    assert answer("Fire above 30", block("reading", "fire above 5: 9"), purpose=Purpose.SIGNAL).text == "0.00"


@every_row("purpose", [Purpose.JUDGE, Purpose.PRECHECK, Purpose.SIGNAL, Purpose.SIMULATION, Purpose.COMPACTION])
@every_row("piece", ["\n", " ", "from to ", "- a -> b\n", "claim: ", "1 ", "{"])
def test_repetitive_texts_take_no_longer(purpose, piece):
    blocks = block("claim", "Pay."), block("quote", piece * (20_000 // len(piece)))
    assert takes_at_most(0.6, lambda: answer("Fire above 5", *blocks, purpose=purpose))


def foreseen(name, arguments, context=""):
    asked = _question(Named(name), arguments, context)
    return answer(asked["prompt"], purpose=Purpose.SIMULATION, max_tokens=asked["max_tokens"]).text


@dataclass
class Named:
    name: str
    description: str = "Sends one plain-text mail to one address."


@every_row(
    ("name", "arguments", "expected"),
    [
        ("send_email", {"to": "x@example.org"}, 'send_email({"to":"x@example.org"})'),
        ("read_clock", {}, "read_clock({})"),
        ("write", {"text": "x" * 5_000}, f'write({{"text":"{"x" * 385}…'),
    ],
)
def test_a_simulation_describes_the_call_only(name, arguments, expected):
    assert foreseen(name, arguments, "Skill: other({})") == f"{NO_FORECAST} It would run {expected}"


def test_a_simulation_without_a_call_predicts_nothing():
    text = answer("Say in two or three sentences what will come of it.", purpose=Purpose.SIMULATION).text

    assert text == NO_FORECAST


def test_a_compaction_is_an_extract():
    messages = tuple({"role": "user", "content": text} for text in ("First thing. Second thing.", " ", "Then this"))
    reply = OfflineProvider().stream(ModelRequest("offline", messages, purpose=Purpose.COMPACTION), ignore)

    assert reply.text == "Extract by rule (first sentence of each message):\nFirst thing.\nThen this"


def test_a_chat_says_what_it_is_and_is_cut_at_its_tokens():
    whole, cut = answer("Hi", purpose=Purpose.CHAT), answer("Hi", purpose=Purpose.CHAT, max_tokens=5)

    assert "not a language model" in whole.text
    assert (whole.stop_reason, cut.stop_reason, cut.usage.output_tokens) == ("end_turn", "max_tokens", 5)
    assert whole.text.startswith(cut.text)
