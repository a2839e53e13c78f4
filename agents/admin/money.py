"""What was spent and what may be: the installation's cap, daily books, prices, suspended models, calls of models."""

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.admin.actions import Act, ActForm, Asked, Told, each, usd_field
from agents.admin.base import column, person
from agents.admin.display import OUTCOME_LABELS, Bar, WordedFilter, moment, usd, words
from agents.admin.pages import EditForm, EditingAdmin, FactsAdmin
from agents.conf import clock
from agents.enums import BudgetScope
from agents.ledger.budgets import budget_set_cap
from agents.ledger.prices import model_accept, price_set
from agents.models import Agent, Budget, InferenceLog, Installation, ModelPrice, SuspendedModel, Trigger
from agents.people.access import actor_of


class InstallationForm(EditForm):
    class Meta:
        model = Installation
        fields = ["max_cost_per_day_usd"]
        labels = {"max_cost_per_day_usd": "Cap per day (USD)"}
        help_texts = {
            "max_cost_per_day_usd": "Everything that runs here together, per UTC day. Holds from the next call on."
        }


@admin.register(Installation)
class InstallationAdmin(EditingAdmin):
    """The one row that every call reads."""

    list_display = ["__str__", "cap"]
    form_class = InstallationForm

    @column("cap per day")
    def cap(self, row: Installation) -> str:
        return usd(row.max_cost_per_day_usd)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_changes(self, request: HttpRequest, row: Installation, form: Any) -> Installation:
        set_cap(BudgetScope.INSTALLATION, 0, form.cleaned_data["max_cost_per_day_usd"], request)
        return row


def set_cap(scope: BudgetScope, subject_id: int, cap: Decimal | None, request: HttpRequest) -> None:
    actor = actor_of(person(request))
    budget_set_cap(scope=scope, subject_id=subject_id, cap_usd=cap, actor=actor, now=clock())


class DayCapForm(ActForm):
    cap = usd_field(label="Cap per day (USD)", required=False, help_text="Empty: no cap of its own.")


def _set_cap(asked: Asked) -> Told:
    [budget] = asked.rows
    set_cap(BudgetScope(budget.scope), budget.subject_id, asked.given["cap"], asked.request)
    return Told(f"{budget.name} may spend {usd(asked.given['cap'], empty='without a cap of its own')} per day.")


@admin.register(Budget)
class BudgetAdmin(FactsAdmin):
    list_display = ["day", "scope", "whose", "spent", "actual", "open", "warning"]
    list_filter = ["scope", "day"]
    list_before_template = "admin/budget_caps.html"
    rows_word = "daily books"
    empty = "Nothing has been spent yet. The books of a day are opened by its first call of a model."
    ordering = ("-day", "scope", "-charged_usd")
    acts = (
        Act("set_cap", "Set its daily cap", "agents.change_budget", _set_cap, DayCapForm, many=False,
            explained="The cap holds for today's books too: the very next call is judged by it."),
    )  # fmt: skip

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        shown: dict[str, Any] = {"installation": Installation.objects.filter(pk=1).first()}
        shown["may_set"] = person(request).has_perm("agents.change_installation")
        response: HttpResponse = super().changelist_view(request, {**shown, **(extra_context or {})})
        return response

    def prepare(self, rows: list[Any]) -> None:
        """The names of agents and triggers, by one statement for each."""
        owners = {BudgetScope.AGENT: Agent.objects.all(), BudgetScope.TRIGGER: Trigger.objects.all()}
        for scope, known in owners.items():
            books = [row for row in rows if row.scope == scope]
            named = known.filter(pk__in=[row.subject_id for row in books])
            names = dict(named.values_list("pk", "name"))
            for row in books:
                row.subject_name = names.get(row.subject_id, "")

    @column("of")
    def whose(self, budget: Any) -> str:
        return getattr(budget, "subject_name", "") or budget.name

    @column("charged / cap")
    def spent(self, budget: Budget) -> SafeString:
        bar = Bar.of(max(budget.charged_usd + budget.reserved_usd, budget.actual_usd), budget.cap_usd)
        shown = {"spent": budget.charged_usd, "cap": budget.cap_usd, "bar": bar}
        return render_to_string("admin/parts/spent.html", shown)

    @column("", labels={"80 % reached": "warning"})
    def warning(self, budget: Budget) -> str:
        return "80 % reached" if budget.warned else ""

    @column("booked")
    def actual(self, budget: Budget) -> str:
        return usd(budget.actual_usd)

    @column("open")
    def open(self, budget: Budget) -> str:
        return f"{usd(budget.reserved_usd)}, at worst {usd(budget.held_usd)}"


