"""The admin pages, one module per subject. A page parses, authorises, calls one function and presents.

The pages of django-q are removed: its rows are transport, and running a task by hand would bypass every check.
"""

import django_q.admin  # noqa: F401 registers its pages, which are removed below
from django.contrib import admin

from agents.admin import (  # noqa: F401 each registers its pages
    agents,
    approval_rules,
    approvals,
    knowledge,
    models,
    money,
    people,
    playbooks,
    results,
    sessions,
    skills,
    triggers,
)

admin.site.unregister([model for model in list(admin.site._registry) if model._meta.app_label == "django_q"])  # noqa: SLF001
