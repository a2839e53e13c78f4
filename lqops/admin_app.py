"""App configuration of the admin site, in place of django.contrib.admin.

The pages are loaded only by the URLs and by `manage.py check`. Workers, the ticker and most commands do without them
and start in little more than half the time.
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
