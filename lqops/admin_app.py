"""The app config of the admin site, in INSTALLED_APPS in place of django.contrib.admin.

The pages are loaded only where they are served or checked (lqops/urls.py, `manage.py check`): workers, the ticker and
most commands start in about half the time without them.
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
