"""Triggers: what spawns sessions, at what cost, and what keeps it from running away. Caps can be set in the list."""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from unfold.widgets import BASE_INPUT_CLASSES

from agents.admin.actions import REFUSALS, Act, ActForm, Asked, CapForm, Told, each, reason
from agents.admin.base import ID_DIGITS, column, person
from agents.admin.display import DeletedFilter, ago, counted, usd, visible, words
from agents.admin.pages import EditForm, EditingAdmin, OwnedChoices, Section
from agents.admin.sessions import session_links
from agents.conf import clock, default_session_cap
from agents.enums import BudgetScope, TriggerKind
from agents.exceptions import Invalid
from agents.ledger.trigger_health import TriggerSpend, trigger_spend, triggers_spend
from agents.models import AgentSession, Budget, Trigger
from agents.policy import schedule
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.policy.run_spec import RunSpec
from agents.sessions.reads import purposes
from agents.triggers.firing import run_now
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

# --- The fields of a trigger by its kind, and the one page that shows a signing secret ---


KIND_WORDS: Final = {
    TriggerKind.WATCH.value: "fires for every document that is put into a collection",
    TriggerKind.SCHEDULE.value: "fires at set times and reads what came into a collection since the last time",
    TriggerKind.EVENT.value: "fires when another system sends a signed message, or an event through the API",
    TriggerKind.MANUAL.value: "never fires by itself; somebody runs it",
}
_SCHEDULE: Final = ("cron", "zone", "catch_up_minutes")
ANY_CRON: Final = "0 0 * * *"
_EVENT: Final = ("source", "event_type", "category", "min_severity")


def _names(config: type[LoopConfig | GuardrailsConfig]) -> str:
    return ", ".join(field.name for field in fields(config))


class TriggerForm(OwnedChoices, EditForm):
    """Only what its kind has a use for; every choice is the owner's own."""

    class Meta:
        model = Trigger
        fields = [
            "name", *_SCHEDULE, *_EVENT, "playbook", "skill", "collection", "query", "project", "agent",
            "emit_artifacts", "review_flagged", "judge_citations", "analysis_mode", "loop", "guardrails",
            "max_cost_usd", "max_cost_per_day_usd", "max_runs_per_hour", "pause_after", "enabled",
        ]  # fmt: skip
        labels = {
            "max_cost_usd": "Cap per session (USD)",
            "max_cost_per_day_usd": "Cap per day (USD)",
            "emit_artifacts": "May save drafts",
            "review_flagged": "Concerns wait for approval",
            "judge_citations": "Judge the quotes",
            "analysis_mode": "Analysis",
            "loop": "Step loop (JSON)",
            "guardrails": "Guardrails (JSON)",
            "zone": "Time zone",
            "cron": "Times (cron)",
            "catch_up_minutes": "Make up for missed runs (minutes)",
        }
        help_texts = {
            "source": "An event fits if its source is this. Empty or * fits any.",
            "event_type": "And its type is this. Empty or * fits any.",
            "category": "And its category is this. Empty or * fits any.",
            "min_severity": "And it is at least this grave.",
            "project": "Its context goes into every prompt.",
            "agent": "Under whose approval mode and budget its runs stand.",
            "loop": f"For an agentic analysis; what is left out is as the agent has it. Known: {_names(LoopConfig)}.",
            "guardrails": f"Likewise. Known: {_names(GuardrailsConfig)}.",
        }

    def clean_cron(self) -> Any:
        """Here and for the zone apart, so that both are complained of where they stand; the service judges again."""
        given = self.cleaned_data["cron"]
        if given:
            _demand(lambda: schedule.validate(given, "UTC"))
        return given

    def clean_zone(self) -> Any:
        given = self.cleaned_data["zone"]
        _demand(lambda: schedule.validate(ANY_CRON, given))
        return given

    def __init__(self, *args: Any, kind: str, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, owner=owner, **kwargs)
        unused = [*(_SCHEDULE if kind != TriggerKind.SCHEDULE else ()), *(_EVENT if kind != TriggerKind.EVENT else ())]
        for name in unused:
            del self.fields[name]
        for name in ("loop", "guardrails"):  # a default that is called makes forms look for a second, hidden input
            self.fields[name].show_hidden_initial = False
        if kind == TriggerKind.WATCH:
            self.fields["collection"].required = True
            self.fields["collection"].disabled = self.instance.pk is not None
        if kind == TriggerKind.SCHEDULE:
            self.fields["cron"].required = True


