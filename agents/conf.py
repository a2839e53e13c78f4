"""lqops' own settings and the clock. Nothing else in agents reads the wall clock."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from django.conf import settings


def clock() -> datetime:
    return datetime.now(UTC)


def lease_lifetime() -> timedelta:
    return timedelta(seconds=settings.LQOPS_LEASE_SECONDS)


def heartbeat_seconds() -> float:
    return float(settings.LQOPS_HEARTBEAT_SECONDS)


def max_recoveries() -> int:
    return int(settings.LQOPS_MAX_RECOVERIES)


def max_model_tries() -> int:
    return int(settings.LQOPS_MODEL_TRIES)


def default_session_cap() -> Decimal:
    return Decimal(settings.LQOPS_DEFAULT_SESSION_CAP_USD)


def installation_day_cap() -> Decimal:
    return Decimal(settings.LQOPS_INSTALLATION_DAY_CAP_USD)


def message_judge_cap() -> Decimal:
    return Decimal(settings.LQOPS_MESSAGE_JUDGE_CAP_USD)


def approval_lifetime() -> timedelta:
    lifetime: timedelta = settings.LQOPS_APPROVAL_LIFETIME
    return lifetime


def four_eyes() -> bool:
    return bool(settings.LQOPS_FOUR_EYES)
