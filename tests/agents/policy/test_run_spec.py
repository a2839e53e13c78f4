"""What a run is to do: kept as JSON and read back, laid over a trigger's, and told to every surface."""

from decimal import Decimal
from types import SimpleNamespace

import pytest

from agents.models import Trigger
from agents.policy.run_spec import OPTION_NAMES, OPTIONS, RunSpec
from tests.table import every_row

WHOLE = RunSpec(
    skill="nda-review",
    goal="Find it",
    document="d",
    collection="c",
    query="fees",
    event="e",
    since="2030-01-01T00:00:00+00:00",
    until="2030-01-02T00:00:00+00:00",
    put_off=3,
    emit_artifacts=True,
    review_flagged=True,
    judge_citations=True,
    analysis_mode="agentic",
    loop={"max_steps": 4},
    guardrails={"reserve_tokens": 1},
)


def test_spec_is_read_back_as_it_was_kept():
    assert RunSpec.from_params(WHOLE.to_params()) == WHOLE


def test_what_was_not_said_is_not_kept():
    assert RunSpec().to_params() == {}
    assert RunSpec(baseline=True, query="fees").to_params() == {"baseline": True, "query": "fees"}


def test_event_is_kept_by_its_id():
    assert RunSpec(event="e").to_params() == {"event": {"id": "e"}}


def test_cap_is_kept_by_the_session_and_not_here():
    assert RunSpec(max_cost_usd=Decimal(1)).to_params() == {}


@every_row(
    "params",
    [
        {"query": 7, "document": None, "emit_artifacts": "yes", "put_off": True, "loop": [1], "event": "e-1"},
        {"event": {"id": 7}, "baseline": 1, "analysis_mode": ["agentic"]},
        {"message": "hello", "chat": "c", "day": "2030-01-01"},
    ],
)
def test_value_of_the_wrong_type_counts_as_not_said(params):
    read = RunSpec.from_params(params)
    assert read == (RunSpec(event="e-1") if params.get("event") == "e-1" else RunSpec())


def test_rows_are_named_by_public_id_and_a_skill_by_name():
    row = SimpleNamespace(public_id="p-1", name="a name")
    assert RunSpec.of(playbook=row, skill=None, query="q") == RunSpec(playbook="p-1", query="q")
    assert RunSpec.of(skill=row) == RunSpec(skill="a name")


def test_what_is_said_goes_before_what_the_trigger_says():
    trigger = RunSpec(playbook="p", query="old", review_flagged=True, max_cost_usd=Decimal(5))
    asked = RunSpec(query="new", analysis_mode="single", max_cost_usd=Decimal(0))
    assert asked.over(trigger) == RunSpec(
        playbook="p", query="new", review_flagged=True, analysis_mode="single", max_cost_usd=Decimal(0)
    )


@pytest.mark.parametrize("option", OPTIONS, ids=OPTION_NAMES)
def test_every_option_has_a_column_of_triggers_and_says_what_it_does(option):
    assert Trigger._meta.get_field(option.name)
    assert option.metadata["help"].endswith(".")
    assert option.metadata["label"]
