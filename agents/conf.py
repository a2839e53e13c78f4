"""The clock, and settings in the form in which the code uses them. Nothing else in agents reads the wall clock."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from django.conf import settings

LONGEST_KEPT_DAYS = 36_500  # a hundred years: as good as for good, and a date


def clock() -> datetime:
    return datetime.now(UTC)


def lease_lifetime() -> timedelta:
    return timedelta(seconds=settings.LQOPS_LEASE_SECONDS)


def lease_renewal_seconds() -> float:
    return float(settings.LQOPS_HEARTBEAT_SECONDS)


def task_seconds() -> float:
    return float(str(settings.Q_CLUSTER["timeout"]))


def default_session_cap() -> Decimal:
    return Decimal(settings.LQOPS_DEFAULT_SESSION_CAP_USD)


def lender_floor() -> Decimal:
    """How much of its cap a run keeps, to finish, when it lends to a run that it starts."""
    return Decimal(settings.LQOPS_LENDER_FLOOR_USD)


def console_cap() -> Decimal:
    """The most that one question to the console may cost."""
    return Decimal(settings.LQOPS_CONSOLE_CAP_USD)


def manual_folder() -> Path:
    return Path(settings.MANUAL_DIR)


def mail_is_configured() -> bool:
    """False without a mail server: then no e-mail copies are written."""
    return bool(settings.EMAIL_HOST)


def mail_sender() -> str:
    return str(settings.DEFAULT_FROM_EMAIL)


def base_url() -> str:
    """The address of the site, without a slash at the end."""
    return str(settings.LQOPS_BASE_URL)


def slice_lifetime() -> timedelta:
    return timedelta(seconds=settings.LQOPS_SLICE_SECONDS)


def model_wait_limit() -> timedelta:
    """How long a run waits for a model that does not answer before it is given up."""
    return timedelta(hours=settings.LQOPS_MODEL_WAIT_HOURS)


def run_wait_limit() -> timedelta:
    """How long a run waits for the runs that it started before it goes on without them."""
    return timedelta(hours=settings.LQOPS_RUN_WAIT_HOURS)


def input_tries() -> int:
    """How many runs try to read what a trigger's run did not before it is given up."""
    return int(settings.LQOPS_INPUT_TRIES)


def memory_tokens() -> int:
    """How many tokens of memories one prompt may hold."""
    return int(settings.LQOPS_MEMORY_TOKENS)


def precedent_lifetime() -> timedelta | None:
    """How long a precedent that is not seen again stays open; None: for good."""
    days = int(settings.LQOPS_PRECEDENT_DAYS)
    return timedelta(days=min(days, LONGEST_KEPT_DAYS)) if days else None


def findings_wait() -> timedelta | None:
    """How long an open finding of low severity waits for people before it expires; None: for good."""
    days = int(settings.LQOPS_FINDING_DAYS)
    return timedelta(days=min(days, LONGEST_KEPT_DAYS)) if days else None


def runs_kept() -> timedelta | None:
    """How long runs stay in the database after their end; None: for good."""
    days = int(settings.LQOPS_KEEP_RUNS_DAYS)
    return timedelta(days=min(days, LONGEST_KEPT_DAYS)) if days else None


def archive_folder() -> Path:
    return Path(settings.LQOPS_ARCHIVE_DIR)


def skill_folders() -> list[Path]:
    """Folders that are searched for skills (SKILL.md), in order."""
    return [Path(folder) for folder in settings.LQOPS_SKILL_FOLDERS]


def skill_hosts() -> list[str]:
    """Hosts that skills may read without approval; `*.example.org` means all hosts below it."""
    return list(settings.LQOPS_SKILL_HOSTS)


def isolation_is_strict() -> bool:
    """Whether an isolated skill is refused if the system does not allow every protection."""
    return str(settings.LQOPS_SKILL_ISOLATION) == "STRICT"


def sensor_roots() -> list[Path]:
    """Folders in which sensors may read files."""
    return list(settings.LQOPS_SENSOR_ROOTS)


def sensor_slice_lifetime() -> timedelta:
    return timedelta(seconds=settings.LQOPS_SENSOR_SLICE_SECONDS)


def secret_names() -> list[str]:
    """The names of the secrets of this installation; their values are read in agents/skills/handles.py alone."""
    return sorted(settings.LQOPS_SECRETS)


def secret_hosts_set(name: str) -> list[str]:
    """The hosts that the environment binds a secret to."""
    return list(settings.LQOPS_SECRET_HOSTS.get(name, ()))


def ca_file() -> str:
    """A file with certificates of further authorities that outgoing connections trust; "" for none."""
    return str(settings.LQOPS_CA_FILE)


def data_folder() -> Path:
    return Path(settings.VAR_DIR)
