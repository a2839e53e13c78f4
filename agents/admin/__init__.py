"""The pages of the control room, one file per resource: they parse, authorise, call one service and present.

The queue's own pages are closed: its rows are transport, and running them by hand would pass no check. The health page
takes their place.
"""

from django.contrib import admin

from agents.admin import (
    agents_,
    api_keys,
    approvals,
    calls,
    collections,
    documents,
    findings,
    money,
    people,
    playbooks,
    precedents,
    projects,
    sessions,
    skills,
    triggers,
)

__all__ = [
    "agents_",
    "api_keys",
    "approvals",
    "calls",
    "collections",
    "documents",
    "findings",
    "money",
    "people",
    "playbooks",
    "precedents",
    "projects",
    "sessions",
    "skills",
    "triggers",
]

admin.site.unregister([model for model in list(admin.site._registry) if model._meta.app_label == "django_q"])  # noqa: SLF001
