"""The tolerant parser: what it takes over, what it drops, and that nothing makes it raise or crawl."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.walk import parsing
from agents.walk.parsing import (
    Analysis,
    ParsedArtifact,
    ParsedFinding,
    ParsedPrecedent,
    parse_analysis,
    parse_judgement,
)
from tests.effort import takes_at_most

WHOLE = {
    "findings": [
        {"title": "Late payment", "severity": "Critical", "content": "60 days", "document_id": "d1",
         "quote": " within 60 days ", "start": 12, "end": 28, "position": "Payment", "verdict": "deviates"}
    ],
    "suggested_memories": [{"content": "Pays late"}],
    "suggested_precedents": [{"pattern_kind": "late", "summary": "Late again"}],
    "privilege_concerns": ["marked privileged"],
    "scope_concerns": [{"concern": "beyond the playbook"}],
    "artifacts": [{"name": "letter", "content": "# Dear"}],
    "analyst": {"notes": ["one rule was not understood"]},
}  # fmt: skip
PARSED = Analysis(
    findings=(ParsedFinding("Late payment", "critical", "60 days", "d1", " within 60 days ", 12, "Payment"),),
    memories=("Pays late",),
    precedents=(ParsedPrecedent("late", "Late again"),),
    artifacts=(ParsedArtifact("letter", "# Dear"),),
    privilege_concerns=("marked privileged",),
    scope_concerns=("beyond the playbook",),
    notes=("one rule was not understood",),
)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(WHOLE),
        f"  \n{json.dumps(WHOLE, indent=2)}\n",
        f"Here it is:\n```json\n{json.dumps(WHOLE)}\n```\nAnything else?",
        f"```\n{json.dumps(WHOLE)}```",
        f'A {{brace}} and then {{"other": 1}} and {json.dumps(WHOLE)} and more',
        f"{{ unclosed {json.dumps(WHOLE)}",
    ],
)
def test_the_same_analysis_is_read_from_every_form(text):
    assert parse_analysis(text) == PARSED


def test_fences_inside_of_a_text_do_not_hide_the_whole():
    draft = 'See:\n```json\n{"findings": []}\n```\n'
    read = parse_analysis(json.dumps({"findings": [], "artifacts": [{"name": "a", "content": draft}]}))
    assert read.artifacts == (ParsedArtifact("a", draft),)


@pytest.mark.parametrize("text", ["plain words", '{"error": "no"}', "[1, 2]", '"findings"', '{"findings": [', "null"])
def test_what_has_no_structure_is_kept_as_it_is(text):
    read = parse_analysis(text)
    assert (read.raw, read.is_structured, read.findings) == (text, False, ())


def test_raw_text_is_cut():
    cut = parse_analysis("x" * 20_000)
    assert (len(cut.raw), cut.left_out) == (8_000, 12_000)


def test_an_empty_reply_has_no_structure():
    assert not parse_analysis(" \n").is_structured


def test_items_without_a_text_are_dropped_and_counted():
    read = parse_analysis(json.dumps({name: ["text", 3, None, [{}], True, {}] for name in parsing.ITEMS}))
    assert [one.content for one in read.findings] == ["text"]
    assert read.memories == ("text",)
    assert read.precedents == (ParsedPrecedent("pattern", "text"),)
    assert read.artifacts == (ParsedArtifact("draft", "text"),)
    assert read.privilege_concerns == read.scope_concerns == ("text",)
    assert read.dropped == {
        "findings": 5, "suggested_memories": 5, "suggested_precedents": 5, "artifacts": 5,
        "privilege_concerns": 5, "scope_concerns": 5,
    }  # fmt: skip


@pytest.mark.parametrize("item", [{}, {"reason": "advice of counsel"}, ["advice of counsel"], True, None])
@pytest.mark.parametrize("name", ["privilege_concerns", "scope_concerns"])
def test_concern_that_cannot_be_read_is_no_verdict(name, item):
    told = {"findings": [], "privilege_concerns": [], "scope_concerns": []}
    assert parse_analysis(json.dumps(told)).has_verdict
    assert parse_analysis(json.dumps({**told, name: ["", "  "]})).has_verdict
    assert not parse_analysis(json.dumps({**told, name: [item]})).has_verdict
    assert not parse_analysis(json.dumps({**told, name: ["a concern", item]})).has_verdict


def test_name_that_stands_twice_with_different_values_has_no_structure():
    concerns = '"privilege_concerns": ["advice of counsel"], "scope_concerns": []'
    assert parse_analysis(f'{{"findings": [], {concerns}, "privilege_concerns": []}}').raw
    assert parse_analysis(f'{{"findings": [], {concerns}, "scope_concerns": []}}').is_structured


@pytest.mark.parametrize(
    ("seen", "read"), [([], ()), (["Law", "Law"], ("Law",)), ("Law", ("Law",)), (None, None), (3, None)]
)
def test_what_a_section_deals_with_is_known_only_if_the_answer_says_so(seen, read):
    assert parse_analysis(json.dumps({"findings": [], "seen": seen})).seen == read
    assert parse_analysis(json.dumps({"findings": []})).seen is None


def test_other_names_of_the_same_thing_are_read():
    read = parse_analysis(
        json.dumps(
            {
                "findings": [{"issue": "Late", "description": "Due in May", "document": "7"}],
                "suggested_precedents": [{"kind": "late", "description": "Again"}],
                "scope_concerns": [{"title": "Beyond the order"}],
            }
        )
    )
    assert read.findings == (ParsedFinding("Late", "info", "Due in May", "7", position="Late"),)
    assert read.precedents == (ParsedPrecedent("late", "Again"),)
    assert read.scope_concerns == ("Beyond the order",)


def test_odd_values_are_read_for_what_they_are_worth():
    told = """{"findings": {"title": 7, "severity": ["x"], "content": true, "quote": 5, "start": -4},
               "suggested_memories": "a text", "suggested_precedents": [{"summary": "s"}], "scope_concerns": null}"""
    read = parse_analysis(told)
    assert read.findings == (ParsedFinding("7", "info", ""),)
    assert read.memories == ("a text",)
    assert read.precedents == (ParsedPrecedent("pattern", "s"),)


@pytest.mark.parametrize("start", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000, '"12"', "null"])
def test_an_offset_that_is_none_is_zero(start):
    [finding] = parse_analysis(f'{{"findings": [{{"title": "t", "start": {start}}}]}}').findings
    assert finding.start == 0


def test_a_number_that_is_none_says_nothing():
    assert parse_analysis('{"findings": [{"title": 1e999, "content": "c"}]}').findings[0].title == "(untitled)"


def test_repeated_items_count_once():
    twice = {
        "findings": [],
        "suggested_precedents": [{"pattern_kind": "k", "summary": "s"}] * 2,
        "suggested_memories": [],
    }
    read = parse_analysis(json.dumps(twice))
    assert read.precedents == (ParsedPrecedent("k", "s"),)
    assert read.dropped == {"suggested_precedents": 1}


def test_numbers_and_lengths_are_bounded():
    many = {
        "findings": [{"title": f"{n}" * 400, "content": "c" * 30_000, "quote": "q" * 9_000} for n in range(150)],
        "suggested_memories": [{"content": f"{n}"} for n in range(50)],
        "suggested_precedents": [{"summary": f"{n}"} for n in range(50)],
        "privilege_concerns": [f"{n}" for n in range(80)],
        "artifacts": [{"name": f"{n}", "content": "c" * 1_000_100} for n in range(9)],
        "analyst": {"notes": [f"{n}" for n in range(80)]},
    }
    read = parse_analysis(json.dumps(many))
    counts = (len(read.findings), len(read.memories), len(read.precedents), len(read.concerns), len(read.artifacts))
    assert (*counts, len(read.notes)) == (100, 20, 20, 50, 5, 50)
    assert read.dropped["findings"] == 50
    one = read.findings[0]
    content, note = one.content.split("\n\n")
    assert (len(one.title), len(content), len(one.quote)) == (300, 20_000, 8_000)
    assert note == "The quote has 9,000 characters; the first 8,000 are kept."
    assert len(read.artifacts[0].content) == 1_000_001  # one more than may be saved, so that the cut is noticed


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{" * 1_000_000,
        '{"a":' * 200_000,
        '{"findings":[' * 80_000,
        '{"' + "a" * 1_000_000,
        '{"findings": "' * 70_000,
        "```" * 330_000,
        "```json\n{" * 100_000,
        "\\" * 1_000_000,
        '"' * 1_000_000,
        f'{{"findings": [{"{}," * 300_000}{{}}]}}',
        " " * 1_000_000 + "{",
    ],
)
def test_a_megabyte_of_anything_is_read_in_linear_time(text):
    assert takes_at_most(1, lambda: parse_analysis(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
ITEM = st.dictionaries(
    st.sampled_from(["title", "severity", "content", "quote", "start", "summary", "pattern_kind", "name", "concern"]),
    JSON,
    max_size=5,
)
REPLY = st.dictionaries(st.sampled_from([*parsing.ITEMS, "analyst"]), JSON | st.lists(ITEM | JSON, max_size=5))
NOISE = st.text(st.characters(), max_size=60) | st.text('{}[]"`:,\\ \n\x00\ud800eN19-', max_size=80)


def is_well_formed(read):
    texts = [read.raw, *read.memories, *read.concerns, *read.notes]
    texts += [value for one in read.findings for value in (one.title, one.severity, one.content, one.quote)]
    texts += [value for one in read.precedents for value in (one.pattern_kind, one.summary)]
    return all(isinstance(value, str) for value in texts) and all(0 <= one.start <= 10**9 for one in read.findings)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(NOISE, REPLY.map(json.dumps), st.tuples(NOISE, REPLY.map(json.dumps), NOISE).map("".join)))
def test_nothing_makes_it_raise(text):
    assert is_well_formed(parse_analysis(text))
    assert parse_judgement(text) in {True, False, None}


@given(REPLY.filter(bool), st.data())
def test_a_reply_that_is_cut_anywhere_is_still_read(reply, data):
    text = json.dumps(reply)
    assert is_well_formed(parse_analysis(text[: data.draw(st.integers(0, len(text)))]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"supported": true, "score": 1.0}', True),
        ('```json\n{"supported": false}\n```', False),
        ('{"supported": "yes"}', True),
        ('{"supported": "no, it is not"}', False),
        ('{"supported": null}', None),
        ('{"supported": []}', None),
        ('{"other": 1} yes', None),
        ("Yes, the quote says so.", True),
        ("**No.**", False),
        ("Not supported.", False),
        ("unsupported", False),
        ("It depends.", None),
        ("", None),
    ],
)
def test_a_judgement_is_yes_no_or_nothing(text, said):
    assert parse_judgement(text) is said
