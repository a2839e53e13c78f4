"""Which calls need a person, and what exactly a person consents to."""

import hashlib
import json
import unicodedata
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.enums import ApprovalMode, Level, Risk, ToolIntent
from agents.policy.consent import call_digest, free_values_are_harmless, named_arguments, needs_person, reshaped
from agents.types import Capability
from tests.table import every_row

ASKS = {
    "auto": {"PRIVILEGED"},
    "semi": {"RESTRICTED", "PRIVILEGED"},
    "manual": {"CONTROLLED", "RESTRICTED", "PRIVILEGED"},
}
TABLE = list(product(ApprovalMode, Level))


# --- who is asked ---


@every_row(("mode", "level"), TABLE)
def test_mode_and_level_decide(mode, level):
    assert needs_person(Capability("tool", level=level), mode=mode) is (level.value in ASKS[mode.value])


@every_row(("mode", "level"), TABLE)
def test_a_tool_that_requires_approval_always_asks(mode, level):
    assert needs_person(Capability("tool", level=level, requires_approval=True), mode=mode)
    assert needs_person(Capability("tool", level=level, requires_approval=True), mode=mode, allow_high_risk=True)


@every_row(("mode", "level"), TABLE)
def test_high_risk_always_asks(mode, level):
    assert needs_person(Capability("tool", level=level), mode=mode, risk=Risk.HIGH)


@every_row(("mode", "level"), TABLE)
def test_waived_high_risk_falls_back_to_mode_and_level(mode, level):
    asks = needs_person(Capability("tool", level=level), mode=mode, risk=Risk.HIGH, allow_high_risk=True)
    assert asks is (level.value in ASKS[mode.value])


@every_row(("mode", "level"), TABLE)
def test_privileged_is_waived_for_one_skill_and_in_mode_auto_alone(mode, level):
    asks = [needs_person(Capability(name, level=level), mode=mode, waived_skills=["pay"]) for name in ("pay", "other")]
    asked = level.value in ASKS[mode.value]
    assert asks == [asked and mode != ApprovalMode.AUTO, asked]
    assert needs_person(Capability("pay", level=level, requires_approval=True), mode=mode, waived_skills=["pay"])
    assert needs_person(Capability("pay", level=level), mode=mode, risk=Risk.HIGH, waived_skills=["pay"])


@every_row("risk", [None, Risk.LOW, Risk.MEDIUM])
@every_row(("mode", "level"), TABLE)
def test_lower_risk_changes_nothing(mode, level, risk):
    assert needs_person(Capability("tool", level=level), mode=mode, risk=risk) is (level.value in ASKS[mode.value])


@every_row("mode", ["", "AUTO", "none", "automatic"])
def test_an_unknown_mode_is_no_consent(mode):
    with pytest.raises(ValueError, match="is not a valid ApprovalMode"):
        needs_person(Capability("tool", level=Level.SAFE), mode=mode)


def test_a_tool_that_declares_nothing_is_controlled():
    assert Capability("tool").level == Level.CONTROLLED
    assert not Capability("tool").repeatable


