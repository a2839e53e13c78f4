"""A run made again keeps what held it: its review, its judges, its cap, and since when it reads."""

from decimal import Decimal

import pytest

from agents.enums import Mode, Status, TerminalReason
from agents.exceptions import InvalidTransition
from agents.triggers.firing import session_restart
from tests.factories import NOW, make_session, make_trigger, make_user

from .rows import make_collection, make_playbook, make_skill

pytestmark = pytest.mark.django_db

ENDED = {"terminal_reason": TerminalReason.COMPLETED, "completed_at": NOW}


@pytest.fixture
def owner():
    return make_user()


def over(owner, trigger=None, **params):
    playbook, collection = make_playbook(owner), make_collection(owner)
    params = {"playbook": str(playbook.public_id), "collection": str(collection.public_id), **params}
    cap = Decimal("0.10")
    return make_session(Status.COMPLETED, owner=owner, trigger=trigger, params=params, max_cost_usd=cap, **ENDED)


def again(session, **given):
    return session_restart(session=session, by=session.owner, now=NOW, **given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("review_flagged", True),
        ("judge_citations", True),
        ("baseline", True),
        ("since", "2026-01-01T00:00:00+00:00"),
        ("until", "2026-01-02T00:00:00+00:00"),
        ("analysis_mode", "agentic"),
        ("loop", {"max_steps": 9}),
        ("guardrails", {"max_repeated_tool_steps": 5}),
    ],
)
def test_what_held_the_run_holds_it_again(owner, name, value):
    assert again(over(owner, **{name: value})).params[name] == value


def test_run_of_a_trigger_thinks_again_as_the_trigger_says_today(owner):
    trigger = make_trigger(owner=owner, analysis_mode="agentic", loop={"max_steps": 4}, skill=make_skill())
    params = again(over(owner, trigger=trigger, loop={"max_steps": 9}, guardrails={"reserve_tokens": 1})).params

    assert (params["analysis_mode"], params["loop"], "guardrails" in params) == ("agentic", {"max_steps": 4}, False)


def test_cap_is_the_given_one_else_the_trigger_s_else_the_run_s_own(owner):
    uncapped, capped = (
        make_trigger(owner=owner, skill=make_skill(), max_cost_usd=cap) for cap in (None, Decimal("0.25"))
    )

    assert again(over(owner)).max_cost_usd == Decimal("0.10")
    assert again(over(owner, trigger=uncapped)).max_cost_usd == Decimal("0.10")
    assert again(over(owner, trigger=capped)).max_cost_usd == Decimal("0.25")
    assert again(over(owner, trigger=capped), max_cost_usd=Decimal(1)).max_cost_usd == 1


@pytest.mark.parametrize("mode", sorted(set(Mode) - {Mode.PHASED}))
def test_what_is_no_run_is_not_run_again(owner, mode):
    with pytest.raises(InvalidTransition, match="Only runs are run again"):
        again(make_session(Status.COMPLETED, owner=owner, mode=mode, **ENDED))
