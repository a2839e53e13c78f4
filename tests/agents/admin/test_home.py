"""Home: its content by role, its number of queries; halt and release of everything."""

import re
from calendar import monthrange
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from html import unescape
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.conf import clock
from agents.definitions.catalogue import _seen
from agents.enums import HaltState, InputState, Level, Mode, NoticeKind, Outcome, Status, ToolIntent, TriggerKind
from agents.guard.refusals import refuse_call
from agents.ledger.budgets import budget_set_cap
from agents.models import (
    AgentSession,
    Budget,
    Halt,
    Installation,
    Lease,
    ModelOutage,
    Notification,
    Profile,
    Sensor,
)
from agents.sessions import control_room
from agents.sessions.control_room import Kind
from agents.sessions.halts import halt_all_work, halted_work_end, session_halt
from audit import recorder
from audit.models import SYSTEM_CHAIN
from tests.agents.admin.links import unrendered
from tests.agents.admin.rows import (
    act_page,
    kinds_since,
    last_event,
    make_approval,
    make_call,
    make_document,
    page,
    sign_in,
    text_of,
)
from tests.agents.ask.rows import make_question
from tests.factories import NOW, make_agent, make_project, make_session, make_trigger, make_unread_input, make_user

pytestmark = pytest.mark.django_db

HOME = "admin:index"


def shown(client):
    answer = client.get(reverse(HOME))
    assert answer.status_code == 200
    return text_of(answer)


def test_empty_installation_says_what_to_do(client):
    sign_in(client)

    found = shown(client)

    assert "No triggers yet." in found
    assert reverse("admin:agents_trigger_add") in found
    assert "Nothing is waiting for you." in found
    assert "Nothing was spent in the last 30 days." in found
    assert "No run has ended in the last 30 days." in found
    assert "Nothing is scheduled." in found


def test_installation_without_runs_says_how_to_start_one(client):
    sign_in(client)
    make_trigger()

    assert "Add a <a" in shown(client)
    assert "to a watched collection" in shown(client)


def test_home_shows_runs_approvals_and_next_runs(client):
    user = sign_in(client)
    now = clock()
    make_session(agent=make_agent(name="Reviewer"))
    make_approval(action="send_letter")
    make_call(outcome=Outcome.UNKNOWN, name="wire_money")
    Notification.objects.create(owner=user, kind=NoticeKind.AGENT, title="t")
    make_trigger(kind=TriggerKind.SCHEDULE, name="Every Monday", next_run_at=now + timedelta(hours=5))

    found = shown(client)

    for words in ("send_letter", "wire_money", "Every Monday", "in 4 hours", "2 running", "1 unread notification"):
        assert words in found, words


def ended(result, **fields):
    status = fields.pop("status", Status.COMPLETED)
    over = {"terminal_reason": "completed", "completed_at": clock(), "run_result": result, "mode": Mode.PHASED}
    return make_session(status=status, **{**over, **fields})


def test_home_lists_partial_and_failed_runs_that_nothing_took_up(client):
    sign_in(client)
    ended("partial", params={"query": "alpha"}, result_reason="Not checked: lease.txt")
    ended("failed", params={"query": "bravo"}, result_reason="Nothing to check against.")
    ended("ok", params={"query": "charlie"})
    ended("failed", params={"query": "delta"}, completed_at=clock() - timedelta(hours=25))
    ended("failed", params={"query": "echo"}, status=Status.HALTED, terminal_reason="external_halt")
    ended("ok", restarted_from=ended("failed", params={"query": "foxtrot"}))
    make_unread_input(session=ended("failed", params={"query": "golf"}), state=InputState.RETRYING)

    found = shown(client).partition("Needs attention")[2].partition("Recent runs")[0]

    for words in ("alpha", "Not checked: lease.txt", "bravo", "Nothing to check against."):
        assert words in found, words
    assert found.count(">Run again</a>") == 2
    for words in ("charlie", "delta", "echo", "foxtrot", "golf"):
        assert words not in found, words


