"""Triggers: the list with editable caps, the form by kind, actions, and the one page that shows a signing secret."""

from collections import defaultdict
from dataclasses import asdict, fields
from datetime import UTC, date
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.html import format_html
from unfold.decorators import display
from unfold.widgets import BASE_INPUT_CLASSES

from agents.admin.actions import (
    ActionForm,
    ActionRequest,
    ActionResult,
    RowAction,
    delete_action,
    each_row,
    for_each,
    is_in_use,
)
from agents.admin.base import DetailAdmin, NamedAdmin, chosen_owner, current_user, page_link, site_page
from agents.admin.charts import small_charts
from agents.admin.display import (
    DeletedFilter,
    NamedFilter,
    WordedFilter,
    ago,
    column,
    counted,
    exact_usd,
    in_cents,
    two_lines,
    usd,
    with_purposes,
    words,
)
from agents.admin.forms import REFUSALS, error_text, usd_field
from agents.admin.money import caps_action
from agents.admin.sessions import RUN_OPTIONS, RunForm, start_each
from agents.conf import clock, default_session_cap
from agents.enums import BudgetPeriod, BudgetScope, EventSeverity, InputState, TriggerKind
from agents.exceptions import Invalid
from agents.ledger.budgets import cap_of
from agents.ledger.trigger_health import trigger_spend
from agents.models import AgentSession, Budget, Trigger, UnreadInput
from agents.policy import schedule
from agents.policy.guardrails import MOST, RENAMED, GuardrailsConfig, LoopConfig, Strategy
from agents.policy.run_spec import OPTIONS, RunSpec
from agents.sessions.figures import Subject
from agents.text.shown import visible
from agents.triggers.firing import run_now
from agents.triggers.inputs import DECIDABLE, PERMISSION, input_dismiss, input_retry
from agents.triggers.triggers import (
    trigger_create,
    trigger_delete,
    trigger_edit,
    trigger_pause,
    trigger_resume,
    trigger_rotate_secret,
    trigger_secret,
    triggers_set_cap,
)
from audit.receipts import label_of

CAP_CLASSES: Final = " ".join([*BASE_INPUT_CLASSES, "lq-cap"])
STATE_LABELS: Final = {"on": "success", "paused": "warning", "off": "danger", "deleted": "danger"}
KIND_WORDS: Final = {
    TriggerKind.WATCH.value: "fires for every document added to a collection",
    TriggerKind.SCHEDULE.value: "fires at set times and reads the documents added to a collection since the last time",
    TriggerKind.EVENT.value: "fires when another system sends a signed message, or an event through the API",
    TriggerKind.MANUAL.value: "fires only when somebody runs it",
}
_SCHEDULE: Final = ("cron", "zone", "catch_up_minutes")
ANY_CRON: Final = "0 0 * * *"
_EVENT: Final = ("source", "event_type", "category", "min_severity")
SHOWN_TIMES: Final = 5
_LIMITS: Final = ("max_cost_per_day_usd", "max_runs_per_hour", "pause_after", "enabled")


# --- The form ---


