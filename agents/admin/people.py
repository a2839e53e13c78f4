"""People, roles, delegations, channels and deliveries, API keys, and events received from other systems.

Accounts are switched off, never deleted: the history of what a person did stays. Only a superuser makes or changes a
superuser; an admin gives roles and permissions of lqops, and no others.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import time, timedelta
from functools import partial
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import connection
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agents.accounts import (
    PEOPLE,
    ROLE_TEXTS,
    ROLES,
    VIEWED,
    can_be_invited,
    group_delete,
    group_record_saved,
    invitation_link,
    invitation_send,
    limits_set,
    limits_text,
    own_limits_of,
    person_invite,
    profile_set,
    user_record_password,
    user_record_saved,
)
from agents.admin.actions import ActionForm, ActionRequest, ActionResult, RowAction, each_row
from agents.admin.base import DetailAdmin, FormAdmin, current_user, name_page, site_page
from agents.admin.display import WhoseFilter, WordedFilter, ago, column, cut, plain_sentence, when, words
from agents.admin.forms import REFUSALS, OvertakenCheck, StyledForm, StyledModelForm, add_refusal, usd_field
from agents.admin.money import caps_action
from agents.conf import clock, mail_is_configured
from agents.enums import ApprovalMode, BudgetScope, ChannelKind, Level, News, NewsChoice, OutboxStatus
from agents.exceptions import Invalid
from agents.models import ApiKey, Channel, Delegation, InboundEvent, OutboxMessage
from agents.people.access import DECIDE_PERMISSION, LOOSEN_PERMISSION
from agents.people.browser_sessions import browser_sessions_end
from agents.people.channels import (
    ADDRESS_CHARS,
    channel_create,
    channel_delete,
    channel_rotate_secret,
    channel_secret,
    channel_update,
    email_channel,
)
from agents.people.delegations import LONGEST, delegation_create, delegation_end
from agents.people.identities import (
    CHANGE_USER,
    identities_of,
    link_allow,
    links_remove,
    require_distinct_name,
    sso_is_set_up,
)
from agents.people.keys import Scope, api_key_create, api_key_revoke
from agents.people.outbox import channel_test, copy_discard, copy_replay
from agents.people.second_factor import FACTOR_NAMES, factors_of, factors_remove, has_factor, must_have_factor
from agents.people.senders import CHATS
from agents.people.sign_ins import last_sign_ins
from agents.policy.news import EXAMPLES, choice_of
from agents.policy.schedule import zone_names
from agents.text.shown import name_shown

admin.site.unregister([User, Group])
# The names of the sidebar, as headings of the pages.
User._meta.verbose_name_plural = "people"
Group._meta.verbose_name_plural = "roles"
User._meta.get_field("groups").verbose_name = "roles"

CHANGE_PROFILE = "agents.change_profile"
REMOVE_FACTORS = "mfa.delete_authenticator"  # no role has it, so it is for superusers
FOR_SUPERUSERS = ("is_superuser", "user_permissions")
RECORDED = ("last_login", "date_joined")


# --- People and roles ---


def _is_opted_in(user: Any) -> bool:
    profile = getattr(user, "lqops_profile", None)
    return bool(profile and profile.opted_in)


def grantable() -> Any:
    """The permissions that an admin can give: those of lqops and those over people."""
    people = Q(content_type__app_label="auth", content_type__model__in=PEOPLE)
    rows = Permission.objects.filter(Q(content_type__app_label__in=VIEWED) | people)
    return rows.select_related("content_type").order_by("content_type__app_label", "codename")


VERBS = ("add", "change", "delete")


def _subject(permission: Permission) -> str:
    model = permission.content_type.model_class()
    return str(model._meta.verbose_name_plural if model else permission.content_type.model)


def _verb(permission: Permission) -> str:
    """The verb of one of Django's own permissions; empty for a permission of its own."""
    verb, _, name = permission.codename.partition("_")
    return verb if verb in {"view", *VERBS} and name == permission.content_type.model else ""


def permission_words(permission: Permission) -> str:
    """One permission in plain words, the subject first: triggers: change."""
    own = permission.name.removeprefix("Can ")
    return f"{_subject(permission)}: {_verb(permission) or own}"


