"""Addresses with impossible numbers and dates do not break a page."""

import pytest
from django.contrib import admin
from django.db.models import DateField
from django.test import Client

from agents.models import AgentSession
from tests.agents.admin.rows import sign_in

pytestmark = pytest.mark.django_db
ODD_NUMBERS = ["1" * 4_400, "1" * 19, "9" * 18, "99999999999", "0", "-1", "\u0663" * 5_000, "x"]
ODD_YEARS = ["99999999999", "0", "-5", "10000", "1" * 4_400, "x"]


@pytest.fixture
def room():
    client = Client(raise_request_exception=False)
    sign_in(client)
    return client


@pytest.mark.parametrize(
    "address", ["/admin/agents/document/search/?q=x&owner=", "/admin/agents/trigger/add/?kind=watch&owner="]
)
def test_unknown_owner_is_the_user(room, address):
    for number in ODD_NUMBERS:
        assert room.get(f"{address}{number}").status_code == 200, (number[:3], len(number))


def test_selection_of_an_impossible_row_is_refused(room):
    for number in ("zz", "1" * 30, ""):
        chosen = {"action": "halt", "_selected_action": [number]}
        answer = room.post("/admin/agents/agentsession/", chosen, follow=True)
        assert "names a row that cannot exist" in answer.content.decode(), number


def answers(room, page, years):
    address = f"/admin/{page.opts.app_label}/{page.opts.model_name}/"
    return {
        (address, field.name, part, year): room.get(address, {f"{field.name}__{part}": year}).status_code
        for field in page.opts.concrete_fields
        if isinstance(field, DateField)
        for part in ("year", "gte", "exact")
        for year in years
    }


def test_impossible_dates_do_not_break_lists(room, some):
    """Every odd year in every filter of one page, and the first of them in every filter of all others."""
    codes = {}
    pages = some(admin.site._registry.values(), 4)
    for page in pages:
        codes |= answers(room, page, ODD_YEARS if page.model is AgentSession else ODD_YEARS[:1])

    assert len(codes) > 3 * len(pages)
    assert {asked: code for asked, code in codes.items() if code >= 500} == {}
