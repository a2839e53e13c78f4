"""Sessions on the admin pages: the list, the page of one, halt, run again, run now."""

import re
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agents.admin import base
from agents.conf import clock
from agents.enums import HaltState, Outcome, Phase, Status, TerminalReason, ToolIntent
from agents.guard.refusals import refuse_call
from agents.ledger.journal import journal_record
from agents.models import (
    Agent,
    AgentSession,
    Finding,
    Halt,
    InboundEvent,
    Message,
    Playbook,
    Project,
    PromptSkill,
    ToolCall,
    Trigger,
)
from agents.sessions.halts import session_halt
from agents.sessions.lifecycle import session_enter_phase
from agents.sessions.pauses import agent_pause
from audit import recorder
from audit.models import AuditEvent
from tests.agents.admin.rows import (
    act_page,
    kinds_since,
    last_event,
    make_approval,
    make_call,
    make_document,
    make_playbook,
    make_skill,
    page,
    sign_in,
    text_of,
)
from tests.factories import NOW, make_agent, make_session, make_trigger, make_user

pytestmark = pytest.mark.django_db

LIST = "admin:agents_agentsession_changelist"
OVER = {"status": Status.COMPLETED, "terminal_reason": "completed", "completed_at": NOW}


def show(client, session, **query):
    return client.get(page(AgentSession, "change", session.pk), query)


def choose(client, model, act, *rows, **more):
    chosen = {"action": act, "_selected_action": [row.pk for row in rows], **more}
    return client.post(page(model, "changelist"), chosen, follow=True)


# --- The list ---


def test_list_shows_purpose_status_and_cost(client):
    owner = sign_in(client)
    document, playbook = make_document(owner, name="acme.txt"), make_playbook(owner, "NDA")
    make_session(max_cost_usd=None)
    make_session(max_cost_usd="0.25", cost_total_usd="0.238123")
    make_session(params={"document": str(document.public_id), "playbook": str(playbook.public_id)})
    make_session(status=Status.WAITING, waiting_on="approval", trigger=make_trigger(name="Nightly"))
    make_session(halt_state=HaltState.HALT_REQUESTED)
    make_session(**OVER, started_at=NOW)

    found = text_of(client.get(reverse(LIST)))

    for words in ("acme.txt by NDA", "waiting for approval", "Nightly", "halt requested", "run by hand"):
        assert words in found, words
    assert '<span class="lq-warn" title="$0.238123. Cap: $0.25">$0.2381</span>' in found
    assert '<span class="" title="$0.00. Cap: —">$0.00</span>' in found


READING = {"room": 60_000, "sections": 23, "read": 6, "estimate_usd": "0.120000"}


def chips(html):
    return re.findall(r'class="lq-chip (\w*)"[^>]*>([\w ]+)<', html)


def test_list_shows_results_and_can_be_filtered_by_them(client):
    sign_in(client)
    make_session(**OVER, run_result="partial", params={"query": "alpha"})
    make_session(**OVER, run_result="ok", params={"query": "bravo"})
    make_session(current_phase=Phase.ANALYSIS, metadata={"reading": READING}, params={"query": "charlie"})

    found = text_of(client.get(reverse(LIST)))

    assert "running: section 7 of 23" in found
    filtered = text_of(client.get(reverse(LIST), {"run_result__exact": "partial"}))
    assert "alpha" in filtered
    assert "bravo" not in filtered
    row = filtered.partition("alpha")[2].partition("</tr>")[0]
    assert "partial" in row
    assert "green" not in row


def test_page_shows_the_result_and_its_reason(client):
    sign_in(client)
    session = make_session(**OVER, run_result="partial", result_reason="Not checked: lease.txt")

    found = text_of(show(client, session))

    assert chips(found)[:2] == [("warn", "partial"), ("warn", "completed")]
    assert "Not checked: lease.txt" in found
    assert "Partly done: not everything was checked." in found


@pytest.mark.parametrize(
    ("result", "chip"),
    [
        ("ok", [("good", "ok"), ("good", "completed")]),
        ("findings", [("info", "findings"), ("info", "completed")]),
        ("empty", [("", "empty"), ("", "completed")]),
        ("failed", [("bad", "failed"), ("bad", "completed")]),
    ],
)
def test_no_run_that_failed_is_shown_as_a_green_completed(client, result, chip):
    sign_in(client)
    assert chips(text_of(show(client, make_session(**OVER, run_result=result))))[:2] == chip