def role_facts(permissions: Iterable[Permission]) -> list[tuple[str, str]]:
    """Return the permissions in words: verbs with their subjects, subjects of the same verbs together."""
    seen: list[Permission] = []
    own: list[str] = []
    verbs: dict[ContentType, list[str]] = defaultdict(list)
    subjects: dict[tuple[str, ...], list[Permission]] = defaultdict(list)
    for permission in permissions:
        match _verb(permission):
            case "":
                own.append(permission.name.removeprefix("Can "))
            case "view":
                seen.append(permission)
            case verb:
                verbs[permission.content_type].append(verb)
    one_each = {permission.content_type: permission for permission in permissions}
    for kind, held in verbs.items():
        subjects[tuple(sorted(held))].append(one_each[kind])
    facts = [("See", _seen_words(seen))] if seen else []
    facts += [(_joined(held).capitalize(), _named(rows)) for held, rows in sorted(subjects.items())]
    return facts + ([("Also", "; ".join(sorted(own)))] if own else [])


def _seen_words(seen: Sequence[Permission]) -> str:
    """Everything, or the names of what can be seen."""
    views = Permission.objects.filter(content_type__app_label__in=VIEWED, codename__startswith="view_")
    everything = set(views.values_list("pk", flat=True))
    if not everything <= {one.pk for one in seen}:
        return _named(seen)
    others = [one for one in seen if one.pk not in everything]
    return ", ".join(["everything of lqops", *([_named(others)] if others else [])])


def _named(permissions: Iterable[Permission]) -> str:
    """Their subjects that have a page, and the number of the others."""
    names, hidden = [], 0
    for one in permissions:
        model = one.content_type.model_class()
        if model is not None and admin.site.is_registered(model):
            names.append(_subject(one))
        else:
            hidden += 1
    return ", ".join([*sorted(names, key=str.lower), *([f"{hidden} without a page"] if hidden else [])])


def _joined(verbs: Sequence[str]) -> str:
    return " and ".join([", ".join(verbs[:-1]), verbs[-1]]) if len(verbs) > 1 else verbs[0]