@every_row(
    ("side_effects", "idempotent", "repeatable"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
def test_what_changes_nothing_or_takes_a_key_may_be_sent_again(side_effects, idempotent, repeatable):
    assert Capability("tool", side_effects=side_effects, idempotent=idempotent).repeatable is repeatable


# --- what is consented to ---

CALL = {
    "session_id": "0b6ffcc5",
    "key": "analysis/3",
    "intent": ToolIntent.RUN_SKILL,
    "name": "send_letter",
    "version": "1",
    "phase": "analysis",
    "arguments": {"to": "Ada", "pages": [1, 2], "urgent": False},
}
LABELS = [name for name in CALL if name != "arguments"]

words = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(words, values, max_size=3)
calls = st.fixed_dictionaries({**dict.fromkeys(LABELS, words), "arguments": arguments})


@given(calls, calls)
def test_the_digest_changes_with_every_change_of_a_field(call, other):
    digest = call_digest(**call)
    for field in CALL:  # 150 x 7: a thousand mutations
        changed = other[field]
        if json.dumps(changed, sort_keys=True) == json.dumps(call[field], sort_keys=True):
            changed = {**changed, "": "changed"} if field == "arguments" else f"{changed}+"
        assert call_digest(**{**call, field: changed}) != digest


@settings(max_examples=50, deadline=None)
@given(calls, st.randoms(use_true_random=False))
def test_the_digest_does_not_depend_on_the_order_of_keys_or_on_storage(call, random):
    shuffled = list(call["arguments"].items())
    random.shuffle(shuffled)
    stored = json.loads(json.dumps(dict(shuffled)))
    assert call_digest(**{**call, "arguments": stored}) == call_digest(**call)


@every_row(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": None}, {}),
        ({"a": ""}, {"a": None}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": None}}),
        ({"to": "Ada"}, {"to": "Ada "}),
        ({"to": "é"}, {"to": unicodedata.normalize("NFD", "é")}),
        ({"to": "paypal"}, {"to": "p\u0430ypal"}),
        ({"to": "Ada\u200b"}, {"to": "Ada"}),
        ({"to": "\ufb01"}, {"to": "fi"}),
    ],
)
def test_arguments_that_look_alike_are_other_arguments(one, other):
    assert call_digest(**{**CALL, "arguments": one}) != call_digest(**{**CALL, "arguments": other})


def test_text_cannot_move_from_one_field_to_the_next():
    moved = {**CALL, "name": "send_", "version": "letter1"}
    assert call_digest(**moved) != call_digest(**CALL)


def test_the_digest_can_be_computed_again_by_anybody():
    text = (
        '{"arguments":{"pages":[1,2],"to":"\\u00c9va","urgent":false},"intent":"run_skill","key":"analysis/3",'
        '"name":"send_letter","phase":"analysis","session":"0b6ffcc5","version":"1"}'
    )
    call = {**CALL, "arguments": {"to": "Éva", "pages": (1, 2), "urgent": False}}
    assert call_digest(**call) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_arguments_that_json_cannot_hold_have_no_digest(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        call_digest(**{**CALL, "arguments": {"amount": number}})


def test_the_signature_is_the_digest_without_the_place_in_the_run():
    signature = {**CALL, "key": ""}
    assert call_digest(**signature) != call_digest(**CALL)
    assert call_digest(**{**CALL, "key": "analysis/4"}) != call_digest(**CALL)


# --- what may be left free ---


@every_row(
    "address",
    [
        "https://evil.example/?q=1",
        "HTTP://EVIL",
        "ftp://10.0.0.1",
        "//evil/path",
        "\\\\server\\share",
        "evil.example",
        "send it to EVIL.COM.",
        "sub.domain.co.uk/path",
        "xn--e1afmkfd.xn--p1ai",
        "localhost:8000",
        "ada@example",
        "mailto:ada@example.org",
        "10.0.0.1",
        "at 192.168.1.254:80",
        "::1",
        "fe80::1%eth0",
        "[2001:db8::ff00:42:8329]",
        "2001:db8:0:0:0:ff00:42:8329",
        "2001:0DB8:0000:0000:0000:FF00:0042:8329",
        "::ffff:192.0.2.1",
        "\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444",
        "evil.\u0441om",
        "evil\u3002com",
        "\uff45\uff56\uff49\uff4c\uff0e\uff43\uff4f\uff4d",
        "ada\uff20example",
        "bücher.example",
        "line one\nevil.example",
        "evil\u200b.example",
        "evil\u00ad.ex\u2060ample",
        "evil\ufe0f.example",
        "mailto:x",
        "javascript:alert(1)",
        "call tel:+123",
        "2130706433",
        " 2130706433:80 ",
        "017700000001/path",
        "0x7f000001",
        "0x7f.0.0.1",
    ],
)
@every_row("wrap", [lambda text: text, lambda text: ["x", {"y": [text]}], lambda text: {text: 1}])
def test_a_free_value_that_holds_an_address_is_not_harmless(address, wrap):
    assert not free_values_are_harmless({"note": wrap(address)}, ["note"])


@every_row(
    "value",
    [
        "",
        "Clause 4 is missing.",
        "Is it? Yes; no: perhaps, i. e. later",
        "at 12:30:45 on 2026-03-14",
        "3.14",
        "1.2.3",
        "§ 5 (2) a",
        "20260314 is a date",
        "at 2026-03-14T12:30:45",
        "0x1f",
        "grüße",
        "Ünïcödé",
        7,
        1234567,
        1.5,
        None,
        True,
        [],
        ["a", 2, {"b": None}],
        {"a": "b"},
    ],
)
def test_a_free_value_without_an_address_is_harmless(value):
    assert free_values_are_harmless({"note": value}, ["note"])


def test_only_free_arguments_are_looked_at():
    call = {"url": "https://example.org", "note": "hello"}
    assert free_values_are_harmless(call, ["note"])
    assert free_values_are_harmless(call, [])
    assert not free_values_are_harmless(call, ["note", "url"])


def test_a_free_argument_that_is_not_given_is_harmless():
    assert free_values_are_harmless({}, ["note"])


@every_row(
    ("changed", "odd"),
    [
        ({"to": "Eve", "count": 2, "more": {"deep": [2]}, "none": "x"}, ""),
        ({"to": "Ada", "count": 1, "more": {"deep": [1]}}, "none was added, renamed or left out"),
        ({"to": "Ada", "count": True, "more": {"deep": [1]}, "none": None}, "count must stay a whole number"),
        ({"to": "Ada", "count": 1, "more": {"deeper": [1]}, "none": None}, "more.deep, more.deeper was added"),
        ({"to": "Ada", "count": 1, "more": {"deep": "x"}, "none": None}, "more.deep must stay a list"),
        ({"to": "Ada", "count": 1, "more": "x", "none": None}, "more must stay an object"),
    ],
)
def test_an_edit_that_is_more_than_other_values_is_named(changed, odd):
    asked = {"to": "Ada", "count": 1, "more": {"deep": [1]}, "none": None}
    found = reshaped(asked, changed)
    assert found.startswith(odd)
    assert bool(found) == bool(odd)


@pytest.mark.parametrize(
    "arguments", [{"arguments": {"a": 1}}, {"skill": "act", "arguments": "text"}, {"skill": "act"}, {"to": "x"}]
)
def test_arguments_of_what_is_no_call_of_a_skill_are_named_as_they_are(arguments):
    assert named_arguments(arguments) == arguments
    assert named_arguments({"skill": "act", "arguments": {"a": 1}}) == {"a": 1}
