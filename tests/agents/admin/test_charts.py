"""Charts: what the page shows, its filters, CSV, permissions, and the small charts of agents and triggers."""

import csv
import html
import io
import json
import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.admin.charts import KINDS
from agents.conf import clock
from agents.models import Agent, Budget, GateDay, Trigger
from tests.agents.admin.rows import page, sign_in, text_of
from tests.factories import make_agent, make_session, make_trigger, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("charted")]

CHARTS = "admin:charts"


def ended(result="ok", **fields):
    now = clock()
    over = {"status": "completed", "terminal_reason": "completed", "completed_at": now, "run_result": result}
    return make_session(**{**over, "started_at": now - timedelta(seconds=9), "mode": "phased", **fields})


def spent(amount, *, scope="installation", subject=0):
    cap = {"cap_usd": 20} if scope == "installation" else {}
    Budget.objects.create(scope=scope, subject_id=subject, day=clock().date(), charged_usd=Decimal(amount), **cap)


def shown(client, **query):
    answer = client.get(reverse(CHARTS), query)
    assert answer.status_code == 200
    return text_of(answer)


def data(found, name):
    [text] = re.findall(rf'<script id="chart-{name}" type="application/json">(.*?)</script>', found)
    return json.loads(text)


def download(client, name, **query):
    answer = client.get(reverse("admin:charts_csv", args=[name]), query)
    assert answer.status_code == 200
    return answer, list(csv.reader(io.StringIO(answer.content.decode())))


def test_chart_and_table_have_the_same_figures(client):
    sign_in(client)
    ended("failed")
    ended("failed")

    found = shown(client, days=7)

    chart = data(found, "outcomes")
    assert {one["name"]: one["values"][-1] for one in chart["series"]}["failed"] == 2
    assert len(chart["days"]) == 7
    part = found.partition('id="chart-outcomes"')[2].partition("</table>")[0]
    row = part.partition("<tbody>")[2].partition("</tr>")[0]
    assert re.findall(r"<td[^>]*>(\d+)</td>", row) == ["0", "0", "0", "0", "2"]


def test_every_chart_is_on_the_page(client):
    sign_in(client)

    found = shown(client)

    for kind in KINDS.values():
        assert f"<h2>{kind.title}</h2>" in found
    assert found.count("Nothing in these days.") == len(KINDS)


@pytest.mark.parametrize(("given", "days"), [("7", 7), ("90", 90), ("", 30), ("5", 30), ("x", 30), ("9" * 30, 30)])
def test_unknown_range_is_thirty_days(client, given, days):
    sign_in(client)
    ended()

    assert len(data(shown(client, days=given), "outcomes")["days"]) == days


def test_filters_by_agent_and_trigger(client):
    sign_in(client)
    agent, trigger = make_agent(name="Reader"), make_trigger(name="Nightly")
    ended(agent=agent)
    ended(trigger=trigger)
    GateDay.objects.create(agent=agent, day=clock().date(), opened=1)

    by_agent = shown(client, agent=agent.pk)
    by_trigger = shown(client, trigger=trigger.pk)

    assert sum(sum(one["values"]) for one in data(by_agent, "outcomes")["series"]) == 1
    assert f'<option value="{agent.pk}" selected>Reader</option>' in by_agent
    assert "Wakes avoided" in by_agent
    assert "Wakes avoided" not in by_trigger
    assert "Clear filters" in by_trigger
    assert f"?days=7&amp;trigger={trigger.pk}" in by_trigger


def test_of_very_many_the_first_are_offered_and_the_one_that_is_chosen(client, monkeypatch):
    monkeypatch.setattr("agents.admin.charts.MOST_CHOICES", 2)
    sign_in(client)
    rows = [make_agent(name=name) for name in ("Ada", "Ben", "Cid", "Dan")]

    first, chosen = shown(client), shown(client, agent=rows[3].pk)

    names = [[name for name in ("Ada", "Ben", "Cid", "Dan") if f">{name}</option>" in text] for text in (first, chosen)]
    assert names == [["Ada", "Ben"], ["Ada", "Ben", "Dan"]]
    assert "Others: on their own pages" in first
    assert "Others: on their own pages" in chosen


@pytest.mark.parametrize(
    ("number", "chosen", "others"), [(1, None, 0), (2, None, 0), (3, None, 1), (3, 2, 0), (4, 2, 1)]
)
def test_others_are_named_only_if_there_are_any(client, monkeypatch, number, chosen, others):
    monkeypatch.setattr("agents.admin.charts.MOST_CHOICES", 2)
    sign_in(client)
    rows = [make_agent(name=f"Agent {at}") for at in range(number)]

    found = shown(client) if chosen is None else shown(client, agent=rows[chosen].pk)

    assert found.count("Others: on their own pages") == others