class SavedByDjango(DetailAdmin):
    """Django's own form in our frame: people and roles are the rows that it saves itself."""

    change_form_before_template = "admin/parts/seen.html"
    sortable_by = None
    exclude = None
    change_form_template = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_model_permission(request, "add")

    def change_view(self, request: HttpRequest, object_id: str, **_: Any) -> HttpResponse:
        row = self.get_row(request, object_id)
        context = {"buttons": self.buttons(request, row), **self.page_context(request, row)}
        response: HttpResponse = self.changeform_view(request, object_id, extra_context=context)
        return response

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        """Return the row; one that is saved is locked, so that nobody changes it between the check and the save."""
        row = super().get_object(request, object_id, from_field)
        if row is None or request.method != "POST" or not connection.in_atomic_block:
            return row
        return QuerySet(self.model).select_for_update(no_key=True).filter(pk=row.pk).first()

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        return form if obj is None else type(form)(form.__name__, (OvertakenCheck, form), {})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **more: Any) -> HttpResponse:
        if context.get("original") is None:
            name_page(request, str(context["title"]))
        else:
            context["seen"] = context["adminform"].form.seen_text({})
        response: HttpResponse = super().render_change_form(request, context, **more)
        return response

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return further context for the page of a row."""
        return {}

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name in {"permissions", "user_permissions"}:
            kwargs["queryset"] = grantable()
        field: Any = super().formfield_for_manytomany(db_field, request, **kwargs)
        if field is not None and db_field.name in {"permissions", "user_permissions"}:
            field.label_from_instance = permission_words
        return field


INVITE = ("auth.add_user", "auth.change_user")


class _DistinctName:
    """Refuses a name that reads like that of another account."""

    instance: User

    def clean_username(self) -> str:
        name = str(self.cleaned_data["username"])  # type: ignore[attr-defined]  # the form's
        try:
            require_distinct_name(name, but=self.instance.pk)
        except Invalid as error:
            raise ValidationError(str(error)) from None
        return name


class PersonChangeForm(_DistinctName, UserChangeForm):  # type: ignore[misc]  # unfold ships no types
    pass


class PersonCreationForm(_DistinctName, UserCreationForm):  # type: ignore[misc]  # unfold ships no types
    pass


class InviteForm(StyledForm):
    username = forms.CharField(max_length=150, label="Sign-in name", help_text="Letters, digits and @ . + - _ only.")
    name = forms.CharField(max_length=150, required=False, label="Name")
    email = forms.EmailField(label="E-mail")
    role = forms.ChoiceField(choices=[(role, f"{role}: {text}") for role, text in ROLE_TEXTS.items()])
    opted_in = forms.BooleanField(
        required=False, label="Agents may run for this person", help_text="They can change it themselves."
    )
    told_by_email = forms.BooleanField(
        required=False,
        initial=True,
        label="Tell them by e-mail",
        help_text="Of failures, findings and approvals.",
    )
    single_sign_on = forms.BooleanField(
        required=False,
        initial=True,
        label="Single sign-on",
        help_text="Whoever the provider knows by this address comes in without a password, for the next 3 days; then "
        "for good.",
    )
    send = forms.BooleanField(required=False, label="Send them the link by e-mail")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not sso_is_set_up():
            del self.fields["single_sign_on"]
        if not mail_is_configured():
            self.fields["send"].disabled = True
            self.fields["send"].help_text = "No mail server is configured: hand the link over yourself."


def _invitation_page(request: HttpRequest, person: User, *, send: bool) -> HttpResponse:
    """Show the link in this response and nowhere else: no message, no cookie, no log."""
    now = clock()
    link = invitation_link(user=person, by=current_user(request), now=now)
    sent = invitation_send(user=person, link=link, now=now) if send else ""
    back = reverse("admin:auth_user_change", args=[person.pk])
    response = site_page(request, "admin/invitation.html", "Invitation", person=person, link=link, sent=sent, back=back)
    response["Cache-Control"] = "no-store"
    return response


def _new_link(action: ActionRequest) -> HttpResponse:
    [person] = action.rows
    return _invitation_page(action.request, person, send=False)


class CeilingsForm(ActionForm):
    mode = forms.ChoiceField(
        label="Approval mode",
        choices=lambda: [
            ("", f"As for everybody ({settings.LQOPS_CEILING_MODE})"),
            *((mode, mode) for mode in ApprovalMode.values),
        ],
        required=False,
        help_text="The laxest mode of an agent, and the mode of runs without one.",
    )
    highest_level = forms.ChoiceField(
        label="Level of skills",
        choices=lambda: [
            ("", f"As for everybody ({settings.LQOPS_CEILING_LEVEL})"),
            *((level, level) for level in Level.values),
        ],
        required=False,
        help_text="The highest level of the skills that an agent names.",
    )
    max_cost_usd = usd_field(label="Cap per run (USD)", required=False, help_text="Empty: as for everybody.")
    max_cost_per_day_usd = usd_field(
        label="Cap per day of one agent (USD)", required=False, help_text="Empty: as for all runs together."
    )
    together_per_day_usd = usd_field(
        label="Cap per day of all runs together (USD)", required=False, help_text="Empty: the installation's."
    )


def _set_ceilings(action: ActionRequest) -> ActionResult:
    [person] = action.rows
    held = limits_set(user=person, by=action.by, now=action.now, **action.data)
    return ActionResult(limits_text(person, held))


@admin.register(User)
class PersonAdmin(DjangoUserAdmin, SavedByDjango):  # type: ignore[type-arg, misc]  # Django's page in our frame
    form = PersonChangeForm
    add_form = PersonCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username_", "email_", "roles", "opted_in", "is_active", "is_staff", "last_login")
    list_filter = ("is_active", "is_staff", "groups")
    list_select_related = ("lqops_profile",)
    row_actions = (
        RowAction(
            "opt_in",
            "Opt in",
            each_row(profile_set, "user", "opted in", opted_in=True),
            permission=CHANGE_PROFILE,
            available=lambda row: not _is_opted_in(row),
            description="Allows agents to run in the background for this person.",
        ),
        RowAction(
            "opt_out",
            "Opt out",
            each_row(profile_set, "user", "opted out", opted_in=False),
            permission=CHANGE_PROFILE,
            available=_is_opted_in,
            description="No new run starts for this person. Loops end; other runs finish.",
        ),
        caps_action(BudgetScope.OWNER, permission=CHANGE_PROFILE),
        RowAction(
            "ceilings",
            "Set ceilings",
            _set_ceilings,
            CeilingsForm,
            permission=LOOSEN_PERMISSION,
            bulk=False,
            initial=own_limits_of,
            description="What agents, triggers and runs of this person are at most, from now on. What exists stays as "
            "it is until somebody changes it; the cap of all runs together holds at once.",
        ),
        RowAction(
            "invite_again",
            "New invitation link",
            _new_link,
            permission="auth.add_user",
            bulk=False,
            available=can_be_invited,
            description="For somebody who has not chosen a password yet. The next page shows the link, once.",
        ),
        RowAction(
            "sign_out",
            "Sign out everywhere",
            each_row(browser_sessions_end, "user", "signed out"),
            permission="auth.change_user",
            description="Ends all browser sessions of this person. API keys stay valid.",
        ),
        RowAction(
            "allow_sso",
            "Allow single sign-on",
            each_row(link_allow, "user", "open to single sign-on"),
            permission=CHANGE_USER,
            bulk=False,
            available=lambda row: sso_is_set_up() and row.is_active and bool(row.email),
            description="For 3 days, the next person whom the provider knows by this verified address comes into this "
            "account without its password, and from then on. Make sure that it is they who ask.",
        ),
        RowAction(
            "remove_sso",
            "Remove single sign-on",
            each_row(links_remove, "user", "closed to single sign-on"),
            permission=CHANGE_USER,
            danger=True,
            bulk=False,
            available=lambda row: bool(identities_of(row)),
            description="No identity of the provider opens this account any more. Sessions stay: use Sign out "
            "everywhere as well.",
        ),
        RowAction(
            "remove_factors",
            "Remove second factor",
            each_row(factors_remove, "user", "left without a second factor"),
            permission=REMOVE_FACTORS,
            danger=True,
            bulk=False,
            available=lambda row: factors_of(row).exists(),
            description="For a lost phone or key. Removes the factors and recovery codes of this person and ends their "
            "sessions. Make sure that it is they who ask.",
        ),
    )
    change_form_outer_before_template = "admin/parts/buttons.html"
    change_form_outer_after_template = "admin/parts/sign_ins.html"

    list_before_template = "admin/people_above.html"

    def get_urls(self) -> Any:
        return [self.url("invite/", "invite"), *super().get_urls()]

    def invite_view(self, request: HttpRequest) -> HttpResponse:
        """One form: name, e-mail, role and what they agree to. No permissions to tick."""
        by = current_user(request)
        if not by.has_perms(INVITE):
            raise PermissionDenied
        form = InviteForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            given = dict(form.cleaned_data)
            send = given.pop("send")
            try:
                person = person_invite(by=by, now=clock(), **given)
            except ValidationError as error:
                form.add_error(None, error)
            except REFUSALS as error:
                add_refusal(form, error)
            else:
                return _invitation_page(request, person, send=send)
        parts = [{"title": "", "fields": list(form)}]
        return self.render_page(
            request, "admin/form.html", "Invite a person", form=form, parts=parts, may_save=True,
            save_label="Invite", buttons=[], back=self.list_link(),
        )  # fmt: skip

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {
            "factors": [(FACTOR_NAMES[factor.type], factor.created_at) for factor in factors_of(row)],
            "has_factor": has_factor(row),
            "needs_factor": must_have_factor(row),
            "sign_ins": last_sign_ins(row),
        }

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        by = current_user(request)
        above = obj is not None and getattr(obj, "is_superuser", False) and not by.is_superuser
        return self.has_model_permission(request, "change") and not above

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("groups")

    @display(description="username", ordering="username")
    def username_(self, user: User) -> str:
        return name_shown(user.username)

    @display(description="email", ordering="email")
    def email_(self, user: User) -> str:
        return name_shown(user.email)

    @display(description="roles")
    def roles(self, user: User) -> str:
        held = [group.name for group in user.groups.all()]
        return ", ".join((["superuser"] if user.is_superuser else []) + held) or "none"

    @display(description="opted in", boolean=True)
    def opted_in(self, user: User) -> bool:
        return _is_opted_in(user)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = () if current_user(request).is_superuser else FOR_SUPERUSERS
        return (*super().get_readonly_fields(request, obj), *RECORDED, *fixed)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        fields = [] if not change else form.changed_data
        user_record_saved(user=form.instance, added=not change, fields=fields, by=current_user(request), now=clock())

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        response = super().user_change_password(request, id, form_url)
        if request.method == "POST" and isinstance(response, HttpResponseRedirect):
            user_record_password(user=User.objects.get(pk=id), by=current_user(request), now=clock())
        return response


@admin.register(Group)
class RoleAdmin(DjangoGroupAdmin, SavedByDjango):  # type: ignore[misc]  # Django's page in our frame
    """The four roles of lqops cannot be changed; other groups can. Both say in words what they allow."""

    change_form_outer_before_template = "admin/parts/role.html"
    list_display = ("name", "own", "people")
    people = column(lambda group: group.user_set.count(), title="people")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_model_permission(request, "change") and not self._is_role(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_model_permission(request, "delete") and not self._is_role(obj)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return () if self._is_role(obj) else super().get_fieldsets(request, obj)

    def page_context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        permissions = list(
            row.permissions.select_related("content_type").order_by("content_type__app_label", "codename")
        )
        return {
            "purpose": ROLE_TEXTS.get(row.name, ""),
            "facts": role_facts(permissions),
            "permissions": [f"{one.content_type.app_label}.{one.codename}" for one in permissions],
            "number": row.user_set.count(),
            "may_see_people": current_user(request).has_perm("auth.view_user"),
        }

    def _is_role(self, obj: Any) -> bool:
        return obj is not None and getattr(obj, "name", "") in ROLES

    @display(description="built-in", boolean=True)
    def own(self, group: Group) -> bool:
        return self._is_role(group)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        group_record_saved(group=form.instance, by=current_user(request), now=clock())

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        group_delete(group=obj, by=current_user(request), now=clock())


# --- Delegations: who decides while somebody is away ---


class DelegationForm(StyledModelForm):
    delegate = forms.ModelChoiceField(
        User.objects.none(), help_text="Decides on approvals in your place, where a call binds neither of you."
    )
    until = forms.DateTimeField(
        label="Away until",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text=f"UTC. At most {LONGEST.days} days from now. It takes the place of an earlier delegation of yours.",
    )

    class Meta:
        model = Delegation
        fields = ["delegate", "until"]

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["delegate"]
        field.queryset = User.objects.filter(is_active=True).exclude(pk=by.pk).order_by("username")


def delegation_state(row: Delegation) -> str:
    if row.ended_at is not None:
        return "ended"
    return "over" if row.until <= clock() else "in force"


@admin.register(Delegation)
class DelegationAdmin(FormAdmin):
    state = column(delegation_state, title="state", label={"in force": "success", "over": "info", "ended": "warning"})
    until_ = column("until", title="away until")
    list_display = ["owner", "delegate", "until_", "state", "created_at"]
    list_select_related = ["owner", "delegate"]
    search_fields = ["owner__username", "delegate__username"]
    empty_text = "Nobody is away. Whoever decides on approvals can name somebody who decides in their place."
    ordering = ["-id"]
    form = DelegationForm
    can_change = False
    change_form_template = "admin/detail.html"
    row_actions = (
        RowAction(
            "end",
            "End delegation",
            each_row(delegation_end, "delegation", "ended"),
            permission="agents.view_delegation",
            available=lambda row: delegation_state(row) == "in force",
            description="The delegate decides no longer. For its two people, and for those who manage profiles.",
        ),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return current_user(request).has_perm(DECIDE_PERMISSION)

    def form_options(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"by": current_user(request)}

    def create(self, request: HttpRequest, form: Any) -> Any:
        by = current_user(request)
        return delegation_create(owner=by, by=by, now=clock(), **form.cleaned_data)


# --- Channels: where people are told, and what was delivered there ---


_CHOICES: Any = {
    f"news_{news.value}": forms.ChoiceField(label=news.label, choices=NewsChoice.choices, help_text=EXAMPLES[news])
    for news in News
}
_NewsForm: Any = type("_NewsForm", (forms.Form,), _CHOICES)


class ChannelForm(_NewsForm, StyledModelForm):  # type: ignore[misc]
    kind = forms.ChoiceField(
        choices=[(kind.value, kind.label) for kind in (ChannelKind.WEBHOOK, ChannelKind.CHAT)],
        help_text="E-mail goes to the address of your account and needs no channel of your own.",
    )
    address = forms.CharField(
        max_length=ADDRESS_CHARS,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=f"Webhook: https://… Chat, as apprise writes it: {', '.join(f'{name}://…' for name in CHATS)}. "
        "It is stored encrypted and not shown again.",
    )
    zone = forms.ChoiceField(label="Time zone", help_text="Of the quiet hours and the digest.")
    quiet_from = forms.TimeField(
        required=False,
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        help_text="Empty: no quiet hours.",
    )
    quiet_until = forms.TimeField(
        required=False,
        widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M"),
        help_text="Messages that come in quiet hours are sent when they end.",
    )
    digest_at = forms.TimeField(
        label="Daily digest at", initial=time(8), widget=forms.TimeInput(attrs={"type": "time"}, format="%H:%M")
    )

    class Meta:
        model = Channel
        fields = ["name", "enabled"]
        help_texts = {"name": "For you, such as: phone, team room.", "enabled": "Off: nothing is sent."}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        row = kwargs.get("instance")
        super().__init__(*args, **kwargs)
        for news in News:
            self.initial.setdefault(f"news_{news.value}", choice_of(row.choices if row else {}, news))
        zone: Any = self.fields["zone"]
        zone.choices = [(name, name) for name in zone_names()]
        for name in ("zone", "quiet_from", "quiet_until", "digest_at"):
            self.initial.setdefault(name, getattr(row or Channel(), name))
        if row:
            del self.fields["kind"]
            self.fields["address"].required = False
            self.fields["address"].label = "New address"
            self.fields["address"].help_text = f"Empty: it stays {row.shown_address}"
        if row and row.kind == ChannelKind.EMAIL:
            del self.fields["address"]

    @property
    def values(self) -> dict[str, Any]:
        """The settings of the channel as its room takes them."""
        given = dict(self.cleaned_data)
        choices = {news.value: given.pop(f"news_{news.value}") for news in News}
        return {**given, "choices": choices}


def channel_state(row: Channel) -> str:
    if not row.enabled:
        return "off"
    return "failing" if row.error else "on"


def _channel_secret_page(request: HttpRequest, channel: Channel, secret: str) -> HttpResponse:
    """Show the secret in this response and nowhere else: no message, no cookie, no log."""
    back = reverse("admin:agents_channel_change", args=[channel.pk])
    response = site_page(
        request, "admin/channel_secret.html", "Signing secret", channel=channel, secret=secret, back=back
    )
    response["Cache-Control"] = "no-store"
    return response


def _test_channel(action: ActionRequest) -> ActionResult:
    [channel] = action.rows
    trial = channel_test(channel=channel, by=action.by, now=action.now)
    if not trial.ok:
        raise Invalid(f"The test message did not arrive. {trial.text}")
    return ActionResult(f"The test message was sent. {trial.text}")


def _rotate_secret(action: ActionRequest) -> HttpResponse:
    [channel] = action.rows
    secret = channel_rotate_secret(channel=channel, by=action.by, now=action.now)
    return _channel_secret_page(action.request, channel, secret)


@admin.register(Channel)
class ChannelAdmin(FormAdmin):
    """A user's own channels; everybody's when asked for. Addresses are shown to nobody."""

    kind_ = column("kind", lambda kind: ChannelKind(kind).label, title="kind")
    state = column(channel_state, title="state", label={"on": "success", "failing": "danger", "off": "info"})
    sent = column("last_sent_at", lambda at: ago(at, clock()) if at else "never", title="last delivery")
    address = column("shown_address", lambda text: text or "—", title="address")
    list_display = ["name", "kind_", "address", "state", "sent"]
    list_filter = [WhoseFilter]
    list_select_related = ["owner"]
    empty_text = "No channels yet. Add a webhook or a chat service to be told outside this application."
    list_before_template = "admin/channels_above.html"
    list_after_template = "admin/channels_below.html"
    ordering = ["kind", "id"]
    sortable_by = ()
    form = ChannelForm
    change_form_template = "admin/channel.html"
    fieldsets = (
        ("Channel", {"fields": ["kind", "name", "address", "enabled"]}),
        (
            "News",
            {
                "fields": [f"news_{news.value}" for news in News],
                "description": "The news that this channel gets, and when.",
            },
        ),
        ("Times", {"fields": ["zone", "quiet_from", "quiet_until", "digest_at"]}),
    )
    row_actions = (
        RowAction(
            "test",
            "Test",
            _test_channel,
            permission="agents.view_channel",
            bulk=False,
            description="Sends a test message now and says whether it arrived.",
        ),
        RowAction(
            "rotate_secret",
            "Rotate signing secret",
            _rotate_secret,
            permission="agents.view_channel",
            bulk=False,
            available=lambda row: row.kind == ChannelKind.WEBHOOK,
            description="For 24 hours the old secret signs too. The next page shows the new one, once.",
        ),
        RowAction(
            "delete",
            "Delete",
            each_row(channel_delete, "channel", "deleted"),
            permission="agents.view_channel",
            danger=True,
            available=lambda row: row.kind != ChannelKind.EMAIL,
            description="Messages that it still had to send are dropped. The notifications themselves stay.",
        ),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_model_permission(request, "view")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(self.has_view_permission(request)) and (obj is None or _is_theirs(obj.owner_id, request))

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[RowAction, str]]:
        return super().buttons(request, row) if _is_theirs(row.owner_id, request) else []

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["owner"] if request.GET.get("whose") == "everybody" else [])]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Everybody's list begins with their e-mail, so that it can be set."""
        if self.has_view_permission(request):
            email_channel(current_user(request).pk)
        return super().changelist_view(request, extra_context)

    def extra_context(self, request: HttpRequest, row: Channel) -> dict[str, Any]:
        dead = row.copies.filter(status=OutboxStatus.FAILED).count()
        return {"channel": row, "dead": dead, "can_mail": mail_is_configured(), "address": row.owner.email}

    def create(self, request: HttpRequest, form: Any) -> Any:
        by = current_user(request)
        channel = channel_create(owner=by, by=by, now=clock(), **form.values)
        if channel.kind == ChannelKind.WEBHOOK:
            return _channel_secret_page(request, channel, channel_secret(channel))
        return channel

    def update(self, request: HttpRequest, row: Channel, form: Any) -> Channel:
        return channel_update(channel=row, by=current_user(request), now=clock(), **form.values)


