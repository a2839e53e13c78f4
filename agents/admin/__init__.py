"""The pages of the control room, one file per resource: they parse, authorise, call one service and present.

The queue's own pages are closed: its rows are transport, and running them by hand would pass no check. The health page
takes their place.
"""

import django_q.admin  # noqa: F401 which opens those pages, before they are closed below
from django.contrib import admin

from agents.admin import (
    agents,
    approvals,
    knowledge,
    money,
    people,
    playbooks,
    questions,
    results,
    sessions,
    skills,
    triggers,
)

__all__ = [
    "agents",
    "approvals",
    "knowledge",
    "money",
    "people",
    "playbooks",
    "questions",
    "results",
    "sessions",
    "skills",
    "triggers",
]

admin.site.unregister([model for model in list(admin.site._registry) if model._meta.app_label == "django_q"])  # noqa: SLF001
