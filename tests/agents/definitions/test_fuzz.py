"""Reading any file gives a definition or a list of errors, and no other exception."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agents.definitions.loader import read_definition
from agents.definitions.schema import (
    AgentKeys,
    Autonomy,
    DefinitionError,
    FieldSpec,
    SensorSpec,
    Signal,
    Source,
    TriggerSpec,
)
from tests.effort import takes_at_most

KEYS = sorted({key for model in (AgentKeys, Autonomy, FieldSpec, SensorSpec, Signal, Source, TriggerSpec)
               for key in model.model_fields} | {"fields", "start", "end", "[key]", "x"})  # fmt: skip
WORDS = [
    "",
    "on",
    "22:00",
    "010",
    "poll",
    "watch",
    "schedule",
    "array",
    "0 6 * * 1",
    "UTC",
    "http://a",
    "a.b[0]",
    "\ud800",
]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.sampled_from(WORDS), st.dates()
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=25,
)
definitions = st.dictionaries(st.sampled_from(sorted(AgentKeys.model_fields)), values, max_size=8)


def read(text):
    try:
        said = [read_definition(text).model_dump(mode="json")]
    except DefinitionError as refusal:
        said = [problem.to_json() for problem in refusal.problems if problem.expected]
    assert json.dumps(said, allow_nan=False) != "[]"


@pytest.mark.long
@given(definitions)
def test_any_values_are_read_or_refused(given_values):
    read(yaml.safe_dump(given_values, allow_unicode=True))


@given(values)
def test_any_yaml_is_read_or_refused(value):
    read(yaml.safe_dump(value))


@given(st.text(alphabet=st.sampled_from("ab:- \n\t[]{}\"'&*!|>%@#?,0.\\\u2028\ufeff\x00"), max_size=60))
def test_any_text(text):
    read(text)


@given(st.text(alphabet="0123456789.:_-+eExXoO~nulltrueyesoff", max_size=12))
def test_any_plain_word_is_read_or_refused(word):
    read(f"name: {word}")
    read(f"enabled: {word}")
    read(f"max_cost_usd: {word}")
    read(f"autonomy: {{idle_timeout: {word}, active_hours: {{start: {word}}}}}")
    read(f"hot_state: {{fields: {{a: {{type: array, refresh_tool: t, refresh_params: {{a: {word}}}}}}}}}")


def test_largest_file_is_read_in_bounded_time():
    many = ", ".join(f"k{number}: {number}" for number in range(4_900))
    fields = f"hot_state: {{fields: {{a: {{type: array, refresh_tool: t, refresh_params: {{{many}}}}}}}}}"
    assert takes_at_most(4, lambda: read(fields))
    assert takes_at_most(1, lambda: read("instructions: |\n" + "  words and words\n" * 3_000))
