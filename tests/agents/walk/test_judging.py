"""Judges: only verified quotes are shown to them, all of them or one, and their votes stand on the finding."""

import json
from datetime import timedelta
from decimal import Decimal
from unittest.mock import patch

import pytest
from django.test import override_settings

from agents.enums import Purpose, Status, TerminalReason
from agents.models import InferenceLog
from agents.providers.base import ProviderError
from agents.providers.scripted import ScriptedProvider, Step
from agents.sessions import fairness
from agents.walk.walk import walk
from audit.models import AuditEvent
from tests.agents.walk.scene import LEASE, QUOTE, Scene, blocks_of, intents, model, phases, reply, run
from tests.factories import make_price
from tests.serving import serving

pytestmark = pytest.mark.django_db
YES, NO = '{"supported": true, "why": "it does"}', "No."
ROLES = {"main": ["offline"], "judges": ["judge-a", "judge-b", "judge-c"]}


@pytest.fixture
def bench():
    """Three judges: one says yes, one no, one nothing that can be read."""
    for name in ROLES["judges"]:
        make_price(name)
    with (
        override_settings(LQOPS_MODEL_ROLES=ROLES),
        serving("judge-a", ScriptedProvider([Step(YES)])) as first,
        serving("judge-b", ScriptedProvider([Step(NO)])) as second,
        serving("judge-c", ScriptedProvider([Step("Hard to say.")])) as third,
    ):
        yield first, second, third


def votes(session):
    return [(one.judges_for, one.judges_asked) for one in session.findings.all()]


def judged(scene, *replies, **more):
    with model(*replies):
        return run(scene.of_document(judge_citations=True, **more))


def test_each_judge_is_asked_once_about_each_verified_quote(scene, bench):
    session = judged(scene)
    assert votes(session) == [(1, 2), (None, None), (None, None)]
    assert [len(judge.requests) for judge in bench] == [1, 1, 1]
    [request] = bench[0].requests
    assert {block.kind: block.text for block in blocks_of(request)} == {
        "claim": "Pays late\n60 days, not 30.",
        "quote": QUOTE,
    }
    assert request.purpose == Purpose.JUDGE
    assert intents(session).count(("analysis", "run_skill")) == 3
    assert InferenceLog.objects.filter(purpose=Purpose.JUDGE).count() == 3


def test_nobody_is_asked_unless_the_run_was_told_to(scene, bench):
    with model():
        session = run(scene.of_document())
    assert [len(judge.requests) for judge in bench] == [0, 0, 0]
    assert votes(session)[0] == (None, None)


@pytest.mark.parametrize(
    "text", [reply(findings=[]), reply(findings=[{"title": "t", "quote": "nobody wrote this"}]), "no structure"]
)
def test_without_a_verified_quote_nobody_is_asked(scene, bench, text):
    session = judged(scene, text)
    assert session.status == Status.COMPLETED
    assert bench[0].requests == []


def test_without_judges_the_run_goes_on(scene):
    with override_settings(LQOPS_MODEL_ROLES={"main": ["offline"], "judges": []}):
        session = judged(scene)
    assert votes(session)[0] == (None, None)


def test_a_bench_that_costs_too_much_is_one_judge_and_that_is_recorded_once(scene, bench):
    with override_settings(LQOPS_MESSAGE_JUDGE_CAP_USD="0.01"):
        session = judged(scene)
    assert [len(judge.requests) for judge in bench] == [1, 0, 0]
    assert votes(session)[0] == (1, 1)
    assert AuditEvent.objects.filter(chain=session.chain, kind="citation_ensemble.fallback").count() == 1


def test_a_judge_that_fails_has_no_vote(scene, bench):
    with serving("judge-b", ScriptedProvider([Step(error=ProviderError("down", contacted=True))])):
        session = judged(scene)
    assert session.status == Status.COMPLETED
    assert votes(session)[0] == (1, 1)


@pytest.mark.long
def test_a_long_bench_is_heard_slice_by_slice_and_by_the_same_judges(scene, bench):
    findings = [{"title": f"t{n}", "quote": quote} for n, quote in enumerate([QUOTE, "The lease renews", "each year."])]
    session = scene.of_document(judge_citations=True)
    slices = []

    def engine(held):
        slices.append(walk(held))
        return slices[-1]

    with model(reply(findings=findings)), patch.object(fairness, "slice_lifetime", return_value=timedelta(0)):
        run(session, engine, slices=40)
    assert session.status == Status.COMPLETED
    assert [len(judge.requests) for judge in bench] == [3, 3, 3]
    assert votes(session)[:3] == [(1, 2)] * 3
    assert len(slices) > 9
    assert len(phases(session)) == 5


def test_a_judge_that_cannot_be_paid_ends_the_run(scene, bench):
    session = judged(scene, max_cost_usd=Decimal("0.018"))
    assert (session.status, session.terminal_reason) == (Status.HALTED, TerminalReason.COST_CAP_REACHED)
    assert session.findings.count() == 0


def test_the_offline_judge_reads_the_question():
    scene = Scene()
    told = {
        "findings": [
            {"title": "The Customer shall pay invoices within 60 days.", "quote": LEASE[:58]},
            {"title": "The Customer shall pay invoices within 90 days.", "quote": LEASE[:58]},
        ]
    }
    make_price("main-model")
    with (
        override_settings(LQOPS_MODEL_ROLES={"main": ["main-model"], "judges": ["offline"]}),
        serving("main-model", ScriptedProvider([Step(json.dumps(told))])),
    ):
        session = run(scene.of_document(judge_citations=True))
    assert votes(session)[:2] == [(1, 1), (0, 1)]
