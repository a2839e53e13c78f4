"""Faults of the installation: red at once, told once, whether or not a ticker works."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from agents import __version__
from agents.enums import NoticeKind, OutboxStatus, Outcome, Purpose, Status
from agents.exceptions import KeysDiffer
from agents.ledger.journal import KEY_REFUSED
from agents.models import Alarm, Host, InferenceLog, Lease, ModelOutage, Notification, OutboxMessage
from agents.sessions import faults
from agents.sessions.alarms import alarms_update
from agents.sessions.control_room import health
from agents.ticker import StandIn, Ticker
from tests.agents.admin.rows import make_call
from tests.agents.people.mail_server import mail_server
from tests.factories import NOW, make_session, make_user
from tests.flows.processes import until

pytestmark = pytest.mark.django_db

SECONDS = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def _checkpoints(settings, tmp_path):
    settings.LQOPS_CHECKPOINT_FILE = tmp_path / "audit" / "checkpoints.jsonl"


@pytest.fixture(autouse=True)
def ticker():
    return Lease.objects.create(name="ticker", owner="host:1", done_at=NOW)


@pytest.fixture
def operator():
    return make_user(is_superuser=True)


def failing(model="broken", outcomes=(Outcome.GATEWAY_ERROR,) * 3, at=NOW):
    for outcome in outcomes:
        InferenceLog.objects.create(model=model, purpose=Purpose.CHAT, outcome=outcome, created_at=at)


def other_host(**fields):
    defaults = {"seen_at": NOW, "keys": faults.keys_fingerprint(), "free_bytes": 10**12, "version": __version__}
    return Host.objects.create(name="other", **{**defaults, **fields})


def told():
    return list(Notification.objects.filter(kind=NoticeKind.FAULT).order_by("pk").values_list("title", flat=True))


def break_ticker(settings):
    Lease.objects.update(done_at=NOW - 31 * SECONDS)


def break_queue(settings):
    make_session(Status.QUEUED, enqueued_at=NOW - 61 * SECONDS)


def break_disk(settings):
    settings.LQOPS_MIN_FREE_MB = 10**12
    faults.host_report(NOW)


def break_model(settings):
    failing()


def break_migrations(settings):
    MigrationRecorder(connection).record_unapplied("agents", "0006_model_outages")


def break_checkpoint_file(settings):
    settings.LQOPS_CHECKPOINT_FILE.mkdir(parents=True)
    faults.host_report(NOW, writes_checkpoints=True)


def break_keys(settings):
    faults.host_report(NOW)
    other_host(keys=faults.keys_fingerprint().replace("LQOPS_SECRET_KEY=", "LQOPS_SECRET_KEY=0"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("seconds", "keys", "reports"), [(14, None, False), (16, None, True), (-1, None, True), (14, "other=1", True)]
)
def test_host_that_its_ticker_has_reported_is_not_reported_again(seconds, keys, reports):
    faults.host_report(NOW - seconds * SECONDS)
    if keys:
        Host.objects.update(keys=keys)
    faults.host_report_if_old(NOW)

    assert (Host.objects.get().seen_at == NOW) == reports
    assert Host.objects.get().keys == faults.keys_fingerprint()


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (break_ticker, "The ticker is not running"),
        (break_queue, "waiting for a worker"),
        (break_disk, "is almost full"),
        (break_model, "Model broken fails every request"),
        (break_migrations, "Missing: agents.0006_model_outages"),
        (break_checkpoint_file, "cannot write checkpoints"),
        (break_keys, "different keys: LQOPS_SECRET_KEY"),
    ],
)
def test_fault_is_red_and_told_once(settings, operator, break_it, says):
    make_user()  # is not told
    assert health(NOW).red == ()
    break_it(settings)

    [line] = health(NOW).red
    assert says in line
    for look in range(6):
        alarms_update(NOW + look * 5 * SECONDS)
    assert told() == [line[:200]]
    assert Notification.objects.get(kind=NoticeKind.FAULT).owner == operator


def test_fault_of_a_moment_and_one_that_returns_soon_are_not_told(operator):
    failing()
    alarms_update(NOW)
    InferenceLog.objects.all().delete()
    alarms_update(NOW + 5 * SECONDS)
    assert told() == []
    assert Alarm.objects.get().ended_at == NOW + 5 * SECONDS

    for hours, expected in ((0, 1), (0.5, 1), (3, 2)):  # the second time it returns within an hour of its end
        begin = NOW + timedelta(hours=hours)
        Lease.objects.update(done_at=begin)
        failing(at=begin)
        alarms_update(begin)
        alarms_update(begin + 15 * SECONDS)
        assert len(told()) == expected, hours
        InferenceLog.objects.all().delete()
        alarms_update(begin + 20 * SECONDS)


@pytest.mark.parametrize(
    ("outcomes", "is_failing"),
    [
        ([Outcome.GATEWAY_ERROR] * 2, False),
        ([Outcome.GATEWAY_ERROR] * 3, True),
        ([Outcome.SUCCESS, *[Outcome.GATEWAY_ERROR] * 3], True),
        ([*[Outcome.GATEWAY_ERROR] * 5, Outcome.SUCCESS, Outcome.GATEWAY_ERROR], False),
        ([Outcome.ERROR] * 5, False),  # halted
    ],
)
def test_model_fails_when_none_of_several_requests_is_answered(outcomes, is_failing):
    failing(outcomes=outcomes)

    assert faults.failing_models(NOW).all_requests == (("broken",) if is_failing else ())
    assert faults.failing_models(NOW + timedelta(hours=1)).all_requests == ()


@pytest.fixture
def key_refused(settings):
    settings.LQOPS_MODELS = {**settings.LQOPS_MODELS, "broken": {"provider": "offline"}}
    session = make_session()
    failing(outcomes=[Outcome.GATEWAY_ERROR])
    InferenceLog.objects.update(session=session)
    make_call(session, model="broken", outcome=Outcome.GATEWAY_ERROR, detail=KEY_REFUSED)


def test_refused_key_of_a_model_that_is_not_declared_any_more_is_no_fault(key_refused, settings):
    assert faults.failing_models(NOW).key_refused == ("broken",)
    settings.LQOPS_MODELS = {name: one for name, one in settings.LQOPS_MODELS.items() if name != "broken"}
    assert faults.failing_models(NOW).key_refused == ()


def test_refused_key_is_a_fault_after_one_request_until_the_model_answers(key_refused):
    found = faults.failing_models(NOW + timedelta(days=1))
    assert (found.all_requests, found.key_refused) == ((), ("broken",))
    assert [fault.text for fault in health(NOW).faults if fault.code == "key:broken"] == [
        "The server of model broken refuses its key. Set another key, then test the model on the page Models."
    ]
    failing(outcomes=[Outcome.SUCCESS])
    assert faults.failing_models(NOW).key_refused == ()


def test_model_that_is_away_is_one_line():
    failing()
    ModelOutage.objects.create(model="broken", since=NOW, next_try_at=NOW)

    assert len(health(NOW).red) == 1


# --- Hosts ---


def test_host_with_other_keys_does_not_start(settings):
    other_host()
    faults.host_register(NOW)
    settings.SECRET_KEY = "another key of at least thirty-two characters"

    with pytest.raises(KeysDiffer, match="host other uses another value of LQOPS_SECRET_KEY") as refused:
        faults.host_register(NOW)

    assert settings.SECRET_KEY not in str(refused.value)
    assert [host.name for host in faults.hosts_live(NOW)] == ["other"]


def test_keys_may_change_when_the_other_hosts_are_stopped(settings):
    other_host(seen_at=NOW - timedelta(minutes=3))
    faults.host_register(NOW)
    settings.SECRET_KEY = "another key of at least thirty-two characters"

    faults.host_register(NOW)

    assert health(NOW).red == ()
    assert Host.objects.count() == 2
    faults.host_report(NOW + timedelta(days=2))
    assert faults.hosts_forget(NOW + timedelta(days=2)) == 1
    assert [host.name for host in Host.objects.all()] == [faults.host_name()]


def test_folder_that_is_missing_does_not_hide_a_full_disk(tmp_path, monkeypatch):
    usage = {tmp_path: 5, tmp_path.parent: 7}
    monkeypatch.setattr(faults.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": usage[folder]}))

    assert faults.free_bytes([tmp_path.parent, tmp_path, tmp_path / "absent"]) == 5


def test_fault_counts_as_new_until_it_is_told_of(operator):
    failing()
    assert [alarms_update(NOW + look * 5 * SECONDS) for look in range(4)] == [1, 1, 1, 0]

    InferenceLog.objects.all().delete()
    alarms_update(NOW + 20 * SECONDS)
    failing()
    assert alarms_update(NOW + 25 * SECONDS) == 0, "it was told of within the hour"


# --- Who looks ---


def test_ticker_tells_of_other_faults_and_not_of_itself(operator):
    Lease.objects.all().delete()
    failing()
    passed = [0.0]
    ticking = Ticker(monotonic=lambda: passed[0])
    for passed[0] in (0.0, 15.0):
        ticking.tick(NOW + passed[0] * SECONDS)

    assert [title.partition(".")[0] for title in told()] == ["Model broken fails every request"]
    assert Host.objects.get().name == faults.host_name()


@pytest.mark.django_db(transaction=True)
def test_fault_that_only_the_clock_shows_is_told_of_within_45_seconds(settings, operator):
    """Nobody else writes anything, and the ticker rests."""
    Lease.objects.all().delete()
    passed = [0.0]
    ticking = Ticker(monotonic=lambda: passed[0])

    def tick_until(seconds):
        while passed[0] < seconds and not told():
            passed[0] += 0.5
            ticking.tick(NOW + passed[0] * SECONDS)

    tick_until(32)  # it has looked for faults at 0.5 and 30.5 seconds
    settings.LQOPS_MIN_FREE_MB = 10**12
    tick_until(32 + 45)

    assert len(told()) == 1


@pytest.mark.django_db(transaction=True)
def test_dead_ticker_is_told_of_and_mailed_by_others(settings, operator):
    operator.email = "op@example.org"
    operator.save()
    passed = [0.0]
    first, second = (StandIn(monotonic=lambda: passed[0]) for _ in range(2))
    with mail_server(settings) as mail:
        Lease.objects.update(done_at=NOW - timedelta(hours=1))
        assert not first.check(NOW)  # everything may have been started just now
        for passed[0] in (31.0, 46.0, 61.0):
            assert first.check(NOW + passed[0] * SECONDS)
            assert second.check(NOW + passed[0] * SECONDS)
        until(lambda: not OutboxMessage.objects.exclude(status=OutboxStatus.SENT).exists())

    assert [title.partition(":")[0] for title in told()] == ["The ticker is not running"]
    assert len(mail.taken) == 1

    Lease.objects.update(done_at=NOW + 60 * SECONDS)
    assert not first.check(NOW + 62 * SECONDS)
