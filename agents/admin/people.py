"""People and their roles. Nobody is deleted here: what a person did stays, and an account is switched off instead.

Only a superuser makes, or changes, a superuser; an admin hands out roles and permissions of lqops, and no others.
"""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agents.accounts import (
    PEOPLE,
    ROLES,
    VIEWED,
    group_delete,
    group_note_saved,
    profile_set,
    user_note_password,
    user_note_saved,
)
from agents.admin.actions import Act, ActingAdmin, Asked, Told, each
from agents.admin.base import RoomAdmin, column, person
from agents.admin.display import WordedFilter, ago, cut, moment, words
from agents.admin.pages import EditForm, EditingAdmin, FactsAdmin, fact_of
from agents.conf import clock
from agents.models import ApiKey, InboundEvent
from agents.people.keys import Scope, api_key_create, api_key_revoke

admin.site.unregister([User, Group])
# The names of the sidebar, at the head of the pages too.
User._meta.verbose_name_plural = "people"
Group._meta.verbose_name_plural = "roles"

CHANGE_PROFILE = "agents.change_profile"
FOR_SUPERUSERS = ("is_superuser", "user_permissions")


def _is_in(user: Any) -> bool:
    profile = getattr(user, "lqops_profile", None)
    return bool(profile and profile.opted_in)


def _opt_in(asked: Asked) -> Told:
    return each(asked, lambda row: profile_set(user=row, opted_in=True, by=asked.by, now=asked.now), "opted in")


def _opt_out(asked: Asked) -> Told:
    return each(asked, lambda row: profile_set(user=row, opted_in=False, by=asked.by, now=asked.now), "opted out")


def grantable() -> Any:
    """The permissions that an admin can give: those of lqops, and over people."""
    people = Q(content_type__app_label="auth", content_type__model__in=PEOPLE)
    rows = Permission.objects.filter(Q(content_type__app_label__in=VIEWED) | people)
    return rows.select_related("content_type").order_by("content_type__app_label", "codename")


@admin.register(User)
class PersonAdmin(DjangoUserAdmin, ActingAdmin):  # type: ignore[type-arg, misc]  # Django's page in our frame
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "roles", "opted_in", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff", "groups")
    list_select_related = ("lqops_profile",)
    acts = (
        Act("opt_in", "Opt in", CHANGE_PROFILE, _opt_in, fits=lambda row: not _is_in(row),
            explained="Agents may run in the background for this person."),
        Act("opt_out", "Opt out", CHANGE_PROFILE, _opt_out, fits=_is_in,
            explained="Nothing starts for this person any more. Loops end; other runs are left to finish."),
    )  # fmt: skip
    change_form_outer_before_template = "admin/parts/buttons.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        by = person(request)
        above = obj is not None and getattr(obj, "is_superuser", False) and not by.is_superuser
        return self.holds(request, "change") and not above

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    @column("roles")
    def roles(self, user: User) -> str:
        held = [group.name for group in user.groups.all()]
        return ", ".join((["superuser"] if user.is_superuser else []) + held) or "none"

    @column("opted in", boolean=True)
    def opted_in(self, user: User) -> bool:
        return _is_in(user)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = () if person(request).is_superuser else FOR_SUPERUSERS
        return (*super().get_readonly_fields(request, obj), *fixed)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "user_permissions":
            kwargs.setdefault("queryset", grantable())
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.found(request, object_id)
        shown = {"buttons": self.buttons(request, row), **(extra_context or {})}
        return super().change_view(request, object_id, form_url, shown)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        fields = [] if not change else form.changed_data
        user_note_saved(user=form.instance, added=not change, fields=fields, by=person(request), now=clock())

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        response = super().user_change_password(request, id, form_url)
        if request.method == "POST" and isinstance(response, HttpResponseRedirect):
            user_note_password(user=User.objects.get(pk=id), by=person(request), now=clock())
        return response


@admin.register(Group)
class RoleAdmin(DjangoGroupAdmin, RoomAdmin):  # type: ignore[misc]  # Django's page in our frame
    """The four roles are lqops' own and cannot be changed; groups beside them can."""

    list_display = ("name", "own", "people")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "change") and not self._is_role(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "delete") and not self._is_role(obj)

    def _is_role(self, obj: Any) -> bool:
        return obj is not None and getattr(obj, "name", "") in ROLES

    @column("role of lqops", boolean=True)
    def own(self, group: Group) -> bool:
        return self._is_role(group)

    @column("people")
    def people(self, group: Group) -> int:
        return group.user_set.count()

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest | None = None, **kwargs: Any) -> Any:
        if db_field.name == "permissions":
            kwargs["queryset"] = grantable()
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        group_note_saved(group=form.instance, by=person(request), now=clock())

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        group_delete(group=obj, by=person(request), now=clock())


# Keys of integrations: made for one user, shown once, revoked for good; and the events that came in with them.


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
