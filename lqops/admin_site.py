"""The control room: the admin site of lqops. Wiring only; its pages live in agents/admin and audit/admin.py."""

from typing import Any

from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from unfold.sites import UnfoldAdminSite


class ControlRoomConfig(AdminConfig):
    """Stands in INSTALLED_APPS in place of django.contrib.admin."""

    default_site = "lqops.admin_site.ControlRoom"


class ControlRoom(UnfoldAdminSite):  # type: ignore[misc]  # unfold ships no types
    """Home, the lever that stops everything, and the health page, beside the pages of the models."""

    index_title = "Home"
    enable_nav_sidebar = True

    def extra_urls(self) -> list[URLPattern]:
        # The pages register themselves on this site, so they are loaded after it.
        from agents.admin.health import health_page
        from agents.admin.home import halt_everything, release

        return [
            path("halt-everything/", self.admin_view(halt_everything), name="halt_everything"),
            path("release/", self.admin_view(release), name="release"),
            path("health/", self.admin_view(health_page), name="health"),
        ]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from agents.admin.home import home_context

        return super().index(request, {**home_context(request), **(extra_context or {})})  # type: ignore[no-any-return]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from agents.admin.home import banner

        return {**super().each_context(request), **banner(request)}
