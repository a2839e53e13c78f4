"""Which channel gets a notification, and when: groups of news, people's choices, quiet hours, digests. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, time, timedelta
from types import MappingProxyType
from typing import Final
from zoneinfo import ZoneInfo

from agents.enums import News, NewsChoice, NoticeKind
from agents.exceptions import Invalid
from agents.policy.schedule import Hours

GROUPS: Final[Mapping[NoticeKind, News]] = MappingProxyType(
    {
        NoticeKind.AGENT: News.MESSAGES,
        NoticeKind.RUN_STOPPED: News.FAILURES,
        NoticeKind.RUN_FINDINGS: News.FINDINGS,
        NoticeKind.RUN_COMPLETED: News.SUCCESSES,
        NoticeKind.APPROVAL_WAITING: News.DECISIONS,
        NoticeKind.APPROVAL_ESCALATED: News.DECISIONS,
        NoticeKind.DELEGATED: News.DECISIONS,
        NoticeKind.QUESTION_WAITING: News.DECISIONS,
        NoticeKind.TRIGGER_PAUSED: News.FAILURES,
        NoticeKind.OUTCOME_UNKNOWN: News.DECISIONS,
        NoticeKind.WATCH_BEHIND: News.FAILURES,
        NoticeKind.SENSOR_FAILING: News.FAILURES,
        NoticeKind.MODEL_AWAY: News.INSTALLATION,
        NoticeKind.MODEL_BACK: News.INSTALLATION,
        NoticeKind.LOOP_WAITING: News.FAILURES,
        NoticeKind.INPUT_GIVEN_UP: News.FAILURES,
        NoticeKind.FINDING: News.FINDINGS,
        NoticeKind.BUDGET: News.MONEY,
        NoticeKind.CHANNEL_FAILING: News.FAILURES,
        NoticeKind.FAULT: News.INSTALLATION,
        NoticeKind.SIGN_IN: News.FAILURES,
    }
)
EXAMPLES: Final[Mapping[News, str]] = MappingProxyType(
    {
        News.DECISIONS: "A call waits for approval, a run asks something, or the outcome of a call is unknown.",
        News.FAILURES: "A run failed or was stopped, a trigger was paused, a sensor or a channel fails. Single sign-on "
        "opens, or was kept from, an account.",
        News.FINDINGS: "A run has findings; a finding was assigned to you or commented on.",
        News.MESSAGES: "What an agent tells you of its own accord.",
        News.MONEY: "A budget has reached 50, 80 or 95 %.",
        News.INSTALLATION: "A model does not answer, or a part of the installation is down. For operators.",
        News.SUCCESSES: "A run completed without findings.",
    }
)


def default_choice(news: News) -> NewsChoice:
    """Failures are news; successes are sent only if they are asked for."""
    return NewsChoice.OFF if news == News.SUCCESSES else NewsChoice.NOW


def choice_of(choices: Mapping[str, str], news: News) -> NewsChoice:
    return NewsChoice(choices.get(news, default_choice(news)))


def choice_for(choices: Mapping[str, str], kind: str) -> NewsChoice:
    """Return when a channel with these choices gets a notification of this kind."""
    return choice_of(choices, GROUPS[NoticeKind(kind)])


def checked_choices(choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that differ from the defaults; refuse unknown groups and unknown choices."""
    for name, choice in choices.items():
        if name not in News.values:
            raise Invalid(f"choices: {name!r} is no group of notifications; there are {', '.join(News.values)}.")
        if choice not in NewsChoice.values:
            raise Invalid(f"choices: {choice!r} is no choice for {name}; there are {', '.join(NewsChoice.values)}.")
    return {name: choice for name, choice in choices.items() if choice != default_choice(News(name))}


def quiet_end(start: time | None, end: time | None, zone: str, now: datetime) -> datetime | None:
    """Return when the quiet hours end that hold now; None outside of them, and without any."""
    if start is None or end is None or not Hours(start, end, ZoneInfo(zone)).hold(now):
        return None
    return Hours(end, start, ZoneInfo(zone)).next_start(now)


def next_digest(at: time, zone: str, now: datetime) -> datetime:
    """Return the next time of the daily digest, in UTC."""
    here = now.astimezone(ZoneInfo(zone))
    days = (here.date() + timedelta(days=number) for number in range(3))
    moments = (datetime.combine(day, at, ZoneInfo(zone)).astimezone(UTC) for day in days)
    return next(moment for moment in moments if moment > now)
