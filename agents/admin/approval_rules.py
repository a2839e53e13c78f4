"""Approval rules: the list, a form that can try a rule on past calls before it is saved, and its versions."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import Group
from django.db.models import Q
from django.forms import formset_factory
from django.http import HttpRequest, HttpResponse

from agents.admin.actions import ActionRequest, ActionResult, RowAction, for_each
from agents.admin.base import FormAdmin, current_user
from agents.admin.display import OptionFilter, column, cut, exact_usd, with_purposes, words
from agents.admin.forms import StyledForm, StyledModelForm
from agents.conf import clock
from agents.models import ApprovalRule
from agents.policy.rules import MAX_CONDITIONS, OPERATORS, VALUE_CHARS, Condition, condition_problem
from agents.sessions.approval_rules import FIELDS, rule_change, rule_create, rule_delete, rule_try
from agents.skills.registry import installed_skills
from agents.text.shown import visible

TRY_DAYS = 30


class LinesField(forms.CharField):
    """One value a line."""

    def __init__(self, **more: Any) -> None:
        super().__init__(required=False, max_length=20_000, widget=forms.Textarea(attrs={"rows": 3}), **more)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class ConditionForm(StyledForm):
    """One condition on an argument of a call."""

    argument = forms.CharField(max_length=400, help_text="Such as amount, or order.total for one inside it.")
    operator = forms.ChoiceField(choices=[(name, words_) for name, (words_, _) in OPERATORS.items()], initial="is")
    value = forms.CharField(
        max_length=VALUE_CHARS, required=False, help_text="Empty: an empty text, which every text contains."
    )

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if not self.errors and given and (wrong := condition_problem(Condition(**_plain(given)))):
            self.add_error(*wrong)
        return given


def _plain(given: dict[str, Any]) -> dict[str, str]:
    """A condition without what the page knows of its row."""
    return {name: given[name] for name in ConditionForm.base_fields}


ConditionForms = formset_factory(
    ConditionForm, can_delete=True, extra=0, max_num=MAX_CONDITIONS, absolute_max=2 * MAX_CONDITIONS, validate_max=True
)


def _roles() -> list[tuple[str, str]]:
    return _choices(Group.objects.values_list("name", flat=True), "role", "whoever may decide")


def _skills() -> list[tuple[str, str]]:
    return _choices(installed_skills(), "skill", "every skill")


def _choices(known: Iterable[str], name: str, empty: str) -> list[tuple[str, str]]:
    """The values to choose from, with those of rules whose skill or role is gone."""
    used = ApprovalRule.objects.values_list(name, flat=True).distinct()
    return [("", empty), *((value, value) for value in sorted({*known, *used} - {""}))]


class RuleForm(StyledModelForm):
    role = forms.ChoiceField(
        required=False, choices=_roles, help_text="For a rule that asks: who has to decide. They need the right, too."
    )
    skill = forms.ChoiceField(required=False, choices=_skills, help_text="A rule that allows has to name one.")
    destinations = LinesField(
        help_text="One host a line: example.org stands for its subdomains too. A rule that allows holds only for calls "
        "all of whose addresses are listed; any other for calls with one of them."
    )
    enabled = forms.BooleanField(
        required=False,
        initial=True,
        help_text="A new rule is on when it is saved. Untick it to write a rule that applies to no call yet.",
    )

    class Meta:
        model = ApprovalRule
        fields = [name for name in FIELDS if name != "conditions"]
        labels = {"min_cost_usd": "Cost from (USD)"}


def what_fits(rule: ApprovalRule) -> str:
    """The calls that a rule fits, in words."""
    parts = [rule.skill or "every skill", *([f"of {rule.agent}"] if rule.agent else [])]
    parts += [f"if {' and '.join(str(Condition(**one)) for one in rule.conditions)}"] if rule.conditions else []
    parts += [f"to {', '.join(rule.destinations)}"] if rule.destinations else []
    return " ".join(parts)


def _delete(action: ActionRequest) -> ActionResult:
    return for_each(action, lambda row: rule_delete(row, by=action.by, now=action.now), "deleted")


class VersionFilter(OptionFilter):
    """The newest versions, unless others are asked for."""

    title = "version"
    parameter_name = "versions"
    options: ClassVar[Mapping[str, tuple[str, Q]]] = {
        "": ("Newest", Q(replaced_at__isnull=True)),
        "all": ("All, also deleted", Q()),
    }


@admin.register(ApprovalRule)
class ApprovalRuleAdmin(FormAdmin):
    """Rules in force and off. Every change is a new version; older ones stay and can be looked at."""

    effect_ = column("effect", words)
    fits_ = column(lambda row: visible(cut(what_fits(row), 200)), title="calls")
    cost = column("min_cost_usd", lambda cost: exact_usd(cost) if cost is not None else "—", title="cost from")
    list_display = ["name", "effect_", "role", "fits_", "cost", "enabled", "version", "created_by"]
    list_filter = [VersionFilter, "effect", "enabled"]
    list_select_related = ["agent", "created_by"]
    search_fields = ["name", "skill"]
    ordering = ["name", "pk"]
    empty_text = (
        "No rules: levels and modes decide alone. A rule allows, asks about or denies calls by agent, skill, argument, "
        "cost or destination."
    )
    form = RuleForm
    add_form_template = change_form_template = "admin/approval_rule.html"
    fieldsets = [
        ("Rule", {"fields": ["name", "effect", "role", "enabled"]}),
        (
            "Calls that it fits",
            {
                "description": "All that is filled in must fit.",
                "fields": ["agent", "skill", "min_cost_usd", "destinations"],
            },
        ),
    ]
    row_actions = (
        RowAction(
            "delete",
            "Delete",
            _delete,
            description="The rule is out of force from the next call. Its versions stay.",
            danger=True,
            bulk=False,
            available=lambda row: row.replaced_at is None,
        ),
    )

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or obj.replaced_at is None)

    def build_form(self, request: HttpRequest, row: Any) -> Any:
        """The fields of the rule, and its conditions as rows; both have to be valid."""
        form = super().build_form(request, row)
        if request.method != "POST":
            form.conditions = form.row_forms = ConditionForms(
                initial=row.conditions if row else [], prefix="conditions"
            )
            return form
        form.conditions = form.row_forms = ConditionForms(request.POST, prefix="conditions")
        if not form.conditions.is_valid():
            form.add_error(None, "Correct the conditions below.")
        elif form.is_valid():
            kept = [one.cleaned_data for one in form.conditions if one not in form.conditions.deleted_forms]
            form.cleaned_data["conditions"] = [_plain(one) for one in kept if one]
        return form

    def create(self, request: HttpRequest, form: Any) -> Any:
        if "try" in request.POST:
            return self._tried(request, form, None)
        return rule_create(by=current_user(request), now=clock(), **form.cleaned_data)

    def update(self, request: HttpRequest, row: ApprovalRule, form: Any) -> Any:
        if "try" in request.POST:
            return self._tried(request, form, row)
        return rule_change(row, by=current_user(request), now=clock(), **form.cleaned_data)

    def _saved(self, request: HttpRequest, row: Any) -> HttpResponse:
        answer = super()._saved(request, row)
        if not row.enabled:
            messages.warning(request, "The rule is off: it applies to no call until you switch Enabled on.")
        return answer

    def _tried(self, request: HttpRequest, form: Any, row: ApprovalRule | None) -> HttpResponse:
        """Show what the rule would have done, without saving it."""
        tried = rule_try(ApprovalRule(**form.cleaned_data), by=current_user(request), now=clock(), days=TRY_DAYS)
        with_purposes(call.session for call in tried.listed)
        return self.show_form(request, row, form, tried=tried, days=TRY_DAYS)

    def extra_context(self, request: HttpRequest, row: ApprovalRule) -> dict[str, Any]:
        versions = ApprovalRule.objects.filter(public_id=row.public_id).select_related("created_by")
        return {"versions": versions.order_by("-version")}