def test_number_of_unfinished_runs_is_that_of_the_list_behind_it(client):
    sign_in(client)
    for result in ("failed", "partial") * control_room.SHOWN:
        ended(result)
    ended("failed", completed_at=clock() - timedelta(hours=25))
    ended("ok", restarted_from=ended("failed"))
    ended("ok")

    number, link = re.search(r'href="([^"]+)">All (\d+) failed and partial runs', shown(client)).group(2, 1)
    listed = unrendered(client, unescape(link)).context_data["cl"]

    assert int(number) == listed.result_count == 2 * control_room.SHOWN
    [chosen] = [choice["display"] for choice in listed.filter_specs[1].choices(listed) if choice["selected"]]
    assert chosen == "Failed or partial, last 24 hours"


def test_recent_runs_are_shown_by_result(client):
    sign_in(client)
    ended("partial", params={"query": "alpha"})
    ended("ok", params={"query": "bravo"})

    found = shown(client).partition("Recent runs")[2].partition("<h2>Outcomes</h2>")[0]

    assert re.findall(r'class="lq-chip (\w*)"[^>]*>(\w+)<', found) == [("good", "ok"), ("warn", "partial")]


def test_spend_of_today_is_shown_against_its_cap(client):
    sign_in(client)
    today = clock().date()
    budget = {"scope": "installation", "cap_usd": Decimal(4)}
    Budget.objects.create(
        **budget, day=today, charged_usd=Decimal("3.1"), actual_usd=Decimal(2), reserved_usd=Decimal("0.5")
    )
    Budget.objects.create(**budget, day=today - timedelta(days=40), charged_usd=Decimal(99))

    found = shown(client).partition('id="home-spend"')[2].partition("</section>")[0]

    assert re.search(r"\$3\.10</b>\s*<span[^>]*>of \$4\.00", found)
    assert 'class="lq-bar thin warn"><span style="width: 90%"' in found
    assert "$0.50 in flight" in found
    assert "$99" not in found
    assert "$2.00" not in found  # the smaller ledger is in the details of runs


def test_forecast_is_shown_against_the_cap_of_the_month(client):
    sign_in(client)
    today = clock().date()
    days = monthrange(today.year, today.month)[1]
    assert re.search(rf"of \$[\d.,]+, {days} days at \$20\.00<", shown(client))
    budget_set_cap(scope="installation", subject_id=0, period="month", cap_usd=Decimal(77), by=None)

    found = shown(client).partition('id="home-spend"')[2].partition("</section>")[0]

    assert found.count("of $77.00") == 2  # this month, and the forecast
    assert "days at" not in found


def test_budgets_of_months_owners_and_projects_need_attention(client):
    user = sign_in(client)
    project = make_project(name="Merger")
    month = {"period": "month", "day": clock().date().replace(day=1), "cap_usd": Decimal(4), "charged_usd": Decimal(4)}
    Budget.objects.create(scope="project", subject_id=project.pk, **month)
    Budget.objects.create(scope="owner", subject_id=user.pk, **month)
    Budget.objects.create(scope="installation", **{**month, "day": month["day"] - timedelta(days=31)})

    found = shown(client)

    assert "Merger (project)" in found
    assert f"{user.username} (owner)" in found
    assert found.count("$4.00 of $4.00 this month") == 2


@pytest.mark.parametrize(("spent", "is_listed"), [("3.19", False), ("3.20", True)])
def test_budget_needs_attention_from_80_percent(client, spent, is_listed):
    sign_in(client)
    agent = make_agent(name="Spender")
    budget = {"scope": "agent", "subject_id": agent.pk, "cap_usd": Decimal(4)}
    row = Budget.objects.create(**budget, day=clock().date(), actual_usd=Decimal(spent))
    Budget.objects.create(**budget, day=clock().date() - timedelta(days=1), charged_usd=Decimal(4))

    found = shown(client)

    assert ("Spender (agent)" in found) == is_listed
    assert (act_page(row, "set_cap") in found) == is_listed


def health_shown(client):
    return text_of(client.get(reverse("admin:health")))


