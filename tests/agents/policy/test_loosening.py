"""Which changes loosen what binds an agent."""

from decimal import Decimal

from agents.policy.loosening import LOOSER, loosened
from tests.table import every_row

LAXER = {
    "mode": [("semi", "auto"), ("manual", "semi"), ("manual", "auto")],
    "max_cost_usd": [(Decimal(1), Decimal("1.000001")), (Decimal(1), None), (Decimal(0), Decimal(1))],
    "max_cost_per_day_usd": [(Decimal(1), Decimal(2)), (Decimal(0), None)],
    "max_cost_per_month_usd": [(Decimal(1), Decimal(2)), (Decimal(0), None)],
    "allow_high_risk": [(False, True)],
    "waived_skills": [([], ["pay"]), (["pay"], ["pay", "send"]), (["pay"], ["send"])],
    "review_flagged": [(True, False)],
    "level": [("RESTRICTED", "SAFE"), ("PRIVILEGED", "RESTRICTED")],
    "secret_hosts": [([], ["a.example"]), (["a.example"], ["a.example", "b.example"])],
    "skill_enabled": [(False, True)],
    "hourly_limit": [(0, 1_000_000), (1, 2), (0, None)],
    "max_runs_per_hour": [(1, 2)],
    "pause_after": [(1, 2), (50, 0)],
    "highest_level": [("SAFE", "RESTRICTED"), ("RESTRICTED", "PRIVILEGED")],
}
ALL = [(name, before, after) for name, pairs in LAXER.items() for before, after in pairs]


@every_row(("name", "before", "after"), ALL)
def test_laxer_value_is_named_and_the_way_back_is_free(name, before, after):
    assert loosened({name: before}, {name: after}) == (LOOSER[name][0],)
    assert loosened({name: before}, {name: before}) == ()
    if name != "waived_skills" or set(before) <= set(after):
        assert loosened({name: after}, {name: before}) == ()


def test_what_is_not_named_stays_and_no_limit_is_the_loosest():
    assert loosened({"mode": "manual", "max_cost_usd": None}, {}) == ()
    assert loosened({"max_cost_usd": None}, {"max_cost_usd": Decimal(1)}) == ()
    assert loosened({"max_cost_usd": None}, {"max_cost_usd": None}) == ()
    before = {"mode": "semi", "max_cost_usd": Decimal(1)}
    assert loosened(before, {"max_cost_usd": Decimal(2), "mode": "auto", "other": 1}) == (
        "the approval mode",
        "the cap of a run",
    )


def test_what_is_no_amount_counts_as_more():
    assert loosened({"max_cost_usd": Decimal(1)}, {"max_cost_usd": Decimal("NaN")}) == ("the cap of a run",)


def test_every_setting_has_a_row_here():
    assert LAXER.keys() == LOOSER.keys()
