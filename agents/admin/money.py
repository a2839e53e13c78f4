"""Money: caps, spending by day and month, model prices, suspended models and model calls."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string

from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, for_each
from agents.admin.base import DetailAdmin, FormAdmin, current_user, page_link
from agents.admin.display import (
    OUTCOME_LABELS,
    WordedFilter,
    column,
    cost_context,
    exact_usd,
    short_usd,
    took,
    usd,
    words,
)
from agents.admin.forms import StyledModelForm, usd_field
from agents.conf import clock
from agents.enums import BudgetPeriod, BudgetScope
from agents.ledger.budgets import budget_set_cap, cap_of, caps_of, caps_set
from agents.ledger.prices import model_accept, price_set
from agents.models import Budget, InferenceLog, Installation, ModelPrice, SuspendedModel
from agents.models.fields import USDFormField
from agents.people.access import actor_of
from agents.sessions.control_room import budget_subjects

# Names of rows on the pages.
Budget._meta.verbose_name = "total"
REACHED = {"50 % reached": "info", "80 % reached": "warning", "95 % reached": "danger"}


def month_cap_field() -> USDFormField:
    return usd_field(
        label="Cap per month (USD)",
        required=False,
        show_hidden_initial=True,
        help_text="Maximum cost of all runs per calendar month (UTC), this one included. Empty: no cap of a month.",
    )


class InstallationForm(StyledModelForm):
    max_cost_per_month_usd = month_cap_field()

    class Meta:
        model = Installation
        fields = ["max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)"}
        help_texts = {"max_cost_per_day_usd": "Maximum cost of all runs per UTC day. Applies from the next call."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["max_cost_per_day_usd"].show_hidden_initial = True
        self.fields["max_cost_per_month_usd"].initial = cap_of(BudgetScope.INSTALLATION, 0, BudgetPeriod.MONTH)


@admin.register(Installation)
class InstallationAdmin(FormAdmin):
    """The single row with the installation's cap."""

    cap = column("max_cost_per_day_usd", usd, title="cap per day")
    list_display = ["__str__", "cap"]
    form = InstallationForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def update(self, request: HttpRequest, row: Installation, form: Any) -> Installation:
        caps_set(subject=row, by=current_user(request), now=clock(), **form.changes())
        return row


