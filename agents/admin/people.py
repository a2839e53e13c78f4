"""People and their roles. Nobody is deleted here: what a person did stays, and an account is switched off instead.

Only a superuser makes, or changes, a superuser; an admin hands out roles and permissions of lqops, and no others.
"""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agents.accounts import profile_set
from agents.admin.actions import Act, ActingAdmin, Asked, Told, each
from agents.admin.base import RoomAdmin, column, person
from agents.conf import clock
from agents.roles import PEOPLE, ROLES, VIEWED
from agents.services_accounts import group_delete, group_note_saved, user_note_password, user_note_saved

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