def test_page_shows_how_far_a_run_has_read(client):
    sign_in(client)
    session = make_session(current_phase=Phase.ANALYSIS, metadata={"reading": READING})
    assert "section 7 of 23, about $0.12" in text_of(show(client, session))
    session.metadata["reading"]["stopped"] = "no money"
    session.save()
    assert "section 7" not in text_of(show(client, session))


def test_sleeping_run_says_when_it_wakes_and_nothing_of_an_end(client):
    sign_in(client)
    session = make_session(Status.SLEEPING, next_wake_at=clock() + timedelta(minutes=7))
    found = text_of(show(client, session))
    assert re.search(r"<dt>Wakes</dt><dd>in [67] minutes", found)
    assert "<dt>Ended</dt>" not in found


def test_run_that_ended_before_its_first_call_is_not_called_queued(client):
    sign_in(client)
    found = text_of(show(client, make_session(**OVER)))
    assert "the run ended before its first call" in found
    assert "Queued: waiting for a worker" not in found


def test_request_of_the_engine_to_its_model_is_named_a_model_call(client):
    sign_in(client)
    make_call(make_session(), model="m", intent="run_skill", name="")
    found = text_of(client.get(page(ToolCall, "changelist")))
    assert "model call" in found
    assert ">run_skill<" not in found


@pytest.mark.parametrize("model", [AgentSession, Finding, Trigger])
def test_filters_hold_no_markup(client, model):
    """An empty value, such as a run without an agent, stands in the attributes of its link."""
    sign_in(client)
    session = make_session()
    Finding.objects.create(session=session, title="Late", content="", severity="warn")
    make_trigger()
    found = text_of(client.get(page(model, "changelist")))
    assert "lq-none&quot;" not in found
    assert 'title="<' not in found
    assert "&lt;span" not in found


def test_unknown_params_do_not_break_the_list(client):
    sign_in(client)
    make_session(params={"document": "no-id", "playbook": "x", "query": "late fees", "skill": "summarise"})

    assert "“late fees” by summarise" in text_of(client.get(reverse(LIST)))


# --- Halting ---


def test_halt_asks_first_and_counts_runs(client):
    user = sign_in(client, "operator")
    running, halted = make_session(), make_session(halt_state=HaltState.HALT_REQUESTED)
    over = make_session(**OVER)

    asked = choose(client, AgentSession, "halt", running, halted, over)
    assert "Stored with the halt" in text_of(asked)
    assert not Halt.objects.exists()

    done = choose(client, AgentSession, "halt", running, halted, over, confirmed="1", reason="wrong folder")

    assert "Halt requested for 1 run. 1 run was halted already. 1 run has ended already." in text_of(done)
    halt = Halt.objects.get()
    assert (halt.requested_by, halt.reason, halt.session) == (user, "wrong folder", running)
    running.refresh_from_db()
    assert running.halt_state == HaltState.HALT_REQUESTED


def test_halt_names_the_run_and_its_call_and_needs_no_reason(client):
    sign_in(client)
    session = make_session(metadata={"purpose": "Check the lease"})
    call = make_call(session, outcome="started", name="send_letter")

    asked = text_of(choose(client, AgentSession, "halt", session))
    assert f"Check the lease ({str(session.public_id)[:8]}): running" in asked
    assert f"Call in flight: {call.name}" in asked
    choose(client, AgentSession, "halt", session, confirmed="1", reason=" ")
    assert Halt.objects.get().reason == ""


def test_run_is_paused_and_resumed(client):
    sign_in(client)
    agent = make_agent()
    session = make_session("queued", agent=agent)
    choose(client, AgentSession, "pause", session, confirmed="1", reason="a look")
    page = text_of(client.get(reverse("admin:agents_agentsession_change", args=[session.pk])))
    assert "The run is paused by" in page
    assert "Resume run" in page
    assert "Pause run" not in page

    agent_pause(agent=agent, by=None, now=NOW)
    said = text_of(choose(client, AgentSession, "resume", session, confirmed="1"))
    assert f"stays paused. Agent {agent.name} is paused" in said


