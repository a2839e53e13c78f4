"""Take any one brake out of the source, and `doctor` says so and leaves with an error."""

import json
import os
import subprocess
import sys

import pytest

from tests.flows.processes import ROOT, database_url

pytestmark = pytest.mark.django_db(transaction=True)

UNCHANGED = "the source as it is"
MUTATIONS = {
    "R5": (
        "agents.policy.brakes",
        "if boundary.status in TERMINAL or boundary.halt_state == HaltState.HALTED:",
        "if False:",
    ),
    "R5 requested": (
        "agents.policy.brakes",
        "if boundary.all_work_halt is not None or boundary.halt_state == HaltState.HALT_REQUESTED:",
        "if False:",
    ),
    "R5 of all work": ("agents.policy.brakes", "boundary.all_work_halt is not None or ", ""),
    "R5 and R6": (
        "agents.guard.guard",
        "return brakes.temporal(boundary) or brakes.contextual(call.intent, boundary.phase)",
        "return None",
    ),
    "R6": (
        "agents.policy.brakes",
        "return None if intent in PHASE_GRANTS.get(phase, frozenset()) else",
        "return None and",
    ),
    "R4": (
        "agents.policy.brakes",
        "if session.cap is not None and session.approved + quote.estimate > session.cap:",
        "if False:",
    ),
    "consent": ("agents.guard.consent", "if _asks(call, ruled) or _was_asked(call):", "if False:"),
    "fencing": ("agents.ledger.boundary", "if fencing != session.fencing:", "if False:"),
}


@pytest.fixture(scope="module")
def found(django_db_setup, django_db_blocker, request):
    """Exit code, output and errors of `doctor` for the source as it is, and for each change that is tested."""
    rows = [item for item in request.session.items if item.module is request.module and hasattr(item, "callspec")]
    tested = {brake: MUTATIONS[brake] for brake in (item.callspec.params["brake"] for item in rows)}
    with django_db_blocker.unblock():
        environment = {**os.environ, "LQOPS_DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "lqops.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.flows.brakeless"], input=json.dumps({UNCHANGED: None, **tested}),
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_doctor_is_content_with_the_source_as_it_is(found):
    code, said, errors = found[UNCHANGED]
    assert (code, errors) == (0, "")
    assert "FAIL" not in said


@pytest.mark.sampled(3)
@pytest.mark.parametrize("brake", MUTATIONS)
def test_doctor_sees_a_brake_that_is_commented_out(brake, found):
    code, said, errors = found[brake]
    assert code == 1, errors
    assert "ok   the database is migrated" in said
    assert "FAIL" in said
    assert "do not start" in errors