def test_health_shows_refusals(client):
    sign_in(client)
    session = make_session()
    refuse_call(session, {"tool": ToolIntent.NOTIFY}, "intake", Outcome.TOOL_NOT_GRANTED, now=clock(), brake=None)
    refuse_call(session, {"tool": ToolIntent.NOTIFY}, "intake", Outcome.SUCCESS, now=clock(), brake=None)

    found = health_shown(client)

    assert "Notify: tool not granted." in found
    assert "Notify: success." not in found
    assert reverse("audit:receipt", args=[session.chain]) in found


def test_refused_firing_links_to_its_trigger(client):
    sign_in(client)
    trigger = make_trigger(name="Nightly")
    for public_id in (trigger.public_id, uuid4()):
        details = {"trigger_id": str(public_id), "reason": "halted"}
        recorder.append(SYSTEM_CHAIN, "autonomous_trigger.refused", now=clock(), details=details)

    found = health_shown(client)

    assert "Trigger “Nightly” did not start a run: halted." in found
    assert f'href="{reverse("admin:agents_trigger_change", args=[trigger.pk])}">trigger</a>' in found
    assert f"Trigger {public_id} did not start a run: halted." in found


def test_refusal_of_an_ended_session_links_to_its_receipt():
    session = make_session()
    refuse_call(session, {"tool": ToolIntent.NOTIFY}, "turn", Outcome.DENIED, now=clock(), brake=None, over=True)

    assert [refusal.session_id for refusal in control_room.refusals_lately()] == [session.chain]


def test_halt_of_everything_names_runs_and_notifies_owners(client):
    owner = sign_in(client)
    agent = make_agent(owner=owner, name="Inbox clerk")
    for mode in ("loop", "sensor"):
        make_session(owner=owner, agent=agent, mode=mode, status=Status.SLEEPING)
    halt_all_work(by=make_user(), reason="enough", now=clock())
    halted_work_end(clock())

    found = health_shown(client)

    assert {refusal.purpose for refusal in control_room.refusals_lately()} == {
        "loop of Inbox clerk",
        "sensors of Inbox clerk",
    }
    assert found.count("The run was halted: stopped by a person.") == 2
    assert "loop of Inbox clerk" in found
    assert set(Notification.objects.values_list("title", flat=True)) == {
        "Run halted: requested by a person, loop of Inbox clerk",
        "Run halted: requested by a person, sensors of Inbox clerk",
    }
    assert "Inbox clerk, by itself" in text_of(client.get(reverse("admin:agents_notification_changelist")))


def test_loop_that_a_person_stopped_is_no_problem():
    owner = make_user()
    loop = make_session(owner=owner, mode="loop", status=Status.SLEEPING)
    session_halt(loop.pk, by=owner, reason="enough", now=clock())

    assert control_room.refusals_lately() == ()


def test_call_that_a_person_denied_says_so_once():
    refuse_call(
        make_session(),
        {"tool": ToolIntent.NOTIFY},
        "delivery",
        Outcome.DENIED,
        now=clock(),
        brake=None,
        detail="rejected",
    )

    [refusal] = control_room.refusals_lately()
    assert refusal.sentence == "Notify: denied (by a person)."


def test_sign_in_page_shows_no_state(client):
    Installation.objects.update(halt=Halt.objects.create(scope="organisation", reason="fire"))

    assert "fire" not in text_of(client.get(reverse("account_login")))


def test_old_refusals_are_not_shown():
    session = make_session()
    refuse_call(
        session, {"tool": ToolIntent.NOTIFY}, "intake", Outcome.DENIED, now=clock(), brake=None, detail="budget_spent"
    )
    [refusal] = control_room.refusals_lately()
    assert refusal.sentence == "Notify: denied (a shared budget is used up)."

    for _ in range(control_room.LOOKED_AT):
        refuse_call(session, {"tool": ToolIntent.NOTIFY}, "intake", Outcome.SUCCESS, now=clock(), brake=None)

    assert control_room.refusals_lately() == ()


def test_health_says_among_which_calls_refusals_are_looked_for(client, monkeypatch):
    sign_in(client)
    monkeypatch.setattr(control_room, "LOOKED_THROUGH", 3)
    refuse_call(make_session(), {"tool": ToolIntent.NOTIFY}, "intake", Outcome.DENIED, now=clock(), brake=None)
    assert "Notify: denied." in health_shown(client)
    for _ in range(3):
        recorder.append(SYSTEM_CHAIN, "autonomous_session.resumed", now=clock())

    found = health_shown(client)

    assert "No recent problems" in found
    assert "among the newest 300 calls within the last 3,000 audit events. Older ones are in the audit log." in found


