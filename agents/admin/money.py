"""Money: the installation's cap, daily totals, model prices, suspended models and model calls."""

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from unfold.decorators import display

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, for_each
from agents.admin.base import DetailAdmin, FormAdmin, current_user
from agents.admin.display import OUTCOME_LABELS, Bar, WordedFilter, column, usd, words
from agents.admin.forms import StyledModelForm, usd_field
from agents.conf import clock
from agents.enums import BudgetScope
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import model_accept, price_set
from agents.models import Agent, Budget, InferenceLog, Installation, ModelPrice, SuspendedModel, Trigger
from agents.people.access import actor_of

# Names of rows on the pages.
Budget._meta.verbose_name = "daily total"


class InstallationForm(StyledModelForm):
    class Meta:
        model = Installation
        fields = ["max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)"}
        help_texts = {"max_cost_per_day_usd": "Maximum cost of all runs per UTC day. Applies from the next call."}


@admin.register(Installation)
class InstallationAdmin(FormAdmin):
    """The single row with the installation's cap."""

    cap = column("max_cost_per_day_usd", usd, title="cap per day")
    list_display = ["__str__", "cap"]
    form = InstallationForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def update(self, request: HttpRequest, row: Installation, form: Any) -> Installation:
        set_cap(BudgetScope.INSTALLATION, 0, form.cleaned_data["max_cost_per_day_usd"], request)
        return row


def set_cap(scope: BudgetScope, subject_id: int, cap: Decimal | None, request: HttpRequest) -> None:
    actor = actor_of(current_user(request))
    budget_set_cap(scope=scope, subject_id=subject_id, cap_usd=cap, actor=actor, now=clock())


class DayCapForm(ActionForm):
    cap = usd_field(
        label="Cap per day (USD)", required=False, help_text="Maximum cost per UTC day. Empty: no cap of its own."
    )


def _set_cap(action: ActionRequest) -> ActionResult:
    [budget] = action.rows
    set_cap(BudgetScope(budget.scope), budget.subject_id, action.data["cap"], action.request)
    return ActionResult(f"Daily cap of {budget.name} set to {usd(action.data['cap'], empty='none')}.")


@admin.register(Budget)
class BudgetAdmin(DetailAdmin):
    actual = column("actual_usd", usd, title="reported")
    list_display = ["day", "scope", "subject", "spent", "actual", "reserved", "warning"]
    list_filter = ["scope", "day"]
    list_before_template = "admin/budget_caps.html"
    rows_name = "daily totals"
    empty_text = "No costs yet. The totals of a day start with its first model call."
    ordering = ("-day", "scope", "-charged_usd")
    row_actions = (
        RowAction(
            "set_cap",
            "Set daily cap",
            "agents.change_budget",
            _set_cap,
            DayCapForm,
            bulk=False,
            description="Applies to today as well, from the next call.",
        ),
    )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {
            "installation": Installation.objects.filter(pk=1).first(),
            "may_set": current_user(request).has_perm("agents.change_installation"),
            **(extra_context or {}),
        }
        response: HttpResponse = super().changelist_view(request, context)
        return response

    def prepare_rows(self, rows: list[Any]) -> None:
        """Look up the names of agents and triggers, by one statement for each."""
        owners = {BudgetScope.AGENT: Agent.objects.all(), BudgetScope.TRIGGER: Trigger.objects.all()}
        for scope, known in owners.items():
            totals = [row for row in rows if row.scope == scope]
            names = dict(known.filter(pk__in=[row.subject_id for row in totals]).values_list("pk", "name"))
            for row in totals:
                row.subject_name = names.get(row.subject_id, "")

    @display(description="name")
    def subject(self, budget: Any) -> str:
        return getattr(budget, "subject_name", "") or budget.name

    @display(description="approved / cap")
    def spent(self, budget: Budget) -> SafeString:
        bar = Bar.of(max(budget.charged_usd + budget.reserved_usd, budget.actual_usd), budget.cap_usd)
        context = {"spent": budget.charged_usd, "cap": budget.cap_usd, "bar": bar}
        return render_to_string("admin/parts/spent.html", context)

    @display(description="", label={"80 % reached": "warning"})
    def warning(self, budget: Budget) -> str:
        return "80 % reached" if budget.warned else ""

    @display(description="in flight")
    def reserved(self, budget: Budget) -> str:
        return f"{usd(budget.reserved_usd)}, at most {usd(budget.held_usd)}"


class PriceForm(StyledModelForm):
    class Meta:
        model = ModelPrice
        fields = ["model", "input_usd", "output_usd", "overhead_tokens"]
        labels = {
            "input_usd": "Input (USD per million tokens)",
            "output_usd": "Output (USD per million tokens)",
        }
        help_texts = {
            "model": "Name of the model, or its beginning.",
            "input_usd": "The highest rate, if there are several.",
            "output_usd": "The highest rate, if there are several.",
            "overhead_tokens": "Maximum number of tokens that the server adds to a prompt.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].disabled = self.instance.pk is not None


@admin.register(ModelPrice)
class ModelPriceAdmin(FormAdmin):
    input_ = column("input_usd", usd, title="input per million")
    output_ = column("output_usd", usd, title="output per million")
    list_display = ["model", "input_", "output_", "overhead_tokens"]
    search_fields = ["model"]
    empty_text = "No prices yet. A model without a price is never called: add the price of yours."
    ordering = ["model"]
    form = PriceForm

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def create(self, request: HttpRequest, form: Any) -> ModelPrice:
        return price_set(actor=actor_of(current_user(request)), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: ModelPrice, form: Any) -> ModelPrice:
        return self.create(request, form)


def _accept(action: ActionRequest) -> ActionResult:
    actor = actor_of(action.by)
    return for_each(action, lambda row: model_accept(model=row.model, actor=actor, now=action.now), "accepted again")


@admin.register(SuspendedModel)
class SuspendedModelAdmin(DetailAdmin):
    bound = column("bound_usd", usd, title="bound")
    billed = column("actual_usd", usd, title="billed")
    list_display = ["model", "bound", "billed", "suspended_at"]
    empty_text = (
        "No suspended models. A model that bills more than its bound is suspended until somebody accepts it again."
    )
    row_actions = (
        RowAction(
            "accept",
            "Accept again",
            "agents.change_suspendedmodel",
            _accept,
            description="A reply of this model cost more than its bound. Correct its price first.",
        ),
    )


@admin.register(InferenceLog)
class InferenceLogAdmin(DetailAdmin):
    purpose_ = column("purpose", words)
    outcome_ = column("outcome", words, label=OUTCOME_LABELS)
    list_display = [
        "model",
        "purpose_",
        "outcome_",
        "input_tokens",
        "output_tokens",
        "cost",
        "latency",
        "of_session",
        "created_at",
    ]
    list_filter = [("purpose", WordedFilter), ("outcome", WordedFilter)]
    empty_text = "No model calls yet. Each call is listed here with its cost."
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact", "model__exact"]
    search_help_text = "The full id of a run, or the full name of a model."

    @display(description="cost")
    def cost(self, row: InferenceLog) -> str:
        return usd(row.cost_estimate, empty="not reported")

    @display(description="duration")
    def latency(self, row: InferenceLog) -> str:
        return f"{row.latency_ms} ms"
