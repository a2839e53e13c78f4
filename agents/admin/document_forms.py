"""What the pages of documents ask for: files, and collections."""

from importlib.util import find_spec
from typing import Any, Final

from django import forms

from agents.admin.forms import ActForm, DressedForm
from agents.models import Collection
from agents.text.extraction import INSTALLING

# Kinds that need a library besides, by the module that shows it is there.
LIBRARIES: Final = {"PDF": "pypdf", "Word": "docx"}


class FilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True
    template_name = "django/forms/widgets/file.html"


class FilesField(forms.FileField):
    """Several files at once."""

    widget = FilesInput

    def clean(self, data: Any, initial: Any = None) -> list[Any]:
        given = data or [None]  # no file at all is refused like one that is missing
        return [super(FilesField, self).clean(one, initial) for one in given]


class OwnedCollection(forms.ModelChoiceField):  # type: ignore[type-arg]
    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} ({obj.owner})"


def collections_in_use() -> Any:
    return Collection.objects.filter(deleted_at__isnull=True).select_related("owner").order_by("name", "pk")


def readable_words() -> str:
    """Which kinds of file this installation can read, and what it takes to read the others."""
    there = [name for name, library in LIBRARIES.items() if find_spec(library)]
    missing = [name for name in LIBRARIES if name not in there]
    kinds = ["Text", "Markdown", "HTML", *there]
    said = f"{', '.join(kinds[:-1])} and {kinds[-1]} can be read here. Several files can be chosen at once."
    if not missing:
        return said
    return f"{said} For {' and '.join(missing)} files {INSTALLING}, or save them as text."


class UploadForm(DressedForm):
    documents = FilesField(label="Files")
    collection = OwnedCollection(
        Collection.objects.none(),
        required=False,
        help_text="They belong to its owner, and its watches start a run for each. Empty: they are yours, in none.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["documents"].help_text = readable_words()
        self.fields["collection"].queryset = collections_in_use()  # type: ignore[attr-defined]


class AttachForm(ActForm):
    """The collections of the documents' owner."""

    collection = forms.ModelChoiceField(Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        owners = {getattr(row, "owner_id", None) for row in self.rows}
        self.fields["collection"].queryset = self.choices_for(owners)  # type: ignore[attr-defined]

    def choices_for(self, owners: set[Any]) -> Any:
        return collections_in_use().filter(owner_id__in=owners)


class DetachForm(AttachForm):
    """The collections that the document is in."""

    def choices_for(self, owners: set[Any]) -> Any:
        pks = [row.pk for row in self.rows]
        inside = {"attachments__document__in": pks, "attachments__detached_at__isnull": True}
        return super().choices_for(owners).filter(**inside).distinct()