MOST_QUERIES = 27  # one of them while a model fails


def fill_home(rows):
    """Make this many rows of everything that Home shows, each with an owner, an agent and a trigger of its own."""
    now = clock()
    owners = User.objects.bulk_create([User(username=f"u{rows}-{one}") for one in range(rows)])
    for number, owner in enumerate(owners):
        agent = make_agent(owner=owner)
        trigger = make_trigger(owner=owner, agent=agent, paused_at=now, pause_reason="failing", next_run_at=now)
        params = {"document": str(uuid4()), "playbook": str(uuid4()), "event": {"id": str(uuid4())}}
        Profile.objects.create(user=owner, opted_in=True)
        idle = make_agent(owner=owner, wanted=True, definition="autonomy: {enabled: true}", definition_version=1)
        over = {"terminal_reason": "external_halt", "completed_at": now}
        make_session("halted", owner=owner, agent=idle, mode="loop", **over)
        session = make_session(owner=owner, agent=agent, trigger=trigger, params=params)
        make_approval(session, key=f"k{number}")
        make_question(session)
        make_call(session, outcome=Outcome.UNKNOWN)
        make_unread_input(trigger=trigger, session=session, state=InputState.GIVEN_UP)
        ended("failed", owner=owner, agent=agent, trigger=trigger, params=params)
        Sensor.objects.create(agent=agent, name="s", kind="poll", wanted=True, state="failing", problem="refused")
        Budget.objects.create(scope="agent", subject_id=agent.pk, day=now.date(), cap_usd=1, charged_usd=1)
        ModelOutage.objects.create(model=f"m{rows}-{number}", since=now, next_try_at=now)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("role", ["", "operator", "viewer"])
def test_home_queries_do_not_grow(client, role, some):
    sign_in(client, role)
    shown(client)  # what a process reads once
    counts = []
    for rows in (10, max(some([40, 190], 2))):
        fill_home(rows)
        _seen.read_at = 0.0  # what is known of models is read again
        with CaptureQueriesContext(connection) as captured:
            shown(client)
        counts.append(len(captured))

    assert counts[0] == counts[1] <= MOST_QUERIES


def test_everything_that_needs_attention_has_one_action(client):
    sign_in(client)
    fill_home(1)

    found = shown(client).partition('id="home-attention"')[2].partition("</section>")[0]

    actions = re.findall(r'<a class="lq-button small"[^>]*>([^<]+)</a>', found)
    assert actions == [
        *(
            "Start again",
            "Run again",
            "Retry",
            "Decide",
            "Answer",
            "Resolve",
            "Try sensors",
            "Resume",
            "Test",
            "Change cap",
        ),
    ]


def test_viewer_gets_links_and_no_acts(client):
    sign_in(client, "viewer")
    fill_home(1)

    found = shown(client).partition('id="home-attention"')[2].partition("</section>")[0]

    assert "/act/" not in found
    assert set(re.findall(r'<a class="lq-button small"[^>]*>([^<]+)</a>', found)) == {"View", "Test"}


@pytest.mark.parametrize(("risk", "chip"), [("high", 'bad">high-risk'), ("low", '">SAFE'), ("", '">SAFE')])
def test_approval_of_high_risk_does_not_look_safe(client, risk, chip):
    sign_in(client)
    approval = make_approval(level=Level.SAFE, risk_level=risk)

    for found in (shown(client), text_of(client.get(page(AgentSession, "change", approval.session_id)))):
        chips = found.partition("Needs attention")[2].partition("</section>")[0]
        assert chip in chips
        assert ("SAFE" in chips) == (risk != "high")


