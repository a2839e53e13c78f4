"""R6: what each phase may do."""

from dataclasses import FrozenInstanceError

import pytest

from agents.enums import Phase, ToolIntent
from agents.policy.brakes import PHASE_GRANTS, NotGranted, contextual
from tests.table import every_row

GRANTED = {
    "intake": {"retrieve_chunks"},
    "analysis": {"retrieve_chunks", "run_skill", "run_playbook", "propose_precedent"},
    "drafting": {"run_skill", "emit_finding", "propose_memory", "propose_precedent", "emit_artifact"},
    "ethics_review": {"emit_finding"},
    "delivery": {"notify"},
    "turn": {
        "retrieve_chunks",
        "run_skill",
        "run_playbook",
        "emit_finding",
        "propose_memory",
        "propose_precedent",
        "notify",
    },
}


def test_every_phase_has_a_key_and_there_is_no_other():
    assert set(PHASE_GRANTS) == set(Phase.values)


@every_row("phase", GRANTED)
def test_membership_is_exact(phase):
    assert {intent.value for intent in PHASE_GRANTS[phase]} == GRANTED[phase]


@every_row("phase", GRANTED)
@every_row("intent", ToolIntent)
def test_the_brake_refuses_exactly_what_is_not_granted(phase, intent):
    refused = None if intent.value in GRANTED[phase] else NotGranted(intent, phase)
    assert contextual(intent, phase) == refused


@every_row("phase", ["", "INTAKE", "intake ", "review", "None"])
@every_row("intent", ToolIntent)
def test_an_unknown_phase_grants_nothing(phase, intent):
    assert contextual(intent, phase) == NotGranted(intent, phase)


def test_an_unknown_intent_is_granted_nowhere():
    assert all(contextual("delete_project", phase) == NotGranted("delete_project", phase) for phase in Phase)


def test_the_map_cannot_be_changed():
    with pytest.raises(TypeError):
        PHASE_GRANTS["delivery"] = frozenset(ToolIntent)
    with pytest.raises(TypeError):
        del PHASE_GRANTS["delivery"]
    with pytest.raises(AttributeError):
        PHASE_GRANTS.clear()


@every_row("phase", Phase)
def test_the_grants_of_a_phase_cannot_be_changed(phase):
    with pytest.raises(AttributeError):
        PHASE_GRANTS[phase].add(ToolIntent.NOTIFY)


def test_a_verdict_cannot_be_changed():
    verdict = contextual(ToolIntent.NOTIFY, Phase.INTAKE)
    with pytest.raises(FrozenInstanceError):
        verdict.phase = Phase.DELIVERY
