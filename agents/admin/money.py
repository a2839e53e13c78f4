"""What was spent and what may be: budgets, prices, suspended models, the log of model calls."""

from django.contrib import admin

from agents.admin.base import ReadOnlyAdmin
from agents.models import Budget, InferenceLog, ModelPrice, SuspendedModel


@admin.register(Budget)
class BudgetAdmin(ReadOnlyAdmin):
    list_display = ["name", "day", "cap_usd", "charged_usd", "reserved_usd", "actual_usd", "held_usd", "warned"]
    list_filter = ["scope"]
    ordering = ["-day", "scope"]


@admin.register(ModelPrice)
class ModelPriceAdmin(ReadOnlyAdmin):
    list_display = ["model", "input_usd", "output_usd", "overhead_tokens"]
    ordering = ["model"]


@admin.register(SuspendedModel)
class SuspendedModelAdmin(ReadOnlyAdmin):
    list_display = ["model", "bound_usd", "actual_usd", "suspended_at"]


@admin.register(InferenceLog)
class InferenceLogAdmin(ReadOnlyAdmin):
    list_display = [
        "model",
        "purpose",
        "outcome",
        "input_tokens",
        "output_tokens",
        "cost_estimate",
        "latency_ms",
        "created_at",
    ]
    list_filter = ["purpose", "outcome"]
    ordering = ["-id"]