_SETTINGS: Final[dict[str, type[LoopConfig | GuardrailsConfig]]] = {"loop": LoopConfig, "guardrails": GuardrailsConfig}
# Label and help of each setting. The default of the installation is added to the help.
_SETTING_TEXTS: Final = {
    "loop_max_steps": ("Maximum steps", "Replies of the model in one run. 0: none."),
    "loop_timeout": ("Time limit (seconds)", "Working time of one run; waiting does not count. 0: no limit."),
    "loop_max_retries": ("Attempts at a failing model server", "All tries of one call together."),
    "loop_streaming": ("Stream replies", "Replies are shown while they are written."),
    "loop_context_window": (
        "Context window (tokens)",
        "A longer conversation is cut before it is sent. 0: what the model declares, else no limit.",
    ),
    "loop_context_strategy": ("Cutting of long conversations", "How a conversation that is too long is cut."),
    "loop_token_budget": ("Token budget", "Tokens of one run. 0: no limit."),
    "loop_max_tool_rounds": ("Maximum rounds of calls", "Steps with calls in one run. 0: no limit."),
    "guardrails_max_tokens_recoveries": (
        "Maximum continuations of a cut reply",
        "Times that a reply which was cut off is continued. 0: never.",
    ),
    "guardrails_max_repeated_tool_steps": (
        "Maximum repetitions of the same calls",
        "The same calls run at most this often in a row, then the run fails. 0: no call runs at all.",
    ),
    "guardrails_reserve_tokens": (
        "Warning by tokens left",
        "The model is warned once, when no more than this many tokens of its budget are left.",
    ),
    "guardrails_reserve_cost_fraction": (
        "Warning by part of the cap left",
        "The model is warned once, when no more than this part of the cost cap is left, from 0 to 1.",
    ),
}
AGENTIC: Final = "For an agentic analysis. An empty field: as the agent has it, else the default."
_AS_AGENT: Final = ("", "As the agent")


def _setting_field(name: str, default: object) -> forms.Field:
    """A field for one setting of the step loop, by the type of its default. Empty: as the agent has it."""
    label, help_text = _SETTING_TEXTS[name]
    given: dict[str, Any] = {"required": False, "label": label, "help_text": help_text}
    match default:
        case bool():
            choices = [_AS_AGENT, ("yes", "Yes"), ("no", "No")]
            return forms.TypedChoiceField(choices=choices, coerce=lambda text: text == "yes", empty_value=None, **given)
        case Strategy():
            choices = [_AS_AGENT, *((one.value, words(one.value)) for one in Strategy)]
            return forms.TypedChoiceField(choices=choices, empty_value=None, **given)
        case Decimal():
            return forms.DecimalField(min_value=0, max_value=1, **given)
        case _:
            return forms.IntegerField(min_value=0, max_value=MOST, **given)


_SETTING_FIELDS: Final = {
    f"{group}_{field.name}": _setting_field(f"{group}_{field.name}", field.default)
    for group, config in _SETTINGS.items()
    for field in fields(config)
}
# Without it, what is posted comes from a page that did not have these fields.
_MARKER: Final = "has_settings"
_MARKER_FIELD: Final = forms.CharField(required=False, initial="1", widget=forms.HiddenInput)
SettingsForm: Any = type("SettingsForm", (forms.Form,), {**_SETTING_FIELDS, _MARKER: _MARKER_FIELD})