def test_failed_halt_is_reported(client, monkeypatch):
    sign_in(client)
    session = make_session()

    def refuse(*args, **more):
        raise DatabaseError

    monkeypatch.setattr("agents.sessions.halts.session_halt", refuse)
    answer = choose(client, AgentSession, "halt", session, confirmed="1", reason="x")

    assert "1 run not halted" in text_of(answer)


def test_session_is_halted_from_row_and_page(client):
    sign_in(client, "operator")
    session, before = make_session(), last_event()
    address = act_page(session, "halt")
    assert address in text_of(client.get(reverse(LIST)))
    assert address in text_of(show(client, session))

    client.get(address)
    assert kinds_since(before) == ["session.viewed"]
    client.post(address, {"confirmed": "1", "reason": "x"})

    assert set(kinds_since(before)[1:]) == {"audit.chain_opened", "autonomous_session.halt_requested"}


def test_sessions_of_an_agent_are_halted_on_its_page(client):
    sign_in(client, "operator")
    agent = make_agent()
    mine, other = make_session(agent=agent), make_session()
    make_session(agent=agent, **OVER)

    answer = client.post(act_page(agent, "halt"), {"confirmed": "1", "reason": "x"}, follow=True)

    assert "Halt requested for 1 run." in text_of(answer)
    assert AgentSession.objects.get(pk=mine.pk).halt_state == HaltState.HALT_REQUESTED
    assert AgentSession.objects.get(pk=other.pk).halt_state == HaltState.RUNNING


def test_several_agents_are_halted_from_the_list(client):
    sign_in(client)
    agents = [make_agent(), make_agent()]
    for agent in agents:
        make_session(agent=agent)

    answer = choose(client, Agent, "halt", *agents, confirmed="1", reason="x")

    assert "Halt requested for 2 runs" in text_of(answer)


def test_readers_cannot_halt(client):
    sign_in(client, "viewer")
    session = make_session()

    choose(client, AgentSession, "halt", session, confirmed="1", reason="x")
    assert client.post(act_page(session, "halt"), {"confirmed": "1", "reason": "x"}).status_code == 403
    assert act_page(session, "halt") not in text_of(show(client, session))

    assert AgentSession.objects.get(pk=session.pk).halt_state == HaltState.RUNNING


def test_unknown_action_is_not_found(client):
    sign_in(client)

    assert client.get(act_page(make_session(), "launch")).status_code == 404
    assert client.get(page(AgentSession, "act", 999_999, "halt")).status_code == 404


def test_too_many_rows_are_refused(client, monkeypatch):
    sign_in(client)
    monkeypatch.setattr("agents.admin.base.MAX_ROWS", 1)

    answer = choose(client, AgentSession, "halt", make_session(), make_session(), confirmed="1", reason="x")

    assert "Select at most 1 rows." in text_of(answer)
    assert not Halt.objects.exists()


# --- The page of one session ---


def full_session(owner):
    session = make_session(owner=owner, agent=make_agent(owner=owner), current_phase=Phase.INTAKE, started_at=NOW)
    session_enter_phase(session, Phase.ANALYSIS, now=NOW)
    call = make_call(session, intent=ToolIntent.RUN_PLAYBOOK, name="nda", model="test-model", key="a:1", error="slow")
    call.outcome = Outcome.STARTED
    journal_record(call, now=NOW + timedelta(seconds=1))
    call.outcome = Outcome.SUCCESS
    journal_record(call, now=NOW + timedelta(seconds=3))
    refuse_call(
        session, {"tool": ToolIntent.NOTIFY}, "analysis", Outcome.DENIED, now=NOW, brake=None, detail="budget_spent"
    )
    session_halt(session.pk, by=owner, reason="reads <i>too</i> much", now=NOW + timedelta(seconds=4))
    document = make_document(owner)
    Finding.objects.create(
        session=session,
        severity="critical",
        title="Too long",
        document=document,
        quote="five years",
        quote_start=12,
        quote_end=22,
        quote_check="verified",
        location="page 7 to page 8",
        judges_for=2,
        judges_asked=3,
    )
    Finding.objects.create(session=session, title="Made up", quote="nowhere", quote_check="unverified")
    return session


