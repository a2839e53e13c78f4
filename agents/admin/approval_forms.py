"""The four decisions on one call: yes, no, yes with changes, yes for the rest of the session; and many at once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib.auth.models import User

from agents.admin.display import visible
from agents.admin.forms import ArgumentsField, DressedForm, NoteForm
from agents.exceptions import Invalid
from agents.guard.calls import fitting
from agents.models import Approval
from agents.policy.consent import named_arguments
from agents.sessions.approvals import (
    MAX_STANDING_USES,
    approval_approve,
    approval_approve_edited,
    approval_reject,
    edited,
    standing_create,
)
from agents.sessions.standing import is_single


class DecisionForm(DressedForm):
    """Carries the digest of the call as it was shown."""

    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        self.approval = approval
        kwargs.setdefault("initial", {"digest": approval.digest})
        super().__init__(*args, **kwargs)


class NotedForm(DecisionForm):
    note = forms.CharField(
        label="Note for the record", required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 2})
    )


class DeniedForm(NotedForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].label = "Why not"
        self.fields["note"].help_text = "Kept, and shown to the agent."


class EditedForm(NotedForm):
    """Other arguments in place of those asked for."""

    field_order = ["digest", "arguments", "note"]
    arguments = ArgumentsField(help_text="One JSON object. The difference is shown before anything is approved.")

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        initial = {"digest": approval.digest, "arguments": _editable(approval.arguments)}
        super().__init__(*args, approval=approval, initial=initial, **kwargs)

    def clean_arguments(self) -> dict[str, Any]:
        given: dict[str, Any] = self.cleaned_data["arguments"]
        if given == self.approval.arguments:
            raise forms.ValidationError("Nothing is changed: approve the call as it stands instead.")
        try:
            edited(self.approval, given, fits=fitting)
        except Invalid as error:
            raise forms.ValidationError(str(error)) from error
        return given


class StandingForm(DecisionForm):
    """Yes to this call and, in this session, to its like."""

    free = forms.MultipleChoiceField(
        label="Arguments that may differ",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="All others must be the same as here. An argument that holds an address cannot be left free.",
    )
    uses = forms.IntegerField(
        label="How many times", min_value=1, max_value=MAX_STANDING_USES, initial=5, help_text="Besides this one."
    )

    def __init__(self, *args: Any, approval: Approval, **kwargs: Any) -> None:
        super().__init__(*args, approval=approval, initial={"digest": approval.digest, "uses": 5}, **kwargs)
        names = sorted(named_arguments(approval.arguments))
        self.fields["free"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


def _editable(arguments: dict[str, Any]) -> str:
    """JSON as people type it; where a character could not be seen, all beyond ASCII are escapes."""
    readable = json.dumps(arguments, indent=2, sort_keys=True, ensure_ascii=False)
    return readable if visible(readable) == readable else json.dumps(arguments, indent=2, sort_keys=True)


@dataclass(frozen=True)
class Decision:
    name: str
    form: type[DecisionForm]
    run: Callable[[Approval, User, dict[str, Any], datetime], str]


def _approve(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    approval_approve(approval.pk, by=by, digest=given["digest"], now=now, note=given["note"])
    return "Approved: the call may be made once."


def _deny(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    approval_reject(approval.pk, by=by, digest=given["digest"], now=now, note=given["note"])
    return "Denied: the run goes on without the call."


def _edit(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    digest, arguments, note = given["digest"], given["arguments"], given["note"]
    approval_approve_edited(approval.pk, by=by, digest=digest, arguments=arguments, fits=fitting, now=now, note=note)
    return "Approved with the changed arguments."


def _standing(approval: Approval, by: User, given: dict[str, Any], now: datetime) -> str:
    free, uses = tuple(given["free"]), given["uses"]
    standing_create(approval.pk, by=by, digest=given["digest"], now=now, free_arguments=free, uses=uses)
    return f"Approved, and {uses} more of its like in this session."


DECISIONS: Final = {
    decision.name: decision
    for decision in (
        Decision("approve", NotedForm, _approve),
        Decision("deny", DeniedForm, _deny),
        Decision("edit", EditedForm, _edit),
        Decision("standing", StandingForm, _standing),
    )
}


def decision_forms(approval: Approval) -> dict[str, DecisionForm]:
    """The forms of a pending call. One that is approved one by one has no standing form."""
    offered = [name for name in DECISIONS if name != "standing" or not is_single(approval.level, approval.risk_level)]
    return {name: DECISIONS[name].form(approval=approval, auto_id=f"id_{name}_%s") for name in offered}


class BulkForm(NoteForm):
    """A note for all, and for each call the digest of what was shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for row in self.rows:
            shown: Any = row
            self.fields[f"digest_{shown.pk}"] = forms.CharField(
                max_length=64, initial=shown.digest, widget=forms.HiddenInput
            )
