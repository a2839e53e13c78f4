"""Addresses that somebody typed: numbers that no column holds and years that no calendar has are no fault of ours."""

import pytest
from django.contrib import admin
from django.db.models import DateField
from django.test import Client

from tests.agents.admin.rows import sign_in

pytestmark = pytest.mark.django_db
ODD_NUMBERS = ["1" * 4_400, "1" * 19, "9" * 18, "99999999999", "0", "-1", "\u0663" * 5_000, "x"]
ODD_YEARS = ["99999999999", "0", "-5", "10000", "1" * 4_400, "x"]


@pytest.fixture
def room():
    client = Client(raise_request_exception=False)
    sign_in(client)
    return client


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: f"{number[:3]}x{len(number)}")
@pytest.mark.parametrize(
    "page", ["/admin/agents/document/search/?q=x&owner=", "/admin/agents/trigger/add/?kind=watch&owner="]
)
def test_an_owner_that_nobody_is_is_the_person_who_asks(room, page, number):
    assert room.get(f"{page}{number}").status_code == 200


@pytest.mark.parametrize("page", admin.site._registry.values(), ids=lambda page: page.opts.label_lower)
def test_a_date_that_does_not_exist_is_refused_politely(room, page):
    address = f"/admin/{page.opts.app_label}/{page.opts.model_name}/"
    dates = [field.name for field in page.opts.concrete_fields if isinstance(field, DateField)]

    answers = {
        (name, part, year): room.get(address, {f"{name}__{part}": year}).status_code
        for name in dates
        for part in ("year", "gte", "exact")
        for year in ODD_YEARS
    }

    assert {asked: code for asked, code in answers.items() if code >= 500} == {}