class PriceForm(EditForm):
    class Meta:
        model = ModelPrice
        fields = ["model", "input_usd", "output_usd", "overhead_tokens"]
        labels = {
            "input_usd": "Input (USD per million tokens)",
            "output_usd": "Output (USD per million tokens)",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].disabled = self.instance.pk is not None


@admin.register(ModelPrice)
class ModelPriceAdmin(EditingAdmin):
    list_display = ["model", "input_", "output_", "overhead_tokens"]
    search_fields = ["model"]
    empty = "No price is declared. A model without one is never called: add what yours costs."
    ordering = ["model"]
    form_class = PriceForm

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @column("input per million")
    def input_(self, price: ModelPrice) -> str:
        return usd(price.input_usd)

    @column("output per million")
    def output_(self, price: ModelPrice) -> str:
        return usd(price.output_usd)

    def save_new(self, request: HttpRequest, form: Any) -> ModelPrice:
        return price_set(actor=actor_of(person(request)), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: ModelPrice, form: Any) -> ModelPrice:
        return self.save_new(request, form)


def _accept(asked: Asked) -> Told:
    actor = actor_of(asked.by)
    return each(asked, lambda row: model_accept(model=row.model, actor=actor, now=asked.now), "accepted again")


@admin.register(SuspendedModel)
class SuspendedModelAdmin(FactsAdmin):
    list_display = ["model", "bound", "billed", "since"]
    empty = "No model is suspended. One that bills more than its bound is, until somebody accepts it again."
    acts = (
        Act("accept", "Accept it again", "agents.change_suspendedmodel", _accept,
            explained="A reply of this model cost more than its bound. Find out why, and correct its price, first."),
    )  # fmt: skip

    @column("bound")
    def bound(self, row: SuspendedModel) -> str:
        return usd(row.bound_usd)

    @column("billed")
    def billed(self, row: SuspendedModel) -> str:
        return usd(row.actual_usd)

    @column("suspended")
    def since(self, row: SuspendedModel) -> str:
        return moment(row.suspended_at)


@admin.register(InferenceLog)
class InferenceLogAdmin(FactsAdmin):
    list_display = [
        "model", "purpose_", "ended", "input_tokens", "output_tokens", "cost", "latency", "of_session", "asked",
    ]  # fmt: skip
    list_filter = [("purpose", WordedFilter), ("outcome", WordedFilter)]
    empty = "No model has been asked yet. Each question that a run asks is noted here, with what it cost."
    list_select_related = ["session"]
    search_fields = ["session__public_id__exact", "model__exact"]
    search_help_text = "The public id of a session, or the name of a model, in full."

    @column("asked for")
    def purpose_(self, row: InferenceLog) -> str:
        return words(row.purpose)

    @column("outcome", labels=OUTCOME_LABELS)
    def ended(self, row: InferenceLog) -> tuple[str, str]:
        return row.outcome, words(row.outcome)

    @column("cost")
    def cost(self, row: InferenceLog) -> str:
        return usd(row.cost_estimate, empty="not reported")

    @column("took")
    def latency(self, row: InferenceLog) -> str:
        return f"{row.latency_ms} ms"

    @column("asked")
    def asked(self, row: InferenceLog) -> str:
        return moment(row.created_at)