def test_page_shows_phases_calls_cost_halts_and_findings(client):
    session = full_session(sign_in(client))

    found = text_of(show(client, session))

    for words in (
        "analysis",
        "Model call to test-model",
        "2.0 s",
        "slow",
        "refused by a budget",
        "a shared budget is used up",
        "A halt was requested.",
        "Reason: reads &lt;i&gt;too&lt;/i&gt; much",
        "Too long",
        "Quote verified",
        ", page 7 to page 8, characters 12",
        "2 of 3 judges agree",
        "Quote not found in the document",
        f"{reverse('audit:receipt', args=[session.chain])}",
        f"#finding-{session.findings.first().pk}",
    ):
        assert words in found, words


def test_findings_are_counted_alike_everywhere_and_notes_are_named_apart(client, monkeypatch):
    session = full_session(sign_in(client))
    Finding.objects.create(session=session, title="Two pages were not read", about_run=True)

    found = text_of(show(client, session))

    assert '<dt>Findings</dt><dd>2 <span class="lq-faint">and 1 note</span></dd>' in found
    assert '<h2>Findings</h2><span class="lq-faint">2</span>' in found
    notes = found.partition("Notes about the run")[2]
    assert "Two pages were not read" in notes
    monkeypatch.setattr("agents.admin.sessions.SHOWN_FINDINGS", 1)
    assert '<span class="lq-faint">2, the first 1 are shown</span>' in text_of(show(client, session))


def test_ids_digests_errors_and_data_have_buttons_to_copy_them(client):
    session = full_session(sign_in(client))
    AgentSession.objects.filter(pk=session.pk).update(error="The model did not answer.")
    call = session.tool_calls.first()

    run, one = text_of(show(client, session)), text_of(client.get(page(ToolCall, "change", call.pk)))

    for what in ("run id", "error", "parameters", "digest", "arguments as shown"):
        assert f'aria-label="Copy {what}"' in run, what
    assert f'data-copy="{call.digest}"' in run
    for what in ("run id", "error", "digest", "arguments"):
        assert f'aria-label="Copy {what}"' in one, what


def test_cost_of_the_run_is_shown_once(client):
    session = make_session(owner=sign_in(client), cost_total_usd="0.0194", max_cost_usd="0.50")

    head = text_of(show(client, session)).partition('id="run-status"')[2].partition("Cost details")[0]

    assert head.count("$0.0194") == 1
    assert head.count("$0.50") == 1


def test_page_shows_the_end_and_who_halted_it(client):
    owner = sign_in(client)
    session = make_session(owner=owner, status=Status.QUEUED)
    session_halt(session.pk, by=owner, reason="enough", now=NOW)
    make_approval(session)

    found = text_of(show(client, session))

    assert "The run was halted: requested by a person." in found
    assert f'<span class="lq-faint">{owner.username}</span>' in found
    assert "Halted by a person." in found
    assert "Needs attention" in found


def test_run_whose_log_was_changed_can_be_opened(client):
    sign_in(client)
    session = make_session()
    ids = dict.fromkeys(("call_id", "halt_id", "question_id", "approval_id"), "no id")
    AuditEvent.objects.create(
        chain=session.chain, seq=1, kind="autonomous_session.tool_call", at=NOW, details=ids, hash="f" * 64
    )

    assert "Timeline" in text_of(show(client, session))


def test_logged_note_is_in_the_timeline(client):
    session = make_session(owner=sign_in(client))
    recorder.append(session.chain, "session.paused", now=NOW, details={"idle_seconds": 301})

    assert "idle for 301 seconds" in text_of(show(client, session))


def test_page_shows_inputs_with_versions(client):
    owner = sign_in(client)
    playbook, document = make_playbook(owner, "NDA"), make_document(owner)
    noted = {"playbook_id": str(playbook.public_id), "playbook_version": 7, "memories": 2}
    session = make_session(
        owner=owner,
        project=Project.objects.create(owner=owner, name="Acme"),
        context_version=4,
        metadata={"inputs": noted},
        params={"document": str(document.public_id), "skill": "summarise", "query": "q"},
    )

    found = text_of(show(client, session))

    assert "context version 4" in found
    assert "NDA</a>, version 7" in found
    assert document.name in found
    assert "summarise" in found


def test_page_of_a_run_that_an_event_started_shows_the_event(client):
    owner = sign_in(client)
    event = InboundEvent.objects.create(
        owner=owner,
        outcome="spawned",
        title="Signed \u202e<i>",
        source="crm",
        event_type="contract.signed",
        data={"no": 7},
    )
    session = make_session(owner=owner, params={"event": {"id": str(event.public_id)}})

    found = text_of(show(client, session)).partition('id="run-inputs"')[2].partition("</section>")[0]

    for words in ("Signed ⟨U+202E⟩&lt;i&gt;", "from crm, type contract.signed, received ", "&quot;no&quot;: 7"):
        assert words in found, words
    assert page(InboundEvent, "change", event.pk) in found
    event.delete()
    assert f"{event.public_id}</span>" in text_of(show(client, session)).partition('id="run-inputs"')[2]


