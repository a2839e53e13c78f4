"""The app of the control room. Stands in INSTALLED_APPS in place of django.contrib.admin.

Its pages are loaded by what serves or checks them (lqops/urls.py, `manage.py check`): workers, the ticker and most
commands have no use for them, and start in a good half of the time without.
"""

from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class ControlRoomConfig(SimpleAdminConfig):
    default_site = "lqops.admin_site.ControlRoom"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)


def _check_pages(app_configs: Any, **more: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return check_admin_app(app_configs, **more)
