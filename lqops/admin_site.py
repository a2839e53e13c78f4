"""The admin site of lqops, in place of django.contrib.admin. Its pages are in agents/admin and audit/admin.py.

The pages are loaded only by the URLs and by `manage.py check`. Workers, the ticker and most commands do without them
and start in little more than half the time.
"""

from functools import partial
from typing import Any, cast

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.db.models.base import ModelBase
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.functional import SimpleLazyObject
from unfold.sites import UnfoldAdminSite


class ControlRoomConfig(SimpleAdminConfig):
    default_site = "lqops.admin_site.ControlRoom"

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)
        _connect_sign_in()


def _check_pages(app_configs: Any, **more: Any) -> list[checks.CheckMessage]:
    admin.autodiscover()
    return check_admin_app(app_configs, **more)


def _connect_sign_in() -> None:
    from lqops.sign_in_record import connect

    connect()


class ControlRoom(UnfoldAdminSite):  # type: ignore[misc]  # unfold ships no types
    """Adds Home, the halt bar, health, the ask box and chats to the pages of the models."""

    index_title = "Home"
    enable_nav_sidebar = True

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Leave out factors, sessions and linked accounts: they change by acts that are recorded, not by forms."""
        models = [model_or_iterable] if isinstance(model_or_iterable, ModelBase) else model_or_iterable
        kept = [model for model in models if not model.__module__.startswith("allauth.")]
        super().register(kept, admin_class, **options)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Send strangers to the one page to sign in. Whoever is signed in and may not use the admin gets a 403."""
        from allauth.account.decorators import secure_admin_login

        answer: HttpResponse = secure_admin_login(super().login)(request, extra_context)
        return answer

    def extra_urls(self) -> list[URLPattern]:
        # Imported here because these pages register themselves on this site.
        from agents.admin.ask import ask_page, chat_page, chats_page, confirm, manual_page
        from agents.admin.charts import charts_csv, charts_page
        from agents.admin.home import (
            dismiss_first_steps,
            halt_bar,
            halt_everything,
            health_page,
            pause_everything,
            paused_page,
            release,
            resume_everything,
            search_results,
        )
        from agents.admin.models import models_page

        return [
            path("search/results/", self.admin_view(search_results), name="search_results"),
            path("halt-bar/", self.admin_view(halt_bar), name="halt_bar"),
            path("halt-everything/", self.admin_view(halt_everything), name="halt_everything"),
            path("pause-everything/", self.admin_view(pause_everything), name="pause_everything"),
            path("resume-everything/", self.admin_view(resume_everything), name="resume_everything"),
            path("paused/", self.admin_view(paused_page), name="paused"),
            path("release/", self.admin_view(release), name="release"),
            path("first-steps/dismiss/", self.admin_view(dismiss_first_steps), name="dismiss_first_steps"),
            path("charts/", self.admin_view(charts_page), name="charts"),
            path("charts/<slug:name>.csv", self.admin_view(charts_csv), name="charts_csv"),
            path("health/", self.admin_view(health_page), name="health"),
            path("models/", self.admin_view(models_page), name="models"),
            path("ask/", self.admin_view(ask_page), name="ask"),
            path("ask/confirm/", self.admin_view(confirm), name="ask_confirm"),
            path("manual/<slug:name>/", self.admin_view(manual_page), name="manual"),
            path("chats/", self.admin_view(chats_page), name="chats"),
            path("chats/<uuid:chat>/", self.admin_view(chat_page), name="chat"),
        ]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from agents.admin.home import home_context

        return super().index(request, {**home_context(request), **(extra_context or {})})  # type: ignore[no-any-return]

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Search by rules of our own. unfold's keeps results for minutes, whatever the user may view by then."""
        from agents.admin.home import search_page

        return search_page(request)

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Build the list only where a page shows it; the sidebar has a list of its own."""
        return cast("list[Any]", SimpleLazyObject(partial(super().get_app_list, request, app_label)))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from agents.admin.home import banner

        return {**super().each_context(request), **banner(request)}