def _is_theirs(owner_id: int, request: HttpRequest) -> bool:
    by = current_user(request)
    return owner_id == by.pk or by.has_perm(CHANGE_PROFILE)


class OfChannelFilter(WhoseFilter):
    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset if self.value() == "everybody" else queryset.filter(channel__owner=request.user)


@admin.register(OutboxMessage)
class DeliveryAdmin(DetailAdmin):
    """Messages to channels: sent, waiting and not delivered."""

    list_shows_content = True
    title_ = column(lambda row: plain_sentence(row.notification.title), title="notification")
    status_ = column("status", words, label={"sent": "success", "pending": "info", "failed": "danger"})
    due = column(lambda row: row.sent_at or row.due_at, title="sent, or due")
    error_ = column(lambda row: cut(row.error, 120), title="error")
    list_display = ["title_", "channel", "status_", "attempts", "due", "error_"]
    list_filter = [OfChannelFilter, ("status", WordedFilter)]
    list_select_related = ["notification", "channel__owner"]
    empty_text = "Nothing was sent yet. Notifications for your channels are listed here."
    exclude = ("id", "public_id")
    row_actions = (
        RowAction(
            "replay",
            "Send again",
            each_row(copy_replay, "copy", "to be sent again"),
            permission="agents.view_outboxmessage",
            available=lambda row: row.status == OutboxStatus.FAILED,
            description="Sends it under its old id, from the first attempt on. Test the channel first.",
        ),
        RowAction(
            "discard",
            "Discard",
            each_row(copy_discard, "copy", "discarded"),
            permission="agents.view_outboxmessage",
            danger=True,
            available=lambda row: row.status == OutboxStatus.FAILED,
            description="It is not sent any more. The notification itself stays.",
        ),
    )

    def get_list_display(self, request: HttpRequest) -> list[str]:
        return [*self.list_display, *(["owner"] if request.GET.get("whose") == "everybody" else [])]

    owner = column(lambda row: str(row.channel.owner), title="owner")

    def buttons(self, request: HttpRequest, row: Any) -> list[tuple[RowAction, str]]:
        return super().buttons(request, row) if _is_theirs(row.channel.owner_id, request) else []