class TriggerForm(RunForm, SettingsForm):  # type: ignore[misc]  # its second base is made of a table
    """The fields of its kind, and one for each setting of the step loop."""

    class Meta(RunForm.Meta):
        fields = ["name", *_SCHEDULE, *_EVENT, *RunForm.Meta.fields, *_LIMITS]
        labels = {
            **RunForm.Meta.labels,
            "max_cost_per_day_usd": "Cap per day (USD)",
            "min_severity": "Minimum severity",
            "zone": "Time zone",
            "cron": "Schedule (cron)",
            "catch_up_minutes": "Catch up missed runs (minutes)",
        }
        help_texts = {
            **RunForm.Meta.help_texts,
            **dict.fromkeys(("source", "event_type", "category"), "The events that fire it. Empty or *: any."),
            "catch_up_minutes": "A run missed by at most this many minutes is started once. 0: never.",
            "collection": "Documents to read. The collection of a watch cannot be changed later.",
            "max_cost_per_day_usd": "Maximum cost of all its runs per UTC day. Empty: no cap of its own.",
            "max_runs_per_hour": "Further runs in the same hour are refused.",
        }

    def clean_cron(self) -> Any:
        """Check cron and zone separately, so that each error is shown beside its field."""
        given = self.cleaned_data["cron"]
        if given:
            _validate_schedule(given, "UTC")
        return given

    def clean_zone(self) -> Any:
        given = self.cleaned_data["zone"]
        _validate_schedule(ANY_CRON, given)
        return given

    def __init__(self, *args: Any, kind: str, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, owner=owner, **kwargs)
        unused = [*(_SCHEDULE if kind != TriggerKind.SCHEDULE else ()), *(_EVENT if kind != TriggerKind.EVENT else ())]
        for name in unused:
            del self.fields[name]
        for group, config in _SETTINGS.items():
            for key, value in self._stored(group).items():
                self.initial[f"{group}_{key}"] = _as_choice(value)
            for key, value in asdict(config.merged(getattr(settings, f"LQOPS_{group.upper()}"))).items():
                self.fields[f"{group}_{key}"].help_text += f" Default: {words(_as_choice(value))}."
        if self.is_bound and not self.data.get(_MARKER):
            posted: Any = self.data
            self.data = kept = posted.copy()
            for name in _SETTING_FIELDS:
                kept[name] = self.initial.get(name, "")
            kept[_MARKER] = "1"
        if kind == TriggerKind.WATCH:
            self.fields["collection"].required = True
            self.fields["collection"].disabled = self.instance.pk is not None
        if kind == TriggerKind.SCHEDULE:
            self.fields["cron"].required = True
            self.fields["cron"].widget.attrs["data-reads"] = reverse("admin:agents_trigger_schedule")

    def _stored(self, group: str) -> dict[str, Any]:
        return {RENAMED.get(key, key): value for key, value in getattr(self.instance, group).items()}

    def clean(self) -> dict[str, Any]:
        """Put the settings of the step loop together, as triggers keep them."""
        given = super().clean() or self.cleaned_data
        given.pop(_MARKER, None)
        for group, config in _SETTINGS.items():
            values = {field.name: given.pop(f"{group}_{field.name}", None) for field in fields(config)}
            given[group] = {key: _as_json(value) for key, value in values.items() if value is not None}
        return given

    def changes(self) -> dict[str, Any]:
        changed = {name: self.cleaned_data[name] for name in self.changed_data if name in self.cleaned_data}
        return changed | {
            group: self.cleaned_data[group] for group in _SETTINGS if self.cleaned_data[group] != self._stored(group)
        }