def test_page_shows_the_agent_with_the_version_of_its_definition(client):
    agent = make_agent(name="Reader", definition_version=5)
    session = make_session(owner=sign_in(client), agent=agent, definition_version=3)

    found = text_of(show(client, session)).partition('id="run-inputs"')[2]

    assert "Reader</a>, definition version 3" in found
    assert "(changed since, now version 5)" in found


def inputs_on_page(client, session):
    return text_of(show(client, session)).partition('id="run-inputs"')[2].partition("</section>")[0]


def test_page_says_whether_instructions_changed_since_the_run(client):
    owner = sign_in(client)
    playbook, skill = make_playbook(owner, "NDA"), make_skill(version=2)
    project = Project.objects.create(owner=owner, name="Acme", context_version=4)
    noted = {"playbook_id": str(playbook.public_id), "playbook_version": 1, "playbook_digest": playbook.digest}
    noted |= {"skill_id": str(skill.public_id), "skill_version": 2, "skill_digest": skill.digest, "memories": 0}
    agent = make_agent(owner=owner, definition_version=3)
    more = {"agent": agent, "definition_version": 3, "project": project, "context_version": 4}
    session = make_session(owner=owner, metadata={"inputs": noted}, params={"skill": skill.name}, **more)

    found = inputs_on_page(client, session)
    assert found.count("(unchanged since)") == 4
    assert page(PromptSkill, "change", skill.pk) in found
    assert "</a>, version 2" in found

    Playbook.objects.update(digest="9" * 64, version=8)
    PromptSkill.objects.update(digest="9" * 64, version=9)
    Project.objects.update(context_version=7)
    changed = inputs_on_page(client, session)
    assert [f"(changed since, now version {number})" in changed for number in (7, 8, 9)] == [True] * 3

    Playbook.objects.update(deleted_at=NOW)
    skill.delete()
    assert inputs_on_page(client, session).count("(deleted since)") == 2


def test_run_that_noted_no_digest_says_nothing_about_changes(client):
    owner = sign_in(client)
    make_skill()
    session = make_session(owner=owner, params={"skill": "summarise"})
    found = inputs_on_page(client, session)
    assert "summarise" in found
    assert " since" not in found


def test_deleted_input_is_shown_by_id(client):
    owner = sign_in(client)
    gone = "0b2d1c9e-0000-4000-8000-000000000000"
    session = make_session(owner=owner, params={"playbook": gone, "document": "nonsense"})

    found = text_of(show(client, session))

    assert gone in found
    assert "nonsense" in found


def test_only_the_page_of_an_active_run_refreshes(client):
    owner = sign_in(client)

    assert '<span id="run-refresh" hidden data-every="4"' in text_of(show(client, make_session(owner=owner)))
    assert '<span id="run-refresh" hidden></span>' in text_of(show(client, make_session(owner=owner, **OVER)))


def test_each_part_of_the_page_is_refreshed_by_its_id(client):
    found = text_of(show(client, full_session(sign_in(client))))

    [names] = re.findall(r'data-with="(run-[^"]+)"', found)
    for name in (name for name in names.split() if name.startswith("run-")):
        assert found.count(f'id="{name}"') == 1, name
    assert "<details>" not in found
    assert '<details class="lq-raw"' not in found.partition('id="session-live"')[2]


def test_owner_follows_the_status_of_the_run_and_others_poll(client):
    session = make_session(owner=sign_in(client))
    stream = reverse("api:stream", args=[session.public_id])

    assert f'data-status="{stream}?after=' in text_of(show(client, session))
    assert "data-status" not in text_of(show(client, make_session()))