def test_more_of_a_kind_are_a_link_to_the_list(client):
    sign_in(client)
    for number in range(control_room.FIRST_FEW + 1):
        make_approval(key=f"k{number}")
        ModelOutage.objects.create(model=f"m{number}", since=NOW, next_try_at=NOW)

    found = shown(client)

    assert "All 4 approvals" in found
    assert found.count(">Decide</a>") == control_room.FIRST_FEW
    assert ">All models</a>" in found
    assert found.count(">Test</a>") == control_room.FIRST_FEW


def test_no_kind_shows_more_than_a_few(client):
    """Eight failed runs leave the approvals in sight."""
    sign_in(client)
    fill_home(8)

    found = shown(client).partition('id="home-attention"')[2].partition("</section>")[0]

    chips = re.findall(r'class="kind"><span class="lq-chip \w*">([^<]+)<', found)
    assert Counter(chip.split()[0] for chip in chips) == dict.fromkeys(
        ("not", "failed", "input", "approval", "question", "unknown", "sensor", "trigger", "model", "budget"),
        control_room.FIRST_FEW,
    )
    assert found.count('<li class="more">') == len(Kind)


def test_trigger_paused_by_hand_needs_no_attention():
    make_trigger(name="Mine", paused_at=clock(), pause_reason="by_hand")
    failing = make_trigger(failed_in_a_row=control_room.FAILING_RUNS)
    make_trigger(failed_in_a_row=control_room.FAILING_RUNS - 1)
    make_trigger(failed_in_a_row=9, enabled=False)
    make_trigger(failed_in_a_row=9, deleted_at=clock())

    assert list(control_room.triggers_failing()) == [failing]


def test_running_shows_phase_progress_and_elapsed_time(client):
    sign_in(client)
    reading = {"reading": {"sections": 4, "read": 2, "estimate_usd": "0.10"}}
    begun = clock() - timedelta(minutes=7, seconds=5)
    make_session(mode=Mode.PHASED, current_phase="analysis", metadata=reading, started_at=begun)

    found = shown(client).partition("<h2>Running</h2>")[2].partition("</section>")[0]

    assert "section 3 of 4, about $0.10 · 7 minutes" in found
    assert 'aria-valuenow="30"' in found  # one phase of five, and half of the second


# --- Health strip ---


def strip(client):
    return shown(client).partition('id="home-strip"')[2].partition("</div>")[0]


def healthy():
    Lease.objects.create(name="ticker", owner="t", until=clock() + timedelta(minutes=1), done_at=clock())


def test_strip_is_one_green_line_when_all_is_well(client):
    sign_in(client)
    healthy()

    found = strip(client)

    assert 'class="lq-strip"' in found
    assert "All checks passed, nothing needs attention." in found
    assert "<li" not in found


def test_strip_names_faults(client):
    sign_in(client)
    healthy()
    Lease.objects.update(done_at=clock() - timedelta(hours=1))
    ModelOutage.objects.create(model="local", since=NOW, next_try_at=NOW)

    found = strip(client)

    assert 'class="lq-strip bad" role="alert"' in found
    assert "The ticker is not running" in found
    assert "1 model cannot be used: see Needs attention." in found
    assert "All checks passed" not in found


def test_strip_is_not_green_while_everything_is_halted(client):
    user = sign_in(client)
    healthy()
    halt_all_work(by=user, reason="x", now=clock())

    assert 'class="lq-strip warn"' in strip(client)


# --- First steps ---


STEPS = ["Connect a model", "Add a document", "Decide on a call", "Try the brake"]


def steps_open(client):
    part = shown(client).partition("<h2>First steps</h2>")[2].partition("</section>")[0]
    return re.findall(r'<a class="lq-link"[^>]*>([^<]+)</a>', part)


def test_first_steps_go_away_when_done(client, settings):
    user = sign_in(client)
    assert steps_open(client) == STEPS
    make_document(user, name="supplier-contract-northgate.md")  # a sample
    assert steps_open(client) == STEPS

    make_document(user)
    make_approval(status="approved", resolved_by=user, resolved_at=clock())
    halt_all_work(by=user, reason="x", now=clock())
    assert steps_open(client) == STEPS[:1]
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "mine": {"provider": "openai"}}

    assert "First steps" not in shown(client)


