"""Keys of integrations: made for one user, shown once, revoked for good; and the events that came in with them."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.display import ago, cut, moment, words
from agents.admin.facts import FactsAdmin, fact_of
from agents.admin.filters import WordedFilter
from agents.admin.pages import EditForm, EditingAdmin
from agents.conf import clock
from agents.models import ApiKey, InboundEvent
from agents.people.keys import Scope, api_key_create, api_key_revoke

LIFETIME = timedelta(days=90)
SCOPES = {
    Scope.READ: "read: look at what is the user's",
    Scope.WRITE: "write: change it and start runs",
    Scope.DECIDE: "decide: approve and deny calls, if the user may",
}


def _revoke(asked: Asked) -> Told:
    return each(asked, lambda row: api_key_revoke(key=row, by=asked.by, now=asked.now), "revoked")


class KeyForm(EditForm):
    user = forms.ModelChoiceField(
        User.objects.filter(is_active=True).order_by("username"), help_text="The key sees and does what this user may."
    )
    scopes = forms.MultipleChoiceField(
        choices=list(SCOPES.items()), widget=forms.CheckboxSelectMultiple, initial=[Scope.READ]
    )
    expires_at = forms.DateTimeField(
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        initial=lambda: clock() + LIFETIME,
        help_text="UTC. Empty: it does not expire.",
    )

    class Meta:
        model = ApiKey
        fields = ["user", "name"]
        help_texts = {"name": "What it is for, such as the system that uses it."}


@admin.register(ApiKey)
class ApiKeyAdmin(EditingAdmin):
    list_display = ["name", "prefix", "user", "allows", "state", "used", "expires"]
    list_select_related = ["user"]
    search_fields = ["name", "prefix__exact", "user__username"]
    empty = "There are no keys. Add one for a system that is to use the API as one user."
    ordering = ["-id"]
    sortable_by = ()
    form_class = KeyForm
    acts = (
        Act("revoke", "Revoke", "agents.change_apikey", _revoke, grave=True, fits=lambda row: row.revoked_at is None,
            explained="The key opens nothing any more, at once and for good."),
    )  # fmt: skip

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @column("may")
    def allows(self, key: ApiKey) -> str:
        return ", ".join(map(str, key.scopes))

    @column("state", labels={"open": "success", "expired": "warning", "revoked": "danger"})
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "expired" if key.expires_at is not None and key.expires_at <= clock() else "open"

    @column("last used")
    def used(self, key: ApiKey) -> str:
        return ago(key.last_used_at, clock())

    @column("expires")
    def expires(self, key: ApiKey) -> str:
        return moment(key.expires_at, empty="never")

    def make_form(self, request: HttpRequest, row: Any) -> KeyForm:
        data = request.POST if request.method == "POST" else None
        by = person(request)
        form = KeyForm(data, initial={"user": by.pk})
        if not by.is_superuser:
            form.fields["user"] = forms.ModelChoiceField(
                User.objects.filter(pk=by.pk), help_text="Keys are made by those who will act with them."
            )
        return form

    def save_new(self, request: HttpRequest, form: Any) -> HttpResponse:
        """The answer to this request is the only place where the key itself is shown: no message, no cookie, no log."""
        key, secret = api_key_create(by=person(request), now=clock(), **form.cleaned_data)
        response = self.page(request, "admin/key_secret.html", "API key", key=key, secret=secret, back=self.list_link())
        response["Cache-Control"] = "no-store"
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        key = self.found(request, object_id)
        by = person(request)
        facts = [fact_of(key, field, by) for field in key._meta.concrete_fields if field.name not in {"id", "hash"}]
        shown = {"original": key, "facts": facts, "buttons": self.buttons(request, key)}
        return self.page(request, "admin/facts.html", str(key), **shown)


@admin.register(InboundEvent)
class InboundEventAdmin(FactsAdmin):
    list_display = ["what", "source", "event_type", "severity", "came_to", "trigger", "of_session", "came"]
    list_filter = [("outcome", WordedFilter), "severity"]
    empty = "No event has come in. Add a trigger of kind event: its page says where messages go and how to sign them."
    list_select_related = ["trigger", "session"]
    search_fields = ["source__exact", "event_type__exact", "webhook_id__exact"]
    search_help_text = "A source, a type, or the id of a message, in full."

    @column("event")
    def what(self, event: InboundEvent) -> str:
        return cut(str(event), 100)

    @column("came to", labels={"spawned": "success", "no_match": "warning", "refused": "danger"})
    def came_to(self, event: InboundEvent) -> tuple[str, str]:
        return event.outcome, words(event.outcome)

    @column("received")
    def came(self, event: InboundEvent) -> str:
        return moment(event.received_at)
