"""The fields of a trigger by its kind, and the one page that shows a signing secret."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from agents.admin.owned import OwnedChoices
from agents.admin.pages import EditForm
from agents.enums import TriggerKind
from agents.exceptions import Invalid
from agents.models import Trigger
from agents.policy import schedule
from agents.policy.guardrails import GuardrailsConfig, LoopConfig
from agents.triggers.triggers import trigger_secret

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