def test_first_steps_can_be_dismissed(client):
    sign_in(client)
    assert client.get(reverse("admin:dismiss_first_steps")).status_code == 405

    client.post(reverse("admin:dismiss_first_steps"))

    assert "First steps" not in shown(client)


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_first_steps_are_for_those_who_may_do_them(client, role):
    sign_in(client, role)

    assert "First steps" not in shown(client)


@pytest.mark.parametrize("role", ["viewer", "operator", "approver", "admin"])
def test_every_role_has_a_home(client, role):
    sign_in(client, role)
    make_session()

    found = shown(client)

    assert "Running" in found
    assert ("Halt everything" in found) == (role in {"operator", "admin"})


def test_staff_without_a_role_sees_nothing(client):
    client.force_login(make_user(is_staff=True))
    make_session(owner=make_user(username="somebody-else"))

    found = shown(client)

    assert "You have no role yet" in found
    assert "somebody-else" not in found


def test_parts_named_by_data_with_exist(client):
    sign_in(client)

    found = shown(client)

    [named] = re.findall(r'id="home-live"[^>]* data-with="([^"]+)"', found)
    for name in named.split():
        assert found.count(f'id="{name}"') == 1, name


# --- Halt everything ---


def test_halt_everything_says_what_it_ends_and_what_it_spares(client):
    sign_in(client, "operator")
    make_session()
    asks = make_session("waiting", waiting_on="approval")

    page = text_of(client.get(reverse("admin:halt_everything")))
    assert "Ends for good: 1 running." in page
    assert "Spared, because they only wait for a person: 1;" in page
    assert '<option value="Incident">' in page
    assert Installation.objects.get().halt_id is None
    said = text_of(client.post(reverse("admin:halt_everything"), {"reason": ""}, follow=True))

    assert "1 active run will end. Paused, because they wait for a person: 1 run." in said
    asks.refresh_from_db()
    assert (asks.status, asks.paused_at is not None) == ("waiting", True)
    client.post(reverse("admin:release"), {"keep_paused": "on"})
    asks.refresh_from_db()
    assert asks.paused_at is not None


def test_halt_everything_ends_what_waits_for_a_person_if_told_to(client):
    sign_in(client, "operator")
    make_session("waiting", waiting_on="approval")
    client.post(reverse("admin:halt_everything"), {"end_waiting": "on"})
    assert not Installation.objects.get().halt.spares_waiting


def test_everything_is_paused_and_resumed(client):
    sign_in(client, "operator")
    session = make_session("queued")
    assert "Puts 1 current run aside" in text_of(client.get(reverse("admin:pause_everything")))

    said = text_of(client.post(reverse("admin:pause_everything"), {"reason": "a <b>look</b>"}, follow=True))
    assert "Everything is paused: 1 run." in said
    assert "Reason: a &lt;b&gt;look&lt;/b&gt;." in said
    assert AgentSession.objects.get(pk=session.pk).waiting_on == "resume"
    again = text_of(client.post(reverse("admin:pause_everything"), {"reason": ""}, follow=True))
    assert "All work is paused by" in again

    assert "go on where they were" in text_of(client.get(reverse("admin:resume_everything")))
    assert "Resumed." in text_of(client.post(reverse("admin:resume_everything"), {"confirmed": "1"}, follow=True))
    assert AgentSession.objects.get(pk=session.pk).status == "queued"
    assert "nothing to resume" in text_of(
        client.post(reverse("admin:resume_everything"), {"confirmed": "1"}, follow=True)
    )


@pytest.mark.parametrize("page", ["pause_everything", "resume_everything"])
def test_pausing_everything_needs_the_permission(client, page):
    sign_in(client, "viewer")
    assert client.get(reverse(f"admin:{page}")).status_code == 403


def test_halt_everything_is_shown_on_every_page(client):
    user = sign_in(client, "operator")
    session, before = make_session(), last_event()

    answer = client.post(reverse("admin:halt_everything"), {"reason": "a <b>fire</b>"}, follow=True)

    assert "Everything is halted. Nothing starts until you release it. 1 active run will end." in text_of(answer)
    assert AgentSession.objects.get(pk=session.pk).halt_state == HaltState.RUNNING  # the ticker halts it
    halt = Halt.objects.get(scope="organisation")
    assert (halt.reason, halt.requested_by) == ("a <b>fire</b>", user)
    assert kinds_since(before)[0] == "organisation.halted"
    for address in (reverse(HOME), page(AgentSession, "changelist"), reverse("admin:health")):
        found = text_of(client.get(address))
        assert "<strong>Everything is halted</strong>" in found
        assert "a &lt;b&gt;fire&lt;/b&gt;" in found
        assert reverse("admin:release") in found