def _demand(check: Callable[[], None]) -> None:
    try:
        check()
    except Invalid as error:
        raise forms.ValidationError(str(error)) from None


def secret_page(request: HttpRequest, trigger: Trigger, secret: str = "") -> HttpResponse:
    """Shows the secret in the answer to the request that made it, and nowhere else: no message, no cookie, no log."""
    context = {
        **admin.site.each_context(request),
        "title": "Signing secret",
        "trigger": trigger,
        "secret": secret or trigger_secret(trigger),
        "address": request.build_absolute_uri(f"/hooks/{trigger.public_id}"),
        "back": reverse("admin:agents_trigger_change", args=[trigger.pk]),
    }
    response = TemplateResponse(request, "admin/trigger_secret.html", context)
    response["Cache-Control"] = "no-store"
    return response


CHANGE = "agents.change_trigger"
LINES = '<span>{}<br><span class="lq-faint">{}</span></span>'
CAP_CLASSES = " ".join([*BASE_INPUT_CLASSES, "lq-cap"])


def _in_use(row: Trigger) -> bool:
    return row.deleted_at is None


def _run(asked: Asked) -> Told:
    started: list[AgentSession] = []
    done = each(
        asked,
        lambda row: started.append(run_now(RunSpec(), owner=row.owner, by=asked.by, now=asked.now, trigger=row)),
        "started",
    )
    return Told(format_html("{} {}", done.text, session_links(started)), done.refused)


def _reads(row: Trigger) -> str:
    """What a run by hand reads, which for a watch or a schedule is not what it reads by itself."""
    if row.query:
        place = f" in the collection {row.collection.name}" if row.collection else ""
        return f"Reads the passages{place} that fit “{row.query}”."
    if row.collection:
        by_itself = {
            TriggerKind.WATCH.value: " By itself it reads only the document that was put in.",
            TriggerKind.SCHEDULE.value: " By itself it reads only what came in since the last time.",
        }
        return f"Reads all documents of the collection {row.collection.name}.{by_itself.get(row.kind, '')}"
    return "Has no collection and no query: run by hand it has nothing to read."


def _pause(asked: Asked) -> Told:
    return each(asked, lambda row: trigger_pause(trigger=row, by=asked.by, now=asked.now), "paused")


def _resume(asked: Asked) -> Told:
    return each(asked, lambda row: trigger_resume(trigger=row, by=asked.by, now=asked.now), "may fire again")


def _set_cap(asked: Asked) -> Told:
    cap = asked.given["cap"]
    rows = triggers_set_cap(triggers=asked.rows, cap=cap, by=asked.by, now=asked.now)
    return Told(f"{len(rows)} capped at {usd(cap, empty='the default')} per session.")


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: trigger_delete(trigger=row, by=asked.by, now=asked.now), "deleted")


def _rotate(asked: Asked) -> HttpResponse:
    [trigger] = asked.rows
    secret = trigger_rotate_secret(trigger=trigger, by=asked.by, now=asked.now)
    return secret_page(asked.request, trigger, secret)


