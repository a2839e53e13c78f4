"""The health page: whether the parts of the installation are at work, and the brakes tested on demand."""

import platform
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from agents.admin.base import person
from agents.admin.display import counted
from agents.conf import clock
from agents.doctor import diagnose
from agents.guard import selftest
from agents.guard.selftest import Check
from agents.sessions.control_room import health
from agents.skills.registry import skills_left_out

VIEW = "agents.view_agentsession"
TEST = "agents.change_agentsession"
PACKAGES = ("lqops", "django", "django-q2", "django-unfold", "djangorestframework")


@never_cache
def health_page(request: HttpRequest) -> TemplateResponse:
    """A POST tests every brake against the real guard, in a transaction that is thrown away."""
    by = person(request)
    if not by.has_perm(VIEW) or (request.method == "POST" and not by.has_perm(TEST)):
        raise PermissionDenied
    checks = _test() if request.method == "POST" else []
    request.current_app = admin.site.name
    found = health(clock())
    context: dict[str, Any] = {
        **admin.site.each_context(request),
        "title": "Health",
        "health": found,
        "red": [*found.red, *skills_left_out()],
        "brakes": brakes(),
        "checks": checks,
        "may_test": by.has_perm(TEST),
        "versions": versions(),
    }
    return TemplateResponse(request, "admin/health.html", context)


@dataclass
class _Tested:
    """The last test that this process was asked for: when, and how many checks did not hold."""

    at: datetime | None = None
    failed: int = 0


_TESTED: Final = _Tested()


def _test() -> list[Check]:
    checks = diagnose()
    _TESTED.at, _TESTED.failed = clock(), sum(not check.ok for check in checks)
    return checks


def brakes() -> tuple[str, str]:
    """What is known of the brakes in this process, and how it looks."""
    if _TESTED.at is None:
        armed = selftest.is_armed()
        return ("good", "tested when this process began") if armed else ("", "not tested in this process")
    when = f"{_TESTED.at:%d %b %H:%M:%S} UTC"
    if _TESTED.failed:
        return "bad", f"tested {when}: {counted(_TESTED.failed, 'check does', 'checks do')} not hold"
    return "good", f"tested in this process {when}: all hold"


def versions() -> dict[str, str]:
    return {
        **{name: _version(name) for name in PACKAGES},
        "Python": platform.python_version(),
        "database": f"{connection.vendor} {'.'.join(map(str, connection.get_database_version()))}",
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
