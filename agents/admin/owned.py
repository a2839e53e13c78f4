"""Forms whose choices belong to one owner. The service checks it again; here nothing of others is even shown."""

from typing import Any

from django.contrib.auth.models import User
from django.forms import ModelChoiceField
from django.forms.models import ModelChoiceIterator

from agents.models import PromptSkill

MOST_CHOICES = 1_000


class OwnedChoices:
    """Narrows every choice of rows to what the owner has and what is still in use."""

    def __init__(self, *args: Any, owner: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():  # type: ignore[attr-defined]
            if isinstance(field, ModelChoiceField):
                named: Any = field.queryset
                field.iterator = _SomeChoices  # before the rows: giving it those makes the list of choices
                field.queryset = _in_use(named.model, owner)


def _in_use(model: Any, owner: User) -> Any:
    rows = model._meta.default_manager.all()
    names = {field.name for field in model._meta.fields}
    if model is PromptSkill:
        rows = rows.filter(enabled=True)
    if "owner" in names:
        rows = rows.filter(owner=owner)
    if "deleted_at" in names:
        rows = rows.filter(deleted_at__isnull=True)
    if "text" in names:
        rows = rows.defer("text")
    return rows.order_by("name")


class _SomeChoices(ModelChoiceIterator):  # type: ignore[type-arg]
    """A page lists so many choices and no more; the field itself takes any of the owner's."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.queryset = field.queryset[:MOST_CHOICES]