def _as_choice(value: Any) -> Any:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _as_json(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _validate_schedule(cron: str, zone: str) -> None:
    try:
        schedule.validate(cron, zone)
    except Invalid as error:
        raise forms.ValidationError(str(error)) from None


def schedule_text(cron: str, zone: str) -> str:
    """The schedule in words, and its next times by the clock of its zone."""
    times = schedule.next_times(cron, zone, clock(), SHOWN_TIMES)
    return f"{schedule.in_words(cron)}, {zone}. Next: {'; '.join(f'{due:%a %-d %b %Y, %H:%M}' for due in times)}."


def secret_page(request: HttpRequest, trigger: Trigger, secret: str = "") -> HttpResponse:
    """Show the secret in this response and nowhere else: no message, no cookie, no log."""
    response = site_page(
        request,
        "admin/trigger_secret.html",
        "Signing secret",
        trigger=trigger,
        secret=secret or trigger_secret(trigger),
        address=request.build_absolute_uri(f"/hooks/{trigger.public_id}"),
        back=reverse("admin:agents_trigger_change", args=[trigger.pk]),
    )
    response["Cache-Control"] = "no-store"
    return response


# --- Actions ---


class TriggerPauseForm(ActionForm):
    with_runs = forms.BooleanField(
        required=False,
        label="Pause its current runs, too",
        help_text="They go on when the trigger is resumed. Otherwise they go on now.",
    )


def _pause(action: ActionRequest) -> ActionResult:
    facts = {"by": action.by, "now": action.now, "with_runs": action.data["with_runs"]}
    return for_each(action, lambda row: trigger_pause(trigger=row, **facts), "paused")


class CapForm(ActionForm):
    cap = usd_field(label="Cap per run (USD)", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        default = usd(default_session_cap())
        self.fields["cap"].help_text = f"Maximum cost per run. Empty: the installation's default ({default})."


def _run(action: ActionRequest) -> ActionResult:
    def run(row: Trigger) -> list[AgentSession]:
        return [run_now(RunSpec(), owner=row.owner, by=action.by, now=action.now, trigger=row)]

    return start_each(action, run, "started")


def _set_cap(action: ActionRequest) -> ActionResult:
    cap = action.data["cap"]
    rows = triggers_set_cap(triggers=action.rows, cap=cap, by=action.by, now=action.now)
    amount = f"{usd(default_session_cap())} (default)" if cap is None else usd(cap)
    return ActionResult(f"Cap of {counted(len(rows), 'trigger')} set to {amount} per run.")


def _rotate(action: ActionRequest) -> HttpResponse:
    [trigger] = action.rows
    secret = trigger_rotate_secret(trigger=trigger, by=action.by, now=action.now)
    return secret_page(action.request, trigger, secret)


def _fires(trigger: Trigger) -> bool:
    """Whether the time of its next run counts: a disabled, paused or deleted trigger keeps one."""
    return trigger.enabled and trigger.paused_at is None and trigger.deleted_at is None


def state_of(trigger: Trigger) -> tuple[str, str]:
    if trigger.deleted_at is not None:
        return "deleted", "deleted"
    if trigger.paused_at is not None:
        return "paused", f"paused: {words(trigger.pause_reason) or 'by hand'}"
    return ("on", "enabled") if trigger.enabled else ("off", "disabled")


# --- Its settings in words ---


def settings_summary(trigger: Trigger, by: User) -> list[dict[str, Any]]:
    """The settings for reading, above the form: when it runs, what its runs do, and what they may cost."""
    target = trigger.skill or trigger.playbook
    facts: list[tuple[str, str, Any]] = [
        ("State", state_of(trigger)[1], None),
        ("Runs", _when(trigger), None),
        (_target_label(trigger), str(target) if target else "none", target),
        ("Reads", _reads(trigger), trigger.collection),
        ("Analysis", _analysis(trigger), None),
        *((label, row.name, row) for label, row in (("Project", trigger.project), ("Agent", trigger.agent)) if row),
        ("Caps", _caps(trigger), None),
        ("Limits", _limits_text(trigger), None),
    ]
    if own := _own_settings(trigger):
        facts.append(("Step loop", own, None))
    return [{"label": label, "text": text, "link": page_link(row, by) if row else ""} for label, text, row in facts]


def _when(trigger: Trigger) -> str:
    match trigger.kind:
        case TriggerKind.WATCH:
            return "For every document added to its collection"
        case TriggerKind.SCHEDULE:
            return _schedule_words(trigger)
        case TriggerKind.EVENT:
            return _event_words(trigger)
        case _:
            return "Only when somebody runs it"


def _schedule_words(trigger: Trigger) -> str:
    try:
        return f"{schedule.in_words(trigger.cron)}, {trigger.zone}"
    except Invalid:
        return trigger.cron or "never: it has no schedule"


def _event_words(trigger: Trigger) -> str:
    rules = (("source", trigger.source), ("type", trigger.event_type), ("category", trigger.category))
    found = [f"{name} {value}" for name, value in rules if value not in {"", "*"}]
    if trigger.min_severity != EventSeverity.INFO:
        found.append(f"severity {trigger.min_severity} or above")
    return f"For events with {', '.join(found)}" if found else "For any event"


def _target_label(trigger: Trigger) -> str:
    return "Skill" if trigger.skill else "Playbook"


def _reads(trigger: Trigger) -> str:
    place = trigger.collection.name if trigger.collection else "what its firing brings"
    return f"{place}: passages that match {trigger.query}" if trigger.query else place


def _analysis(trigger: Trigger) -> str:
    chosen = [option.metadata["label"].lower() for option in OPTIONS if getattr(trigger, option.name) is True]
    return ", ".join([words(trigger.analysis_mode), *chosen])


def _caps(trigger: Trigger) -> str:
    run = trigger.max_cost_usd
    a_run = f"{usd(default_session_cap())} per run (default)" if run is None else f"{usd(run)} per run"
    day = usd(trigger.max_cost_per_day_usd, empty="no cap")
    month = usd(cap_of(BudgetScope.TRIGGER, trigger.pk, BudgetPeriod.MONTH), empty="no cap")
    return f"{a_run}, {day} per day, {month} per month"


def _limits_text(trigger: Trigger) -> str:
    runs = f"{counted(trigger.max_runs_per_hour, 'run')} per hour"
    if not trigger.pause_after:
        return runs
    return f"{runs}; pauses after {trigger.pause_after} in a row that failed or found nothing"


def _own_settings(trigger: Trigger) -> str:
    """The settings of the step loop that the trigger sets itself."""
    given = {
        f"{group}_{RENAMED.get(key, key)}": value
        for group in _SETTINGS
        for key, value in getattr(trigger, group).items()
    }
    texts = ((_SETTING_TEXTS[name][0], value) for name, value in given.items() if name in _SETTING_TEXTS)
    return "; ".join(f"{label}: {words(_as_choice(value))}" for label, value in texts)


# The list's heading of the editable cap is the name of the field.
Trigger._meta.get_field("max_cost_usd").verbose_name = "cap per run (USD)"


@admin.register(Trigger)
class TriggerAdmin(NamedAdmin):
    kind_ = column("kind", label=True, sort="kind")
    state = column(state_of, title="state", label=STATE_LABELS, sort="enabled")
    sortable_by = None
    list_display = ["name", "kind_", "instructions", "max_cost_usd", "cost", "runs", "state", "run"]
    list_editable = ["max_cost_usd"]
    list_filter = [DeletedFilter, "kind", "enabled", ("agent", NamedFilter)]
    list_select_related = ["owner", "agent", "playbook", "skill", "collection"]
    empty_text = "No triggers yet. A trigger starts runs: for each new document, at set times, or for each event."
    form = TriggerForm
    add_form_template = "admin/trigger.html"
    change_form_template = "admin/trigger.html"
    fieldsets = (
        ("Schedule", {"fields": _SCHEDULE}),
        ("Event", {"fields": _EVENT}),
        ("Instructions and inputs", {"fields": ("playbook", "skill", "collection", "query", "project", "agent")}),
        ("Options", {"fields": RUN_OPTIONS}),
        ("Cost caps", {"fields": ("max_cost_usd", "max_cost_per_day_usd")}),
        ("Limits", {"fields": ("max_runs_per_hour", "pause_after", "enabled")}),
        (
            "Step loop",
            {"description": AGENTIC, "fields": [_MARKER, *(n for n in _SETTING_FIELDS if n.startswith("loop_"))]},
        ),
        ("Guardrails", {"description": AGENTIC, "fields": [n for n in _SETTING_FIELDS if n.startswith("guardrails_")]}),
    )
    row_actions = (
        RowAction(
            "run_now",
            "Run now",
            _run,
            permission="agents.add_agentsession",
            available=is_in_use,
            description="Starts one run, also while the trigger is paused or disabled. It reads the whole collection, "
            "or the passages that match the query.",
        ),
        RowAction(
            "set_cap",
            "Set cap per run",
            _set_cap,
            CapForm,
            available=is_in_use,
            initial=lambda row: {"cap": row.max_cost_usd},
            description="Applies to new runs. Current runs keep their cap.",
        ),
        caps_action(BudgetScope.TRIGGER, available=is_in_use),
        RowAction(
            "pause",
            "Pause",
            _pause,
            TriggerPauseForm,
            available=lambda row: is_in_use(row) and row.paused_at is None,
            description="It does not fire until somebody resumes it. Documents for a watch wait; other firings are "
            "not made up for.",
        ),
        RowAction(
            "resume",
            "Resume",
            each_row(trigger_resume, "trigger", "resumed"),
            available=lambda row: is_in_use(row) and row.paused_at is not None,
            description="It fires again from now on, and runs that were paused with it go on. Runs missed during the "
            "pause are not made up for.",
        ),
        RowAction(
            "rotate",
            "Rotate signing secret",
            _rotate,
            bulk=False,
            danger=True,
            available=lambda row: is_in_use(row) and row.kind == TriggerKind.EVENT,
            description="The old secret stays valid for 24 hours. The next page shows the new one, once.",
        ),
        delete_action(
            each_row(trigger_delete, "trigger", "deleted"),
            "It never fires again and leaves the list. Its runs and their receipts stay.",
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        pks = [row.pk for row in rows]
        today = clock().astimezone(UTC).date()
        days = Budget.objects.daily().filter(scope=BudgetScope.TRIGGER, subject_id__in=pks)
        spent: dict[int, dict[date, Decimal]] = defaultdict(dict)
        for day in days.filter(day__gte=today.replace(day=1)):
            spent[day.subject_id][day.day] = day.spent_usd
        # By a range of one: told to be equal, PostgreSQL may walk all runs backwards for a trigger that has none.
        runs = AgentSession.objects.filter(trigger_id__gte=OuterRef("pk"), trigger_id__lte=OuterRef("pk"))
        last = Subquery(runs.order_by("trigger_id", "-pk").values("created_at")[:1])
        ran_at = dict(Trigger.objects.filter(pk__in=pks).order_by().values_list("pk", last))
        for row in rows:
            row.spent_today = spent[row.pk].get(today, Decimal(0))
            row.spent_this_month = sum(spent[row.pk].values(), Decimal(0))
            row.ran_at = ran_at.get(row.pk)

    def save_model(self, request: HttpRequest, obj: Trigger, form: Any, change: Any) -> None:
        """Save the cap from the list; everything else is changed on the trigger's page."""
        try:
            triggers_set_cap(
                triggers=[obj], cap=form.cleaned_data["max_cost_usd"], by=current_user(request), now=clock()
            )
        except REFUSALS as error:
            messages.error(request, f"{obj}: {error_text(error)}")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "max_cost_usd" and field is not None:
            field.widget.attrs |= {"placeholder": f"{usd(default_session_cap())} (default)", "class": CAP_CLASSES}
            field.show_hidden_initial = True  # a cap that somebody else has set since is not set back
        return field

    @display(description="instructions")
    def instructions(self, trigger: Trigger) -> str:
        source = trigger.skill or trigger.playbook
        name = source.name if source else "none"
        place = f" on {trigger.collection.name}" if trigger.collection else ""
        return two_lines(visible(f"{name}{place}"), visible(f"for {trigger.owner}"))

    @display(description="spent")
    def cost(self, trigger: Any) -> str:
        exact = f"{exact_usd(trigger.spent_today)} today, {exact_usd(trigger.spent_this_month)} this month"
        text = two_lines(f"{in_cents(trigger.spent_today)} today", f"{in_cents(trigger.spent_this_month)} this month")
        return format_html('<span title="{}">{}</span>', exact, text)

    @display(description="runs")
    def runs(self, trigger: Any) -> str:
        now = clock()
        due = trigger.next_run_at if _fires(trigger) else None
        return two_lines(f"next: {ago(due, now, empty='—')}", f"last: {ago(trigger.ran_at, now)}")

    @display(description="")
    def run(self, trigger: Trigger) -> str:
        if not is_in_use(trigger):
            return ""
        return format_html('<a class="lq-button small" href="{}">Run now</a>', self.action_link(trigger, "run_now"))

    def get_list_display(self, request: HttpRequest) -> list[str]:
        may_run = current_user(request).has_perm("agents.add_agentsession")
        return [name for name in self.list_display if name != "run" or may_run]

    def get_urls(self) -> Any:
        return [self.url("schedule/", "schedule"), *super().get_urls()]

    def schedule_view(self, request: HttpRequest) -> JsonResponse:
        """Say what a schedule means and when it is due next, while somebody writes it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            text = schedule_text(request.GET.get("cron", ""), request.GET.get("zone", ""))
        except Invalid as error:
            text = str(error)
        return JsonResponse({"text": text})

    def add_view(self, request: HttpRequest, **_: Any) -> HttpResponse:
        """First the kind and the owner; then the fields of that kind, with choices of that owner."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.GET.get("kind") not in KIND_WORDS:
            people = User.objects.filter(is_active=True).order_by("username")[:500]
            context: dict[str, Any] = {"kinds": KIND_WORDS.items(), "people": people, "me": current_user(request)}
            return self.render_page(request, "admin/trigger_kinds.html", "Add trigger", **context)
        return super().add_view(request)

    def form_options(self, request: HttpRequest, row: Trigger | None) -> dict[str, Any]:
        if row is not None:
            return {"owner": row.owner, "kind": row.kind}
        return {"owner": chosen_owner(request), "kind": request.GET["kind"]}

    def create(self, request: HttpRequest, form: Any) -> Trigger | HttpResponse:
        kind = request.GET["kind"]
        trigger = trigger_create(
            owner=chosen_owner(request), kind=kind, by=current_user(request), now=clock(), **form.cleaned_data
        )
        return secret_page(request, trigger) if kind == TriggerKind.EVENT else trigger

    def update(self, request: HttpRequest, row: Trigger, form: Any) -> Trigger:
        return trigger_edit(trigger=row, by=current_user(request), now=clock(), **form.changes())

    def add_context(self, request: HttpRequest) -> dict[str, Any]:
        kind = request.GET["kind"]
        return {"owner": chosen_owner(request), "kind": kind, "kind_words": KIND_WORDS[kind]}

    def extra_context(self, request: HttpRequest, row: Trigger) -> dict[str, Any]:
        sessions = with_purposes(row.sessions.select_related("owner", "trigger", "agent").order_by("-id")[:10])
        spend = trigger_spend(row)
        return {
            "owner": row.owner,
            "kind": row.kind,
            "kind_words": KIND_WORDS.get(row.kind, row.kind),
            "settings_summary": settings_summary(row, current_user(request)),
            "spend": spend,
            "address": request.build_absolute_uri(f"/hooks/{row.public_id}") if row.kind == TriggerKind.EVENT else "",
            "state": state_of(row)[1],
            "ran_at": sessions[0].created_at if sessions else None,
            "fires": _fires(row),
            "sessions": sessions,
            **small_charts(current_user(request), Subject(trigger_id=row.pk), clock()),
        }


# --- Unread inputs ---


@admin.register(UnreadInput)
class UnreadInputAdmin(DetailAdmin):
    """Inputs that runs of triggers did not read, newest first, with Retry and Dismiss."""

    what = column(
        lambda row: two_lines(visible(row.session.purpose), f"not read: {label_of('reason', row.reason)}"),
        title="input",
    )
    state_ = column(
        "state", words, label={"retrying": "info", "queued": "info", "given_up": "danger", "dismissed": "warning"}
    )
    next_run = column(lambda row: ago(row.due_at, clock()) if row.due_at else "—", title="next run")
    list_display = ["what", "trigger", "state_", "tries", "next_run", "of_session", "failed_at", "owner"]
    list_filter = [("state", WordedFilter)]
    list_select_related = ["trigger", "session__trigger", "session__agent", "owner"]
    exclude = ("id", "public_id")
    empty_text = "Everything that arrived has been read, or a run is reading it."
    row_actions = (
        RowAction(
            "retry",
            "Retry",
            each_row(input_retry, "unread_input", "to be read again"),
            permission=PERMISSION,
            available=lambda row: row.state in DECIDABLE and row.trigger.deleted_at is None,
            description="Starts another run for it at once, by its trigger as it is today.",
        ),
        RowAction(
            "dismiss",
            "Dismiss",
            each_row(input_dismiss, "unread_input", "dismissed"),
            permission=PERMISSION,
            available=lambda row: row.state in {InputState.RETRYING, InputState.GIVEN_UP},
            description="Leaves it unread. It can still be retried later.",
        ),
    )

    def prepare_rows(self, rows: list[Any]) -> None:
        with_purposes(row.session for row in rows)

    def extra_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        with_purposes([row.session])
        return {"title": row.session.purpose}