class BudgetCapForm(ActionForm):
    cap = usd_field(label="Cap (USD)", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        [budget] = self.rows
        is_month = isinstance(budget, Budget) and budget.period == BudgetPeriod.MONTH
        period = "calendar month (UTC)" if is_month else "UTC day"
        self.fields["cap"].help_text = f"Maximum cost per {period}, the cap from now on. Empty: no cap of its own."


def _cap_now(budget: Budget) -> Any:
    """The cap in force, which an old total does not have."""
    return cap_of(BudgetScope(budget.scope), budget.subject_id, BudgetPeriod(budget.period))


def _set_cap(action: ActionRequest) -> ActionResult:
    [budget] = action.rows
    budget_set_cap(
        scope=BudgetScope(budget.scope),
        subject_id=budget.subject_id,
        period=BudgetPeriod(budget.period),
        cap_usd=action.data["cap"],
        by=action.by,
        now=action.now,
    )
    cap = usd(action.data["cap"], empty="none")
    return ActionResult(f"Cap of {budget.subject} per {budget.period} set to {cap}.")


# --- Caps of an agent, trigger, project or person, on their own pages ---


class CapsForm(ActionForm):
    max_cost_per_day_usd = usd_field(
        label="Cap per day (USD)",
        required=False,
        show_hidden_initial=True,
        help_text="Maximum cost per UTC day. Empty: no cap of its own.",
    )
    max_cost_per_month_usd = month_cap_field()

    def clean(self) -> dict[str, Any]:
        """Keep what was changed on this page: the other cap may be somebody else's since."""
        given = super().clean() or self.cleaned_data
        return {name: given[name] for name in self.changed_data if name in given}


def _set_caps(scope: BudgetScope, action: ActionRequest) -> ActionResult:
    [row] = action.rows
    caps_set(subject=row, by=action.by, now=action.now, **action.data)
    day, month = (usd(cap, empty="none") for cap in caps_of(scope, row.pk).values())
    return ActionResult(f"Caps of {row}: {day} per day, {month} per month.")


def caps_action(scope: BudgetScope, **more: Any) -> RowAction:
    """The action that sets the caps per day and month of one row."""
    return RowAction(
        "caps",
        "Set caps",
        partial(_set_caps, scope),
        CapsForm,
        bulk=False,
        initial=lambda row: caps_of(scope, row.pk),
        description="Maximum cost of all its runs. Applies from the next call, with what this day and month have cost.",
        **more,
    )


def _reached(row: Budget) -> str:
    percent = max(row.told_percent, 80 if row.warned else 0)
    return f"{percent} % reached" if percent else ""


@admin.register(Budget)
class BudgetAdmin(DetailAdmin):
    subject = column(lambda row: getattr(row, "subject_name", "") or row.subject, title="name")
    spent = column(
        lambda row: render_to_string("admin/parts/cost.html", {**cost_context(row), "is_even": True}), title="spent"
    )
    warning = column(_reached, title="warning", label=REACHED)
    when_ = column("when", str, title="day or month", sort="day")
    list_display = ["when_", "period", "scope", "subject", "spent", "warning"]
    list_filter = ["period", "scope", "day"]
    list_before_template = "admin/budget_caps.html"
    rows_name = "totals"
    empty_text = "No costs yet. The totals of a day start with its first model call."
    ordering = ("-day", "period", "scope", "-charged_usd")
    row_actions = (
        RowAction(
            "set_cap",
            "Set cap",
            _set_cap,
            BudgetCapForm,
            bulk=False,
            initial=lambda row: {"cap": _cap_now(row)},
            description="Applies from the next call, to the current day or month as well. Past totals keep theirs.",
        ),
    )

    def installation(self) -> dict[str, Any]:
        """For the text above the list."""
        return caps_of(BudgetScope.INSTALLATION, 0)

    def prepare_rows(self, rows: list[Any]) -> None:
        """Look up the names of what was counted, by one statement for each scope that is shown."""
        for scope, known in budget_subjects().items():
            totals = [row for row in rows if row.scope == scope]
            if not totals:
                continue
            names = dict(known.filter(pk__in=[row.subject_id for row in totals]).values_list("pk", "known_as"))
            for row in totals:
                row.subject_name = names.get(row.subject_id, "")

    def extra_context(self, request: HttpRequest, row: Budget) -> dict[str, Any]:
        counted = budget_subjects().get(BudgetScope(row.scope))
        subject = None if counted is None else counted.filter(pk=row.subject_id).first()
        named = row.subject if subject is None else subject.known_as
        facts = [
            (row.get_scope_display(), named, page_link(subject, current_user(request)) if subject else ""),
            (row.get_period_display(), row.when, ""),
            ("Spent", usd(row.spent_usd), ""),
            ("Cap", usd(row.cap_usd, empty="none"), ""),
            ("In flight", f"{usd(row.reserved_usd)} approved, {usd(row.held_usd)} at the most", ""),
            ("Approved before the calls", exact_usd(row.charged_usd), ""),
            ("Reported by the model servers", exact_usd(row.actual_usd), ""),
            ("Warning", _reached(row) or "none", ""),
        ]
        return {
            "title": f"{named} {'in' if row.period == BudgetPeriod.MONTH else 'on'} {row.when}",
            "facts": [{"label": label, "text": text, "link": link} for label, text, link in facts],
        }


class PriceForm(StyledModelForm):
    class Meta:
        model = ModelPrice
        fields = ["model", "input_usd", "output_usd", "overhead_tokens"]
        labels = {
            "input_usd": "Input (USD per million tokens)",
            "output_usd": "Output (USD per million tokens)",
        }
        error_messages = {"model": {"unique": "This model has a price already: edit it in the list of model prices."}}
        help_texts = {
            "input_usd": "The highest rate, if there are several.",
            "output_usd": "The highest rate, if there are several.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].disabled = self.instance.pk is not None


@admin.register(ModelPrice)
class ModelPriceAdmin(FormAdmin):
    input_ = column("input_usd", exact_usd, title="input per million")
    output_ = column("output_usd", exact_usd, title="output per million")
    list_display = ["model", "input_", "output_", "overhead_tokens"]
    search_fields = ["model"]
    empty_text = "No prices yet. A model without a price is never called: add the price of yours."
    ordering = ["model"]
    form = PriceForm

    def create(self, request: HttpRequest, form: Any) -> ModelPrice:
        return price_set(actor=actor_of(current_user(request)), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: ModelPrice, form: Any) -> ModelPrice:
        return self.create(request, form)


def _accept(action: ActionRequest) -> ActionResult:
    actor = actor_of(action.by)
    return for_each(action, lambda row: model_accept(model=row.model, actor=actor, now=action.now), "accepted again")


@admin.register(SuspendedModel)
class SuspendedModelAdmin(DetailAdmin):
    bound = column("bound_usd", exact_usd, title="bound")
    billed = column("actual_usd", exact_usd, title="billed")
    list_display = ["model", "bound", "billed", "suspended_at"]
    empty_text = (
        "No suspended models. A model that bills more than its bound is suspended until somebody accepts it again."
    )
    row_actions = (
        RowAction(
            "accept",
            "Accept again",
            _accept,
            description="A reply of this model cost more than its bound. Correct its price first.",
        ),
    )


@admin.register(InferenceLog)
class InferenceLogAdmin(DetailAdmin):
    purpose_ = column("purpose", words)
    outcome_ = column("outcome", words, label=OUTCOME_LABELS)
    cost = column("cost_estimate", partial(short_usd, empty="not reported"), title="spent")
    latency = column("latency_ms", took, title="duration")
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
