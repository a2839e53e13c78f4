"""Pruning: which runs go, what of them stays, and what does not change."""

import errno
import gzip
import json
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from agents import database_clock
from agents.conf import clock
from agents.exceptions import PruneRefused
from agents.knowledge.findings import findings_expire
from agents.models import (
    AgentSession,
    ArchivedTotal,
    Budget,
    Finding,
    Host,
    Message,
    Notification,
    OutboxMessage,
    SharedText,
    StreamPart,
    ToolCall,
)
from agents.models.shared_texts import named_texts
from agents.retention.prune import RUNS_AT_ONCE, UNPROVEN, plan
from agents.retention.runs import archivable
from agents.retention.sizes import archive_bytes, database_bytes, shown
from agents.retention.sweeps import delete_unnamed_texts
from agents.sessions.figures import (
    ALL,
    Period,
    approval_waits_by_day,
    cost_per_finding_by_day,
    durations_by_day,
    outcomes_by_day,
    spend_by_day,
)
from audit import models as audit_models
from audit.checkpoints import read_lines, replace_key, write_checkpoint
from audit.management.commands import verify_audit
from audit.models import SYSTEM_CHAIN, AuditEvent, Seal, SkillAudit
from audit.receipts import build_receipt
from audit.recorder import append, close_chain
from audit.segments import drop, signed_rows, verify_archive
from audit.verify import verify_log
from lqops.metrics import InstallationCollector
from tests.agents.admin.rows import make_approval, page, sign_in, text_of
from tests.agents.retention.scene import BEFORE, LONG, TODAY, add_call, ended_run, killed, pruned
from tests.audit.samples import NOW, call, edit, later, remove, start
from tests.audit.test_segments import MALFORMED, NEW_SECRET, say, verify_file
from tests.factories import make_channel, make_session, make_unread_input, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def checkpoint_file(tmp_path, settings):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "kept" / "checkpoints.jsonl"
    return settings.LQOPS_CHECKPOINT_FILE


@pytest.fixture
def owner():
    return make_user(username="keeper", is_superuser=True)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "archive"