def test_names_are_data_and_not_markup(client):
    sign_in(client)
    agent = make_agent(name="</script><img src=x>\u202e")
    spent("1")
    spent("1", scope="agent", subject=agent.pk)

    found = shown(client)

    assert "<img src=x>" not in found
    assert data(found, "spend")["series"][0]["name"] == "</script><img src=x>⟨U+202E⟩"


def test_csv_is_exact(client):
    sign_in(client)
    spent("1.234567")

    answer, rows = download(client, "spend", days=7)

    assert answer["Content-Type"].startswith("text/csv")
    assert answer["Content-Disposition"] == 'attachment; filename="lqops-spend-7-days.csv"'
    assert rows[0] == ["day", "Spent (USD)"]
    assert rows[-1] == [clock().date().isoformat(), "1.234567"]
    assert len(rows) == 8


def test_csv_holds_no_formula(client):
    sign_in(client)
    agent = make_agent(name="=HYPERLINK(1)")
    spent("1")
    spent("1", scope="agent", subject=agent.pk)

    assert download(client, "spend")[1][0][1] == "'=HYPERLINK(1) (USD)"


def test_csv_leaves_days_without_a_measure_empty(client):
    sign_in(client)
    ended()

    rows = download(client, "durations", days=7)[1]

    assert rows[0] == ["day", "p50 (seconds)", "p95 (seconds)"]
    assert rows[1][1:] == ["", ""]
    assert rows[-1][1:] == ["9.0", "9.0"]


def test_unknown_chart_is_not_found(client):
    sign_in(client)

    assert client.get(reverse("admin:charts_csv", args=["nothing"])).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin"])
def test_every_role_sees_charts(client, role):
    sign_in(client, role)

    assert "<h2>Spend</h2>" in shown(client)


def test_charts_follow_permissions(client):
    user = make_user(is_staff=True)
    client.force_login(user)
    assert client.get(reverse(CHARTS)).status_code == 403
    assert client.get(reverse("admin:charts_csv", args=["outcomes"])).status_code == 403

    user.user_permissions.add(Permission.objects.get(codename="view_agentsession"))
    agent = make_agent(name="Secret agent")
    ended(agent=agent)
    found = shown(client, agent=agent.pk + 1)

    assert "<h2>Outcomes</h2>" in found
    assert "<h2>Spend</h2>" not in found
    assert "Secret agent" not in found
    assert sum(sum(one["values"]) for one in data(found, "outcomes")["series"]) == 1  # no filter that they may not see
    assert client.get(reverse("admin:charts_csv", args=["spend"])).status_code == 403


def test_number_of_queries_does_not_grow(client):
    sign_in(client)
    counts = []
    for rows in (2, 20):
        for _ in range(rows):
            agent = make_agent()
            ended(agent=agent)
            spent("1", scope="agent", subject=agent.pk)
        with CaptureQueriesContext(connection) as captured:
            shown(client)
        counts.append(len(captured))

    assert counts[0] == counts[1]


@pytest.mark.parametrize(("model", "scope"), [(Agent, "agent"), (Trigger, "trigger")])
def test_pages_show_their_own_charts(client, model, scope):
    sign_in(client)
    row, other = (make_agent(), make_agent()) if model is Agent else (make_trigger(), make_trigger())
    for one, amount in ((row, "1.5"), (other, "4")):
        spent(amount, scope=scope, subject=one.pk)
        ended("findings", **{scope: one})

    found = text_of(client.get(page(model, "change", row.pk)))

    assert data(found, "spend")["series"][0]["values"][-1] == 1.5
    assert {one["name"]: one["values"][-1] for one in data(found, "outcomes")["series"]}["findings"] == 1
    assert "<h2>Durations</h2>" in found
    assert "<h2>Cost per finding</h2>" in found
    assert found.index("<h2>Spend</h2>") < found.index('<form method="post"')


@pytest.mark.parametrize(("model", "name"), [(Agent, "agent"), (Trigger, "trigger")])
def test_all_charts_of_a_row_are_one_link_away(client, model, name):
    sign_in(client)
    row = make_agent() if model is Agent else make_trigger()
    link = f"{reverse('admin:charts')}?days=30&{name}={row.pk}"

    assert f'href="{html.escape(link)}">All charts</a>' in text_of(client.get(page(model, "change", row.pk)))
    assert getattr(client.get(link).context["choice"].subject, f"{name}_id") == row.pk


def test_small_charts_follow_permissions(client):
    user = make_user(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_trigger"))
    client.force_login(user)

    found = text_of(client.get(page(Trigger, "change", make_trigger().pk)))

    assert "<h2>Spend</h2>" not in found
    assert "<h2>Outcomes</h2>" not in found
    assert "All charts" not in found