def test_second_halt_shows_author_time_and_reason(client):
    halt_all_work(by=make_user(username="ada"), reason="a <b>fire</b>\u202e", now=clock())
    sign_in(client, "operator")
    before = last_event()
    told = "All work is already halted by ada since "
    why = "a &lt;b&gt;fire&lt;/b&gt;⟨U+202E⟩."

    asked = text_of(client.get(reverse("admin:halt_everything")))
    answer = text_of(client.post(reverse("admin:halt_everything"), {"reason": "mine"}, follow=True))

    assert told in asked
    assert f"{why} Halting again changes nothing" in asked
    assert told in answer
    assert f"{why} No run is left to end. The halt keeps its reason." in answer
    assert Halt.objects.get().reason.startswith("a <b>fire")
    assert kinds_since(before) == []


def test_release_leaves_halted_sessions_halted(client):
    sign_in(client, "operator")
    session = make_session(status=Status.QUEUED)
    client.post(reverse("admin:halt_everything"), {"reason": "x"})
    halted_work_end(clock())
    before = last_event()

    assert "Halted runs stay halted." in text_of(client.get(reverse("admin:release")))
    answer = client.post(reverse("admin:release"), {"confirmed": "1"}, follow=True)

    assert "Released. New runs can start" in text_of(answer)
    assert kinds_since(before) == ["organisation.released"]
    assert AgentSession.objects.get(pk=session.pk).status == Status.HALTED
    assert "<strong>Everything is halted</strong>" not in shown(client)


def test_release_without_a_halt_says_so(client):
    sign_in(client)

    answer = client.post(reverse("admin:release"), {"confirmed": "1"}, follow=True)

    assert "Work is not halted" in text_of(answer)


@pytest.mark.parametrize("role", ["viewer", "approver"])
@pytest.mark.parametrize("name", ["halt_everything", "release"])
def test_readers_cannot_halt_or_release(client, role, name):
    sign_in(client, role)

    assert client.get(reverse(f"admin:{name}")).status_code == 403
    assert client.post(reverse(f"admin:{name}"), {"reason": "x"}).status_code == 403
    assert Installation.objects.get().halt_id is None


# --- The banner of a halt, on pages that stay open ---


def test_pages_poll_the_halt_banner(client):
    user = sign_in(client)
    address = reverse("admin:halt_bar")
    live = f'<div id="halt-banner" data-every="5" data-from="{address}"></div>'

    assert live in text_of(client.get(page(AgentSession, "changelist")))
    assert text_of(client.get(address)).strip() == live
    assert '<div id="halt-banner"></div>' in shown(client)
    halt_all_work(by=user, reason="incident 7", now=clock())
    found = text_of(client.get(address))

    assert "Everything is halted" in found
    assert "incident 7" in found
    assert found.strip() in text_of(client.get(page(AgentSession, "changelist")))


def test_banner_is_small_and_for_staff(client, django_assert_max_num_queries):
    address = reverse("admin:halt_bar")
    assert client.get(address).status_code == 302
    sign_in(client, "viewer")

    with django_assert_max_num_queries(5):
        answer = client.get(address)

    assert "no-store" in answer.headers["Cache-Control"]
    assert "<html" not in text_of(answer)


def test_sign_in_page_does_not_poll(client):
    assert "data-every" not in text_of(client.get(reverse("account_login")))


def test_model_that_is_away_is_named(client):
    sign_in(client)
    ModelOutage.objects.create(model="local", since=NOW, next_try_at=NOW, error="ProviderError: 503 from the server")

    found = shown(client).partition('id="home-attention"')[2]

    assert ">local</a>" in found
    assert "503 from the server" in found
    assert "ProviderError" not in found