def test_run_has_keys_for_its_buttons_and_its_neighbours(client):
    owner = sign_in(client)
    agent = make_agent(owner=owner)
    older, session, newer = (make_session(owner=owner, agent=agent, mode="phased", **OVER) for _ in range(3))

    keys = dict(re.findall(r'data-key="(\w)" href="([^"]+)"', text_of(show(client, session))))

    assert keys == {
        "k": page(AgentSession, "change", newer.pk),
        "j": page(AgentSession, "change", older.pk),
        "r": act_page(session, "restart"),
        "c": page(AgentSession, "compare", session.pk),
    }
    active = make_session(owner=owner)
    assert f'data-key="p" href="{act_page(active, "pause")}"' in text_of(show(client, active))


def test_rows_of_the_waterfall_are_reached_by_keyboard_and_say_their_times(client):
    found = text_of(show(client, full_session(sign_in(client)))).partition('id="run-waterfall"')[2]
    rows = found.partition("</section>")[0].split('<div role="listitem">')[1:]

    assert rows
    for row in rows:
        assert 'tabindex="0"' in row or "<a href=" in row or "<summary" in row
        assert re.search(r'lq-fall-times lq-faint">[^<]*from \d\d:\d\d:\d\d to \d\d:\d\d:\d\d UTC', row)


def test_long_session_shows_its_latest_part(client, monkeypatch):
    owner = sign_in(client)
    monkeypatch.setattr("agents.sessions.reads.SHOWN_EVENTS", 3)
    session = make_session(owner=owner)
    for number in range(5):
        refuse_call(
            session, {"tool": ToolIntent.NOTIFY}, "turn", Outcome.DENIED, now=NOW, brake=None, detail=f"said{number}"
        )

    found = text_of(show(client, session))

    assert "latest part" in found
    assert "said4" in found
    assert "said1" not in found


def viewed():
    return AuditEvent.objects.filter(kind="session.viewed")


def test_view_by_the_owner_is_not_recorded(client):
    session = make_session(owner=sign_in(client))

    show(client, session)

    assert not viewed().exists()


def test_view_by_others_is_recorded_once_per_view(client):
    user = sign_in(client, "viewer")
    session = make_session()

    answer = show(client, session)
    show(client, session, look=answer.context["token"])

    event = viewed().get()
    assert event.actor == f"user:{user.pk}"
    assert event.details == {"session_id": str(session.public_id)}
    assert event.request_id == answer.headers["X-Request-ID"]


def test_foreign_or_expired_token_is_a_new_view(client, monkeypatch):
    user = sign_in(client, "viewer")
    session, other = make_session(), make_session()
    marks = [
        base.view_token(user, other),
        base.view_token(make_user(), session),
        f"{session.pk}:{user.pk}",
        "x",
    ]
    for mark in marks:
        show(client, session, look=mark)
    assert viewed().count() == len(marks)

    monkeypatch.setattr(base, "VIEW_LASTS", timedelta(seconds=-1))
    show(client, session, look=base.view_token(user, session))
    assert viewed().count() == len(marks) + 1


# --- Run again and run now ---


def test_ended_session_is_run_again(client):
    user = sign_in(client, "operator")
    playbook = make_playbook(user)
    session = make_session(owner=user, params={"playbook": str(playbook.public_id), "query": "late fees"}, **OVER)
    before = last_event()

    answer = client.post(act_page(session, "restart"), {"confirmed": "1"}, follow=True)

    again = AgentSession.objects.get(restarted_from=session)
    assert "1 run started again." in text_of(answer)
    assert kinds_since(before) == ["autonomous_trigger.run_now"]
    assert f'href="{page(AgentSession, "change", again.pk)}">Open run {str(again.public_id)[:8]}' in text_of(answer)


def test_restart_form_says_what_the_cap_was_and_that_it_was_too_low(client):
    user = sign_in(client, "operator")
    stopped = OVER | {"status": Status.HALTED, "terminal_reason": TerminalReason.COST_CAP_REACHED}
    session = make_session(owner=user, max_cost_usd="0.001", **stopped)
    stopped |= {"terminal_reason": TerminalReason.BUDGET_EXCEEDED, "error": "The budget of the day is spent."}
    of_a_day = make_session(owner=user, max_cost_usd="0.001", **stopped)
    of_trigger = make_session(owner=user, trigger=make_trigger(owner=user, max_cost_usd="0.5"), **OVER)

    shown = text_of(client.get(act_page(session, "restart")))

    assert "The cap of this run was $0.001. Empty: the same cap." in shown
    assert "give the new one more" in shown
    shown = text_of(client.get(act_page(of_trigger, "restart")))
    assert "Empty: $0.50, the cap of its trigger." in shown
    assert "give the new one more" not in shown
    shown = text_of(client.get(act_page(of_a_day, "restart")))
    assert "a budget was used up. The budget of the day is spent." in shown
    assert "give the new one more" not in shown


