"""The verdict of `make chaos`: it fails where something was lost, and where too little happened to lose anything."""

import pytest

from agents.definitions.loader import read_definition
from agents.skills.registry import installed_skills, skills_offered
from tests.chaos.load import WORKING
from tests.chaos.verdict import FLOORS, floors, verdict

MINUTES = 3


def passing(**others):
    enough = {name: 10 * least for name, least in floors(MINUTES).items()}
    return {"reasons": {"completed": 50}, "left": [], "problems": [], "lost": 0, "doubled": 0, **enough, **others}


def test_run_in_which_enough_happened_and_nothing_was_lost_passes():
    assert verdict(passing(), MINUTES) == []


@pytest.mark.parametrize("name", FLOORS)
def test_run_in_which_too_little_of_one_kind_happened_fails_and_says_how_much_is_expected(name):
    least = floors(MINUTES)[name]

    assert verdict(passing(**{name: least}), MINUTES) == []
    assert verdict(passing(**{name: least - 1}), MINUTES) == [
        f"too few {name}: {least - 1}, and at least {least} are expected in 3.0 minutes"
    ]


def test_floors_grow_with_the_minutes_and_even_a_short_run_has_to_show_each_effect_once():
    assert min(floors(0.1).values()) == 1
    assert all(floors(60)[name] >= 19 * least for name, least in floors(MINUTES).items())


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"problems": ["overspent: session 1"]}, "overspent: session 1"),
        ({"left": ["phased 1 waiting approval"]}, "not at rest: phased 1 waiting approval"),
        ({"lost": 2}, "lost: 2, and none is allowed"),
        ({"doubled": 1}, "doubled: 1, and none is allowed"),
        ({"reasons": {"completed": 50, "stuck_loop": 1}}, "astray: 1 runs ended with stuck_loop"),
    ],
    ids=["overspent", "left", "lost", "doubled", "stuck"],
)
def test_whatever_is_wrong_fails_the_run_and_is_said(figures, says):
    assert verdict(passing(**figures), MINUTES) == [says]


def test_working_agents_of_the_load_are_offered_the_skill_that_acts_outside(settings):
    """Without it two runs of twelve minutes sent no letter, and a third of their runs were stuck."""
    settings.LQOPS_SKILL_MODULES = ["tests.chaos.skills"]
    installed_skills.cache_clear()
    try:
        assert "send_letter" in skills_offered(read_definition(WORKING.format("with a letter")).skills)
    finally:
        installed_skills.cache_clear()