# --- API keys and received events ---


LIFETIME = timedelta(days=90)
SCOPES = {
    Scope.READ: "read: view the user's data",
    Scope.WRITE: "write: change it and start runs",
    Scope.DECIDE: "decide: approve and deny calls, if the user may",
}


class KeyForm(StyledModelForm):
    user = forms.ModelChoiceField(
        User.objects.filter(is_active=True).order_by("username"), help_text="The key has the permissions of this user."
    )
    scopes = forms.MultipleChoiceField(
        choices=list(SCOPES.items()), widget=forms.CheckboxSelectMultiple, initial=[Scope.READ]
    )
    expires_at = forms.DateTimeField(
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        initial=lambda: clock() + LIFETIME,
        help_text="UTC. Empty: the key does not expire. Default: 90 days.",
    )

    class Meta:
        model = ApiKey
        fields = ["user", "name"]
        help_texts = {"name": "The system that uses the key."}

    def __init__(self, *args: Any, by: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["user"] = by.pk
        if not by.is_superuser:
            field: Any = self.fields["user"]
            field.queryset = User.objects.filter(pk=by.pk)
            field.help_text = "You can make keys for yourself only."


def state_of(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= clock() else "active"


@admin.register(ApiKey)
class ApiKeyAdmin(FormAdmin):
    scopes_ = column("scopes", ", ".join)
    state = column(state_of, title="state", label={"active": "success", "expired": "warning", "revoked": "danger"})
    used = column("last_used_at", lambda at: ago(at, clock()), title="last used")
    expires = column("expires_at", partial(when, empty="never"), title="expires")
    list_display = ["name", "prefix", "user", "scopes_", "state", "used", "expires"]
    list_select_related = ["user"]
    search_fields = ["name", "prefix__exact", "user__username"]
    empty_text = "No keys yet. Add one for a system that uses the API as one user."
    ordering = ["-id"]
    sortable_by = ()
    form = KeyForm
    can_change = False
    change_form_template = "admin/detail.html"
    exclude = ("id", "hash")
    row_actions = (
        RowAction(
            "revoke",
            "Revoke key",
            each_row(api_key_revoke, "key", "revoked"),
            danger=True,
            available=lambda row: row.revoked_at is None,
            description="Revokes the key immediately. This cannot be undone.",
        ),
    )

    def form_options(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"by": current_user(request)}

    def create(self, request: HttpRequest, form: Any) -> HttpResponse:
        """Show the key in this response and nowhere else: no message, no cookie, no log."""
        key, secret = api_key_create(by=current_user(request), now=clock(), **form.cleaned_data)
        response = self.render_page(
            request, "admin/key_secret.html", "API key", key=key, secret=secret, back=self.list_link()
        )
        response["Cache-Control"] = "no-store"
        return response


@admin.register(InboundEvent)
class InboundEventAdmin(DetailAdmin):
    event = column(lambda row: cut(str(row), 100), title="event")
    outcome_ = column("outcome", words, label={"spawned": "success", "no_match": "warning", "refused": "danger"})
    list_display = ["event", "source", "event_type", "severity", "outcome_", "trigger", "of_session", "received_at"]
    list_filter = [("outcome", WordedFilter), "severity"]
    empty_text = "No events yet. Add a trigger of kind event: its page shows the address and how to sign messages."
    list_select_related = ["trigger", "session"]
    search_fields = ["source__exact", "event_type__exact", "webhook_id__exact"]
    search_help_text = "The full source, type, or id of a message."
