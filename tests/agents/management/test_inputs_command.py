"""`inputs`: list what no run has read, retry and dismiss it."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from agents.models import UnreadInput
from tests.factories import make_unread_input, make_user

pytestmark = pytest.mark.django_db


def printed(*given):
    out = StringIO()
    call_command("inputs", *given, stdout=out)
    return out.getvalue().strip()


def test_what_is_unread_is_listed_with_the_reason_and_decided_on_by_its_id():
    assert printed() == "Nothing is unread."
    unread = make_unread_input()
    assert f"{unread.public_id}  given up  " in printed()
    assert "cost cap reached, 1 run\n1 unread." in printed()
    [row] = json.loads(printed("--json"))
    assert (row["input"], row["state"], row["reason"]) == (str(unread.public_id), "given_up", "cost_cap_reached")
    assert printed("--retry", str(unread.public_id)[:8]) == "1 to be read again."
    assert "retrying, next run " in printed()
    assert (
        printed("--dismiss", str(unread.public_id), "--user", make_user(is_superuser=True).username) == "1 dismissed."
    )
    assert printed() == "Nothing is unread."


def test_all_that_was_given_up_is_retried_at_once():
    assert printed("--retry", "all") == "Nothing is unread."
    for _ in range(2):
        make_unread_input()
    assert printed("--retry", "all") == "2 to be read again."
    assert set(UnreadInput.objects.values_list("state", flat=True)) == {"retrying"}