def test_refused_restart_says_why(client):
    user = sign_in(client)
    session = make_session(owner=user, params={"playbook": "0b2d1c9e-0000-4000-8000-000000000000"}, **OVER)

    answer = client.post(act_page(session, "restart"), {"confirmed": "1"})

    assert "There is no such playbook, or it was deleted." in text_of(answer)
    assert not AgentSession.objects.filter(restarted_from=session).exists()


def test_run_is_started_with_own_inputs(client):
    user = sign_in(client, "operator")
    mine, other = make_playbook(user, "Mine"), make_playbook(make_user(), "Somebody else's")
    address = page(AgentSession, "add")
    form = text_of(client.get(address))
    assert "Mine (version 1)" in form
    assert "Somebody else" not in form

    refused = client.post(address, {"playbook": other.pk})
    assert "Select a valid choice" in text_of(refused)
    answer = client.post(address, {"playbook": mine.pk, "query": "late fees", "max_cost_usd": "0.5"})

    session = AgentSession.objects.get()
    assert answer.url == page(AgentSession, "change", session.pk)
    assert (session.owner, str(session.max_cost_usd)) == (user, "0.500000")


def test_estimate_starts_nothing_and_says_that_the_cap_is_too_low(client):
    user = sign_in(client, "operator")
    given = {"playbook": make_playbook(user).pk, "document": make_document(user, text="A clause. " * 9_000).pk}

    shown = text_of(client.post(page(AgentSession, "add"), {**given, "max_cost_usd": "0.001", "estimate": "1"}))
    enough = text_of(client.post(page(AgentSession, "add"), {**given, "max_cost_usd": "5", "estimate": "1"}))
    neither = text_of(client.post(page(AgentSession, "add"), {"goal": "Find it", "estimate": "1"}))

    assert "2 sections, about $" in shown
    assert ["The cap above is lower" in text for text in (shown, enough)] == [True, False]
    assert "An estimate needs a document or a collection" in neither
    assert not AgentSession.objects.exists()


def test_run_needs_only_a_playbook(client):
    mine = make_playbook(sign_in(client, "operator"))

    client.post(page(AgentSession, "add"), {"playbook": mine.pk})

    assert AgentSession.objects.get().params == {"playbook": str(mine.public_id)}


def test_invalid_run_is_explained_at_its_field(client):
    sign_in(client)

    answer = client.post(page(AgentSession, "add"), {})

    assert "exactly one playbook or skill, or a goal" in str(answer.context["form"].errors["playbook"])


def test_findings_and_timeline_come_before_the_transcript(client):
    session = make_session(owner=sign_in(client), params={"goal": "Find every lease"})
    Message.objects.create(session=session, seq=1, role="assistant", content="A long thought.", created_at=NOW)

    found = text_of(client.get(page(AgentSession, "change", session.pk)))

    places = [found.index(words) for words in ("lq-spent", "<h2>Findings", "<h2>Timeline", "A long thought.")]
    assert places == sorted(places)
    assert "<details" in found[places[2] : places[3]]


# --- Run again with changes ---


def test_form_of_a_new_run_is_filled_in_like_an_earlier_one(client):
    user = sign_in(client)
    playbook, document = make_playbook(user), make_document(user)
    over = {"status": "completed", "terminal_reason": "completed", "completed_at": NOW}
    params = {"playbook": str(playbook.public_id), "document": str(document.public_id), "emit_artifacts": True}
    run = make_session(owner=user, mode="phased", params=params, max_cost_usd="0.75", **over)
    address = f"{reverse('admin:agents_agentsession_add')}?like={run.pk}"
    assert address in text_of(client.get(page(AgentSession, "change", run.pk)))

    form = client.get(address).context["form"]
    assert (form["playbook"].value(), form["document"].value()) == (playbook.pk, document.pk)
    assert (form["emit_artifacts"].value(), str(form["max_cost_usd"].value())) == (True, "0.75")
    client.post(address, {"playbook": playbook.pk, "document": document.pk, "max_cost_usd": "1"})

    again = AgentSession.objects.exclude(pk=run.pk).get()
    assert (again.restarted_from, str(again.max_cost_usd), again.spec.emit_artifacts) == (run, "1.000000", False)