@admin.register(Trigger)
class TriggerAdmin(EditingAdmin):
    list_display = [
        "name", "kind_", "does", "max_cost_usd", "spent", "runs", "state", "run",
    ]  # fmt: skip
    list_editable = ["max_cost_usd"]
    list_filter = [DeletedFilter, "kind", "enabled", "agent"]
    list_select_related = ["owner", "agent", "playbook", "skill", "collection"]
    search_fields = ["name", "owner__username"]
    empty = "There are no triggers. One starts runs: for each new document, at set times, or when an event comes in."
    ordering = ["name", "id"]
    sortable_by = ("name",)
    form_class = TriggerForm
    edit_template = "admin/trigger.html"
    sections = (
        Section("When it fires", ("cron", "zone", "catch_up_minutes", "source", "event_type", "category",
                                  "min_severity")),
        Section("What its runs do", ("playbook", "skill", "collection", "query", "project", "agent")),
        Section("What they may", ("emit_artifacts", "review_flagged", "judge_citations")),
        Section("How they think", ("analysis_mode", "loop", "guardrails")),
        Section("What it may cost", ("max_cost_usd", "max_cost_per_day_usd")),
        Section("What stops it from running away", ("max_runs_per_hour", "pause_after", "enabled")),
    )  # fmt: skip
    acts = (
        Act("run_now", "Run now", "agents.add_agentsession", _run, fits=_in_use, shows=_reads,
            explained="Starts one session with what the trigger goes by, also while it is paused or switched off."),
        Act("set_cap", "Set cap", CHANGE, _set_cap, CapForm, fits=_in_use,
            explained="The cap holds for each session to come; those under way keep theirs."),
        Act("pause", "Pause", CHANGE, _pause, fits=lambda row: _in_use(row) and row.paused_at is None,
            explained="It does not fire until somebody resumes it."),
        Act("resume", "Resume", CHANGE, _resume, fits=lambda row: _in_use(row) and row.paused_at is not None,
            explained="It fires again, from now on. What the pause left out is not made up for."),
        Act("rotate", "New signing secret", CHANGE, _rotate, ActForm, many=False, grave=True,
            fits=lambda row: _in_use(row) and row.kind == TriggerKind.EVENT,
            explained="The present secret counts for a day more. The new one is shown once, on the next page."),
        Act("delete", "Delete", "agents.delete_trigger", _delete, fits=_in_use, grave=True,
            explained="It never fires again and leaves the list. Its sessions and their receipts stay."),
    )  # fmt: skip

    def prepare(self, rows: list[Any]) -> None:
        pks = [row.pk for row in rows]
        spent, day = triggers_spend(pks), clock().astimezone(UTC).date()
        books = Budget.objects.filter(scope=BudgetScope.TRIGGER, subject_id__in=pks, day=day)
        today = dict(books.values_list("subject_id", "charged_usd"))
        runs = AgentSession.objects.filter(trigger__in=pks).order_by().values_list("trigger_id")
        ran_at = dict(runs.annotate(last=Max("created_at")))
        for row in rows:
            row.spend, row.spent_today = spent.get(row.pk, TriggerSpend()), today.get(row.pk)
            row.ran_at = ran_at.get(row.pk)

    def save_model(self, request: HttpRequest, obj: Trigger, form: Any, change: Any) -> None:
        """From the list, where the cap can be set; everything else is changed on the trigger's page."""
        try:
            triggers_set_cap(triggers=[obj], cap=form.cleaned_data["max_cost_usd"], by=person(request), now=clock())
        except REFUSALS as error:
            messages.error(request, f"{obj}: {reason(error)}")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "max_cost_usd" and field is not None:
            field.widget.attrs |= {"placeholder": f"{usd(default_session_cap())} (default)", "class": CAP_CLASSES}
        return field

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or obj.deleted_at is None) and super().has_change_permission(request, obj)

    @column("kind", labels=True)
    def kind_(self, trigger: Trigger) -> str:
        return trigger.kind

    @column("does")
    def does(self, trigger: Trigger) -> str:
        by = trigger.skill or trigger.playbook
        named = by.name if by else "nothing yet"
        place = f" on {trigger.collection.name}" if trigger.collection else ""
        return format_html(LINES, visible(f"{named}{place}"), visible(f"for {trigger.owner}"))

    @column("spent")
    def spent(self, trigger: Any) -> str:
        today, spent = usd(trigger.spent_today, empty="$0.00"), trigger.spend
        runs = counted(spent.sessions, "session")
        return format_html(LINES, f"{today} today", f"{usd(spent.charged_usd)} to date, {runs}")

    @column("runs")
    def runs(self, trigger: Any) -> str:
        now, due = clock(), trigger.next_run_at if _fires(trigger) else None
        return format_html(LINES, f"next: {ago(due, now, empty='—')}", f"last: {ago(trigger.ran_at, now)}")

    @column("state", labels={"on": "success", "paused": "warning", "off": "danger", "deleted": "danger"})
    def state(self, trigger: Trigger) -> tuple[str, str]:
        return state_of(trigger)

    @column("")
    def run(self, trigger: Trigger) -> str:
        if not _in_use(trigger):
            return ""
        return format_html('<a class="lq-button small" href="{}">Run</a>', self.act_link(trigger, "run_now"))

    def get_list_display(self, request: HttpRequest) -> list[str]:
        may_run = person(request).has_perm("agents.add_agentsession")
        return [name for name in self.list_display if name != "run" or may_run]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """First whose and of what kind; then the fields of that kind, with choices of that owner."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        if request.GET.get("kind") not in KIND_WORDS:
            people = User.objects.filter(is_active=True).order_by("username")[:500]
            shown: dict[str, Any] = {"kinds": KIND_WORDS.items(), "people": people, "me": person(request)}
            return self.page(request, "admin/trigger_kinds.html", "Add trigger", **shown)
        return super().add_view(request, form_url, extra_context)

    def make_form(self, request: HttpRequest, row: Trigger | None) -> TriggerForm:
        data = request.POST if request.method == "POST" else None
        if row is not None:
            return TriggerForm(data, instance=Trigger.objects.get(pk=row.pk), owner=row.owner, kind=row.kind)
        initial = {"max_cost_usd": None, **request.GET.dict()}
        return TriggerForm(data, initial=initial, owner=owner_asked(request), kind=request.GET["kind"])

    def save_new(self, request: HttpRequest, form: Any) -> Trigger | HttpResponse:
        kind = request.GET["kind"]
        owner, by = owner_asked(request), person(request)
        trigger = trigger_create(owner=owner, kind=kind, by=by, now=clock(), **form.cleaned_data)
        return secret_page(request, trigger) if kind == TriggerKind.EVENT else trigger

    def save_changes(self, request: HttpRequest, row: Trigger, form: Any) -> Trigger:
        return trigger_edit(trigger=row, by=person(request), now=clock(), **form.changes())

    def beside(self, request: HttpRequest, row: Trigger | None) -> dict[str, Any]:
        owner, kind = (row.owner, row.kind) if row else (owner_asked(request), request.GET["kind"])
        shown: dict[str, Any] = {"owner": owner, "kind": kind, "kind_words": KIND_WORDS.get(kind, kind)}
        shown["default_cap"] = default_session_cap()
        if row is None:
            return shown
        sessions = list(row.sessions.select_related("owner", "trigger", "agent").order_by("-id")[:10])
        known = purposes(sessions)
        address = request.build_absolute_uri(f"/hooks/{row.public_id}") if kind == TriggerKind.EVENT else ""
        ran_at = sessions[0].created_at if sessions else None
        shown |= {"spend": trigger_spend(row), "address": address, "state": state_of(row)[1], "ran_at": ran_at}
        shown["fires"] = _fires(row)
        return {**shown, "sessions": [(session, known[session.pk]) for session in sessions]}


def owner_asked(request: HttpRequest) -> User:
    """Whose trigger it is to be: the person's own unless somebody else was chosen."""
    chosen = request.GET.get("owner", "")
    short = chosen.isdecimal() and len(chosen) < ID_DIGITS
    found = User.objects.filter(pk=int(chosen), is_active=True).first() if short else None
    return found or person(request)


def _fires(trigger: Trigger) -> bool:
    """A trigger that is off, paused or deleted keeps the time of its next run, which will not come."""
    return trigger.enabled and trigger.paused_at is None and trigger.deleted_at is None


def state_of(trigger: Trigger) -> tuple[str, str]:
    if trigger.deleted_at is not None:
        return "deleted", "deleted"
    if trigger.paused_at is not None:
        return "paused", f"paused: {words(trigger.pause_reason) or 'by hand'}"
    return ("on", "on") if trigger.enabled else ("off", "switched off")