def lines_of(folder, kind):
    found = []
    for path in sorted(folder.glob(f"{kind}-*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            found += [json.loads(line) for line in file]
    return found


def test_run_is_archived_whole_and_its_row_stays(owner, folder, checkpoint_file):
    run = ended_run(owner)
    events = AuditEvent.objects.filter(chain=run.chain).count()

    done = pruned(folder)

    assert (done.runs, done.held) == (1, {})
    run.refresh_from_db()
    assert run.archived_at == TODAY
    assert run.cost_total_usd == run.spent_usd
    for model in (ToolCall, Message, StreamPart, SkillAudit):
        assert not model.objects.exists()
    content = lines_of(folder, "runs")
    assert sorted({name for line in content for name in line}) == ["message", "run", "skillaudit", "text", "toolcall"]
    assert LONG in [line["text"]["text"] for line in content if "text" in line]
    assert len([line for line in lines_of(folder, "audit") if line.get("chain") == run.chain]) == events
    report = verify_log(head=checkpoint_file)
    verify_archive(folder, report, agreed=signed_rows())
    assert report.problems == []


def test_archived_texts_can_be_put_together_again(owner, folder):
    run = ended_run(owner)
    pruned(folder)

    content = lines_of(folder, "runs")
    texts = {line["text"]["digest"]: line["text"]["text"] for line in content if "text" in line}
    [call] = [line["toolcall"] for line in content if "toolcall" in line]
    [message] = [line["message"] for line in content if "message" in line]
    assert "".join(texts[digest] for digest in named_texts(message["content"])) == LONG
    assert "".join(texts[digest] for digest in named_texts(call["result"]["answer"])) == f"{LONG}{run.pk}"


def test_receipt_says_where_the_run_is(owner, folder, client):
    run = ended_run(owner, agent=None)
    whole = build_receipt(run.chain)
    pruned(folder)

    kept = build_receipt(run.chain)

    assert kept["totals"] == whole["totals"]
    assert kept["head_hash"] == whole["head_hash"]
    assert kept["archived"]["matches"]
    assert (folder / kept["archived"]["file"]).exists()
    client.force_login(owner)
    page = client.get(f"/receipts/{run.chain}/").content.decode()
    assert kept["archived"]["file"] in page
    assert "events intact" not in page
    AgentSession.objects.update(result={**run.__class__.objects.get().result, "head_hash": "0" * 64})
    assert "does not match" in client.get(f"/receipts/{run.chain}/").content.decode()


def test_page_of_an_archived_run_without_activity_does_not_say_that_it_waits(owner, folder, client):
    run = ended_run(owner)
    pruned(folder)
    sign_in(client)

    text = text_of(client.get(page(AgentSession, "change", run.pk)))

    assert "Archived; the receipt names the file." in text
    assert "Queued" not in text
    assert "waiting for a worker" not in text


def test_receipt_of_an_archived_run_is_found_by_the_beginning_of_its_id(owner, folder, capsys):
    run = ended_run(owner)
    pruned(folder)
    beginning = run.chain[:6]

    call_command("audit", "--receipt", beginning)

    said = capsys.readouterr().out
    assert said.startswith(f"Run {run.chain}")
    assert Seal.objects.get(chains__chain=run.chain).statement["file"] in said
    start(f"{beginning}00-0000-4000-8000-000000000001")
    with pytest.raises(CommandError, match="Several sessions begin with"):
        call_command("audit", "--receipt", beginning)


def test_youth_is_kept(owner, folder):
    ended_run(owner, at=BEFORE)

    assert pruned(folder).runs == 0
    assert ToolCall.objects.exists()


def finding(run, **fields):
    return Finding.objects.create(session=run, title="Rent", **fields)


def child(run):
    make_session(owner=run.owner, parent=run)


def lent(run):
    AgentSession.objects.filter(pk=run.pk).update(parent=make_session(owner=run.owner))


def reserved(run):
    AgentSession.objects.filter(pk=run.pk).update(cost_reserved_usd="0.01")


HOLDS = {
    "open approval": lambda run: make_approval(session=run, status="pending"),
    "open question": lambda run: run.questions.create(call_key="k", text="?", asked_at=NOW, expires_at=TODAY),
    "call that is not settled": lambda run: add_call(run, key="open", outcome="started", settled_at=None),
    "call with an unknown outcome": lambda run: add_call(run, key="unknown", outcome="unknown", unknown_since=NOW),
    "open finding of low severity, which expires after 90 days": finding,
    "open finding of higher severity, which waits for people": lambda run: finding(run, severity="critical"),
    "finding that somebody has acknowledged or was assigned": lambda run: finding(run, state="acknowledged"),
    "input that was not read": lambda run: make_unread_input(run.owner, session=run),
    "money that is not settled": reserved,
    "run below it that is not over": child,
    "cap that was not handed back": lent,
}


@pytest.mark.parametrize("reason", HOLDS)
def test_run_of_which_something_waits_is_kept(owner, folder, reason):
    run = ended_run(owner)
    HOLDS[reason](run)

    done = pruned(folder)

    assert (done.runs, done.held) == (0, {reason: 1})
    assert ToolCall.objects.filter(session=run, key="analysis").exists()
    assert AuditEvent.objects.filter(chain=run.chain).exists()


def test_settled_things_hold_nothing(owner, folder):
    run = ended_run(owner)
    finding(run, state="resolved")
    finding(run, about_run=True)
    add_call(run, key="lost", outcome="worker_lost", resolved_at=NOW)
    make_approval(session=run, status="approved", resolved_at=NOW)

    assert pruned(folder).runs == 1
    assert run.findings.count() == 2
    assert run.approvals.count() == 1


def test_run_goes_when_its_findings_have_expired_and_they_stay_readable(owner, folder, client):
    run = ended_run(owner)
    row = finding(run, severity="warn", created_at=NOW, quote="The lessee pays the rent.", quote_check="verified")
    assert pruned(folder).runs == 0

    assert findings_expire(NOW + timedelta(days=90)) == 1

    assert pruned(folder).runs == 1
    assert not ToolCall.objects.filter(session=run).exists()
    assert not AuditEvent.objects.filter(chain=run.chain).exists()
    row.refresh_from_db()
    assert (row.state, row.session_id, row.quote) == ("expired", run.pk, "The lessee pays the rent.")
    sign_in(client)
    shown = client.get(page(Finding, "change", row.pk))
    assert "The lessee pays the rent." in text_of(shown)
    assert "Expired" in text_of(shown)
    assert page(AgentSession, "change", run.pk) in shown.content.decode()
    listed = client.get(page(Finding, "changelist"), {"state": "expired"})
    assert "Rent" in text_of(listed)


def test_without_expiry_findings_of_low_severity_wait_for_people_and_dry_run_says_so(owner, folder, settings):
    settings.LQOPS_FINDING_DAYS = 0
    finding(ended_run(owner))

    assert plan(BEFORE, now=TODAY).held == {"open finding of low severity, which waits for people": 1}


def test_active_run_is_never_touched(owner, folder):
    run = ended_run(owner)
    fields = {"status": "running", "completed_at": None, "terminal_reason": None}
    AgentSession.objects.filter(pk=run.pk).update(**fields)

    assert pruned(folder).runs == 0
    assert ToolCall.objects.filter(session=run).exists()


def test_run_whose_events_were_changed_is_kept_and_told(owner, folder):
    run, other = ended_run(owner), ended_run(owner)
    audit_models.remove(connection)
    edit(run.chain, 2, actor="user:8")
    audit_models.install(connection)

    done = pruned(folder)

    assert (done.runs, done.held) == (1, {UNPROVEN: 1})
    assert ToolCall.objects.filter(session=run).exists()
    assert not ToolCall.objects.filter(session=other).exists()


def test_batches_reach_every_run_once(owner, folder, monkeypatch):
    monkeypatch.setattr("agents.retention.prune.RUNS_AT_ONCE", 2)
    runs = [ended_run(owner) for _ in range(5)]

    done = pruned(folder)

    assert done.runs == len(runs)
    assert [seal.statement["chains"] for seal in Seal.objects.order_by("number")] == [2, 2, 1, 1]
    assert not archivable(BEFORE).exists()
    assert pruned(folder, now=TODAY + timedelta(days=1)).runs == 0


def test_rows_of_system_go_when_they_are_old(owner, folder, checkpoint_file):
    ended_run(owner)
    pruned(folder)

    assert AuditEvent.objects.filter(chain=SYSTEM_CHAIN, at__lt=BEFORE).count() == 0
    assert verify_log(head=checkpoint_file).problems == []


def figures():
    period = Period.last_days(30, NOW)
    kinds = (spend_by_day, outcomes_by_day, durations_by_day, approval_waits_by_day, cost_per_finding_by_day)
    return [kind(period, ALL) for kind in kinds]


def test_charts_budgets_and_totals_do_not_change(owner, folder):
    run = ended_run(owner)
    finding(run, state="resolved")
    make_approval(session=run, status="approved", resolved_by=owner, created_at=NOW, resolved_at=later(60))
    Budget.objects.create(scope="installation", day=NOW.date(), cap_usd=20, charged_usd="0.02")

    def totals():
        metrics = InstallationCollector()._work()
        return {(sample.name, *sample.labels.items()): sample.value for one in metrics for sample in one.samples}

    before = figures(), list(Budget.objects.values()), totals()
    assert any(not one.is_empty for one in before[0])
    assert before[2]

    pruned(folder)

    assert (figures(), list(Budget.objects.values()), totals()) == before
    assert ArchivedTotal.objects.exists()


def test_pruning_is_on_record(owner, folder):
    ended_run(owner)
    pruned(folder, by=owner)

    sealed = AuditEvent.objects.filter(kind="audit.sealed")
    recorded = AuditEvent.objects.get(kind="retention.pruned")
    assert {event.actor for event in (*sealed, recorded)} == {f"user:{owner.pk}"}
    assert recorded.details["runs"] == 1


def test_nothing_younger_than_a_day_is_pruned(owner, folder):
    with pytest.raises(PruneRefused):
        pruned(folder, before=TODAY)


def test_full_disk_is_told_and_gets_its_space_back(owner, folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    ended_run(owner)
    with monkeypatch.context() as disk, pytest.raises(PruneRefused, match="No space left on device"):
        disk.setattr("audit.segments.gzip.GzipFile.write", full)
        pruned(folder)

    assert [path.name for path in folder.iterdir()] == [".lock"]
    assert ToolCall.objects.exists()
    assert pruned(folder).runs == 1


def test_folder_that_cannot_be_written_is_told(owner, tmp_path):
    ended_run(owner)
    (tmp_path / "file").write_text("")
    with pytest.raises(PruneRefused, match="cannot be used"):
        pruned(tmp_path / "file" / "archive")
    assert ToolCall.objects.exists()


# --- From which seal it goes on ---


def newest_seal():
    return Seal.objects.order_by("-number").first()


@pytest.mark.parametrize("is_dropped", [True, False])
def test_newest_seal_of_another_key_stops_pruning(owner, folder, tmp_path, checkpoint_file, is_dropped):
    write_checkpoint(now=later(1))
    ended_run(owner)
    with override_settings(LQOPS_AUDIT_KEY=NEW_SECRET, LQOPS_CHECKPOINT_FILE=tmp_path / "foreign" / "checkpoints"):
        if is_dropped:
            pruned(folder)
        else:
            killed(folder, "agents.retention.prune.drop")
    run = ended_run(owner)
    number, events, line = newest_seal().number, AuditEvent.objects.count(), checkpoint_file.read_bytes()

    with pytest.raises(PruneRefused, match=rf"seal {number}: it is signed with a key that is not one of this instal"):
        pruned(folder)

    assert newest_seal().number == number
    assert AuditEvent.objects.count() == events
    assert ToolCall.objects.filter(session=run).exists()
    assert checkpoint_file.read_bytes() == line


@pytest.mark.usefixtures("checkpoint_file")
def test_first_seal_is_not_recorded_with_another_key(owner, folder):
    """It could never be taken back, and no later one goes on from it."""
    write_checkpoint(now=later(1))
    ended_run(owner)

    with (
        override_settings(LQOPS_AUDIT_KEY=NEW_SECRET),
        pytest.raises(PruneRefused, match=r"no checkpoint can be written: .*Nothing was archived"),
    ):
        pruned(folder)

    assert not Seal.objects.exists()
    assert pruned(folder).runs == 1


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("is_dropped", [True, False])
def test_pruning_goes_on_from_a_seal_of_this_installation(
    owner, folder, settings, checkpoint_file, is_replaced, is_dropped
):
    ended_run(owner)
    if is_dropped:
        pruned(folder)
    else:
        killed(folder, "agents.retention.prune.drop")
    if is_replaced:
        replace_key(NEW_SECRET, by="user:1", now=TODAY)
        settings.LQOPS_AUDIT_KEY = NEW_SECRET
    ended_run(owner)

    assert pruned(folder).runs == (1 if is_dropped else 2)

    assert not ToolCall.objects.exists()
    assert verify_log(head=checkpoint_file).problems == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
def test_malformed_newest_seal_stops_pruning_in_words(owner, folder, malformed):
    ended_run(owner)
    pruned(folder)
    run = ended_run(owner)
    seal = newest_seal()
    audit_models.remove(connection)
    say(seal.number, malformed(seal.statement))

    for dry_run in (True, False):
        with pytest.raises(CommandError, match=rf"seal {seal.number}: it was changed, .* Nothing was archived"):
            call_command("prune", older_than=timedelta(days=90), archive=folder, dry_run=dry_run)

    assert ToolCall.objects.filter(session=run).exists()
    assert newest_seal().number == seal.number


# --- Interrupted, restored ---


def test_segment_of_a_killed_process_is_dropped_after_a_checkpoint_has_signed_its_seal(owner, folder, checkpoint_file):
    ended_run(owner)
    write_checkpoint(now=later(70))
    killed(folder, "audit.segments.write_checkpoint")
    left = newest_seal()
    event = AuditEvent.objects.get(chain=SYSTEM_CHAIN, seq=left.event_seq)
    found = []

    def watched(seal, **options):
        newest = list(read_lines(checkpoint_file))[-1].checkpoint
        found.append((seal.number, newest["system"]))
        return drop(seal, **options)

    with patch("agents.retention.prune.drop", watched):
        assert pruned(folder).runs == 1

    assert found[0] == (left.number, {"seq": event.seq, "hash": event.hash})
    assert verify_log(head=checkpoint_file).problems == []


def test_plan_counts_an_unfinished_segment_once(owner, folder):
    ended_run(owner)
    killed(folder, "agents.retention.prune.drop")
    assert plan(BEFORE, now=TODAY).runs == 1
    second = ended_run(owner)
    add_call(second, key="more")

    would = plan(BEFORE, now=TODAY)

    assert (would.runs, would.calls, would.messages) == (2, 2, 1)  # what was sealed is in its file
    done = pruned(folder)
    assert (would.runs, would.events, would.segments) == (done.runs, done.events, done.segments)
    assert plan(BEFORE, now=TODAY).segments == 0


def test_run_of_a_sealed_segment_that_waits_again_is_named(owner, folder):
    ended_run(owner)
    run = ended_run(owner)
    killed(folder, "agents.retention.prune.drop")
    waiting = finding(run)
    named = rf"^1 runs of a sealed segment wait for somebody again, or are gone: {run.chain}\. Settle what is open"

    with pytest.raises(PruneRefused, match=named):
        pruned(folder)

    assert ToolCall.objects.count() == 2
    assert AuditEvent.objects.filter(chain=run.chain).exists()
    waiting.state = "resolved"
    waiting.save()
    assert pruned(folder).runs == 2


def lose_the_last_rows(run):
    """A restore: two rows that a checkpoint signed are lost, one of them of `system`, and others take their place."""
    audit_models.remove(connection)
    remove(kind="audit.chain_closed")  # the run was not over when the backup was made
    lost = [AuditEvent.objects.filter(chain=chain).count() + 1 for chain in (run.chain, SYSTEM_CHAIN)]
    call(run.chain, "started", second=400)
    append(SYSTEM_CHAIN, "audit.exported", now=later(410), details={"format": "csv"})
    write_checkpoint(now=later(500))
    remove(at__gt=later(300))
    audit_models.install(connection)
    call(run.chain, "success", second=900)
    close_chain(run.chain, now=later(910))
    return lost


def test_pruning_goes_on_after_an_accepted_restore(owner, folder, checkpoint_file, capsys, monkeypatch):
    monkeypatch.setattr(verify_audit, "utc_now", lambda: later(2_000))
    run = ended_run(owner)
    signed_row, signed_system_row = lose_the_last_rows(run)
    named = {(run.chain, signed_row), (SYSTEM_CHAIN, signed_system_row)}
    assert named <= set(signed_rows())
    call_command("verify_audit", "--accept-restore", "--by", "keeper", "--reason", "disk failed")
    assert not named & set(signed_rows())

    done = pruned(folder)

    assert (done.runs, done.held) == (1, {})
    assert not AuditEvent.objects.filter(at__lt=BEFORE).exists()
    capsys.readouterr()
    call_command("verify_audit", "--json", "--archive", str(folder))
    report = json.loads(capsys.readouterr().out)
    assert (report["verified"], report["archived"], report["files"]) == (True, done.events, 3)
    for seal in Seal.objects.order_by("number"):
        code, out, errors = verify_file(folder / seal.statement["file"], "--kept", checkpoint_file)
        assert (code, errors) == (0, "")
        assert f"segment {seal.number} of the archive" in out


def test_row_in_the_place_of_a_lost_one_is_signed_again(owner, folder, checkpoint_file, capsys, monkeypatch):
    """What a checkpoint after the restore names has to agree: only what was lost is excused."""
    monkeypatch.setattr(verify_audit, "utc_now", lambda: later(2_000))
    run = ended_run(owner)
    lose_the_last_rows(run)
    call_command("verify_audit", "--accept-restore", "--by", "keeper", "--reason", "disk failed")
    last = AuditEvent.objects.get(chain=SYSTEM_CHAIN, kind="audit.restore_accepted")

    assert signed_rows()[SYSTEM_CHAIN, last.seq] == last.hash


# --- Long texts ---


def test_texts_that_no_row_names_are_deleted(owner, folder):
    ended_run(owner)
    SharedText.objects.update(used_at=NOW)

    done = pruned(folder)

    assert done.texts == 2
    assert not SharedText.objects.exists()


def test_texts_of_kept_runs_and_texts_used_since_stay(owner, folder):
    run = ended_run(owner)
    finding(run)
    SharedText.objects.update(used_at=NOW)
    add_call(make_session(owner=owner), key="later", arguments={"text": f"{LONG}!"})

    assert delete_unnamed_texts(BEFORE) == 0
    assert Message.objects.get(session=run).content == LONG
    assert ToolCall.objects.get(key="later").arguments == {"text": f"{LONG}!"}


def test_use_of_a_text_is_noted_again_after_a_day(owner):
    call = add_call(make_session(owner=owner), key="k", arguments={"text": LONG})
    SharedText.objects.update(used_at=NOW)

    call.save()

    assert SharedText.objects.get().used_at > NOW + timedelta(days=1)
    assert delete_unnamed_texts(BEFORE) == 0


# --- Other rows ---


def test_rows_that_nobody_needs_are_deleted(owner, folder):
    def notice(**fields):
        return Notification.objects.create(owner=owner, title="Done", **{"created_at": NOW, **fields})

    notice(read_at=NOW)
    unread, young = notice(), notice(read_at=TODAY, created_at=TODAY)
    unsent = notice(read_at=NOW)
    OutboxMessage.objects.create(notification=unsent, channel=make_channel(unsent.owner))
    BrowserSession.objects.create(session_key="a", session_data="", expire_date=TODAY - timedelta(days=1))
    BrowserSession.objects.create(session_key="b", session_data="", expire_date=TODAY + timedelta(days=1))

    done = pruned(folder)

    assert {name: number for name, number in done.rows.items() if number} == {
        "ended browser sessions": 1,
        "read notices": 1,
    }
    assert set(Notification.objects.all()) == {unread, young, unsent}
    assert BrowserSession.objects.get().session_key == "b"


# --- The command ---


def run_command(capsys, **options):
    call_command("prune", **options)
    return capsys.readouterr().out


def test_dry_run_says_what_would_go_and_changes_nothing(owner, folder, capsys):
    run = ended_run(owner)
    finding(ended_run(owner))
    for severity in ("critical", "blocker"):
        finding(ended_run(owner), severity=severity)
    finding(ended_run(owner), severity="critical", assignee=owner)

    facts = json.loads(run_command(capsys, older_than=timedelta(days=90), dry_run=True, json=True, archive=folder))

    assert (facts["runs"], facts["calls"], facts["messages"]) == (1, 1, 1)
    assert facts["held"] == {
        "open finding of low severity, which expires after 90 days": 1,
        "open finding of higher severity, which waits for people": 2,
        "finding that somebody has acknowledged or was assigned": 1,
    }
    assert facts["events"] >= AuditEvent.objects.filter(chain=run.chain).count()
    assert facts["database_bytes"] > 0
    assert not folder.exists()
    assert ToolCall.objects.count() == 5


def test_command_archives_and_says_so(owner, folder, capsys):
    ended_run(owner)

    text = run_command(capsys, older_than=timedelta(days=90), archive=folder, user="keeper")

    assert "Archived 1 runs" in text
    assert archive_bytes(folder) > 0
    assert json.loads(run_command(capsys, older_than=timedelta(days=90), archive=folder, json=True))["runs"] == 0


def test_command_deletes_nothing_unless_somebody_says_how_old(owner, folder, settings, capsys):
    ended_run(owner)
    with pytest.raises(CommandError, match="Say how old"):
        call_command("prune", archive=folder)
    settings.LQOPS_KEEP_RUNS_DAYS = 30
    assert "Archived 1 runs" in run_command(capsys, archive=folder)


@pytest.mark.parametrize("wrong", ["0d", "90", "d", "-1d"])
def test_command_refuses_a_wrong_age(wrong):
    with pytest.raises((CommandError, SystemExit)):
        call_command("prune", f"--older-than={wrong}")


@pytest.mark.parametrize("empty", ["", " "])
def test_command_refuses_an_empty_folder(owner, empty):
    ended_run(owner)
    with pytest.raises(CommandError, match="empty value: give one, or leave the option out"):
        call_command("prune", "--older-than", "90d", "--archive", empty)
    assert ToolCall.objects.exists()


def test_command_refuses_beside_a_live_host_with_other_keys(owner, folder, capsys):
    ended_run(owner)
    other = Host.objects.create(name="other", seen_at=clock(), keys="LQOPS_AUDIT_KEY=0", free_bytes=10**12)

    with pytest.raises(CommandError, match="host other uses another value of LQOPS_AUDIT_KEY"):
        call_command("prune", older_than=timedelta(days=90), archive=folder)

    assert not Seal.objects.exists()
    assert not folder.exists()
    assert "Would archive 1 runs" in run_command(capsys, older_than=timedelta(days=90), archive=folder, dry_run=True)
    Host.objects.filter(pk=other.pk).update(seen_at=clock() - timedelta(days=1))  # it was stopped
    assert "Archived 1 runs" in run_command(capsys, older_than=timedelta(days=90), archive=folder)
    assert list(Host.objects.all()) == [other]  # a process that ends soon is no host


def test_command_sees_the_other_hosts_although_the_clock_here_is_ahead(owner, folder, monkeypatch):
    ended_run(owner)
    ahead = timedelta(minutes=3)
    monkeypatch.setattr(database_clock, "_ask", lambda: clock() - ahead)
    Host.objects.create(name="other", seen_at=clock() - ahead, keys="LQOPS_AUDIT_KEY=0", free_bytes=10**12)

    with pytest.raises(CommandError, match="host other uses another value of LQOPS_AUDIT_KEY"):
        call_command("prune", older_than=timedelta(days=90), archive=folder)


def test_calls_and_messages_are_told_by_a_dry_run_alone(owner, folder, capsys):
    ended_run(owner)
    options = {"older_than": timedelta(days=90), "archive": folder, "json": True}

    would, done = (json.loads(run_command(capsys, dry_run=is_dry, **options)) for is_dry in (True, False))

    assert (would["calls"], would["messages"]) == (1, 1)
    assert would.keys() - done.keys() == {"calls", "messages"}
    assert done.keys() <= would.keys()


def test_more_days_than_there_were_keep_every_run(owner, folder, settings, capsys, durable_commits):
    ended_run(owner)
    settings.LQOPS_KEEP_RUNS_DAYS = 99_999_999

    assert "Would archive 0 runs" in run_command(capsys, archive=folder, dry_run=True)
    assert "Archived 0 runs" in run_command(capsys, archive=folder)
    call_command("doctor", "--json")
    checks = {check["name"]: check["found"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "`manage.py prune` would archive 0 runs" in checks["size of the database"]


def test_command_is_for_superusers(folder):
    make_user(username="somebody")
    with pytest.raises(CommandError, match="no superuser"):
        call_command("prune", older_than=timedelta(days=90), archive=folder, user="somebody")


def test_plan_counts_in_batches(owner, monkeypatch):
    monkeypatch.setattr("agents.retention.prune.RUNS_AT_ONCE", 2)
    for _ in range(3):
        ended_run(owner)

    assert plan(BEFORE, now=TODAY).runs == 3
    assert RUNS_AT_ONCE > 3


def test_sizes_are_shown_in_words():
    assert [shown(size) for size in (12, 12_345, 12_345_678, 9_876_543_210)] == [
        "12 B",
        "12.3 KB",
        "12.3 MB",
        "9.88 GB",
    ]
    assert database_bytes() > 0