@pytest.mark.parametrize("like", ["", "x", "9" * 30, "{other}"])
def test_form_of_a_new_run_shows_nothing_of_other_runs(client, like):
    sign_in(client)
    other = make_session(mode="phased", params={"goal": "a secret"})
    found = client.get(f"{reverse('admin:agents_agentsession_add')}?like={like.format(other=other.pk)}")
    assert "a secret" not in text_of(found)


# --- Comparing two runs ---


def test_run_is_compared_with_another_of_its_trigger(client):
    user = sign_in(client)
    trigger = make_trigger(owner=user)
    facts = {"owner": user, "trigger": trigger, "mode": "phased", **OVER}
    playbook = make_playbook(user)
    older = make_session(params={"query": "rent"}, **facts)
    newer = make_session(params={"query": "<b>notice</b>", "playbook": str(playbook.public_id)}, **facts)
    make_session(owner=user, mode="phased", **OVER)
    for session, title in ((older, "Late fees"), (newer, "Late fees"), (newer, "No cap")):
        Finding.objects.create(session=session, title=title, severity="warn")

    found = client.get(page(AgentSession, "compare", newer.pk))

    assert found.context["other"] == older
    assert found.context["titles"] == [("Late fees", "warn", "warn"), ("No cap", "warn", "")]
    facts = {name: (one, two, differs) for name, one, two, differs in found.context["facts"]}
    assert facts["Query"] == ("<b>notice</b>", "rent", True)
    assert facts["Playbook"][:2] == (playbook.name, "none")
    assert facts["Cap"] == ("$5.00", "$5.00", False)
    assert "&lt;b&gt;notice&lt;/b&gt;" in text_of(found)
    chosen = client.get(page(AgentSession, "compare", older.pk), {"with": str(newer.pk)})
    assert chosen.context["other"] == newer


def test_run_of_an_agent_is_compared_with_runs_of_that_agent_and_a_lone_one_with_none(client):
    user = sign_in(client)
    agent = make_agent(owner=user)
    first, second = (make_session(owner=user, agent=agent, mode="phased") for _ in range(2))
    assert client.get(page(AgentSession, "compare", first.pk)).context["other"] == second
    alone = make_session(owner=user, mode="phased")
    assert "No other run" in text_of(client.get(page(AgentSession, "compare", alone.pk)))
    assert client.get(page(AgentSession, "compare", 10**9)).status_code == 404


def test_comparing_takes_the_same_number_of_statements_however_many_runs_there_are(client):
    user = sign_in(client)
    trigger = make_trigger(owner=user)
    runs = [make_session(owner=user, trigger=trigger, mode="phased", **OVER) for _ in range(3)]
    address = page(AgentSession, "compare", runs[0].pk)
    client.get(address)
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    for number in range(12):
        run = make_session(owner=user, trigger=trigger, mode="phased", **OVER)
        Finding.objects.create(session=run, title=f"F{number}", severity="warn")
    with CaptureQueriesContext(connection) as many:
        client.get(address)
    assert len(many) == len(few)


def test_comparison_is_recorded_as_a_view_of_both_runs(client):
    sign_in(client)
    trigger = make_trigger()
    runs = [make_session(owner=trigger.owner, trigger=trigger, mode="phased", **OVER) for _ in range(2)]
    client.get(page(AgentSession, "compare", runs[0].pk))
    viewed = AuditEvent.objects.filter(kind="session.viewed").values_list("details__session_id", flat=True)
    assert set(viewed) == {str(run.public_id) for run in runs}


def test_waits_of_a_run_are_folded_or_drawn_to_scale(client):
    sign_in(client)
    ended = {**OVER, "completed_at": NOW + timedelta(seconds=2)}
    session = make_session(**ended, started_at=NOW, created_at=NOW - timedelta(hours=1))
    recorder.append(session.chain, "autonomous_session.started", now=NOW, details={"mode": "phased"})

    folded, to_scale = text_of(show(client, session)), text_of(show(client, session, scale="time"))

    assert "waits of 1h 00m are folded" in folded
    assert "lq-fall-bar wait warn folded" in folded
    assert "?scale=time#waterfall" in folded
    assert "are folded" not in to_scale
    assert "Fold waits" in to_scale
