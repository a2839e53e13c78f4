"""Collections: named sets of documents that watches look at and runs read."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest

from agents.admin.actions import Act, Asked, Told, each
from agents.admin.base import column, person
from agents.admin.filters import DeletedFilter
from agents.admin.pages import EditForm, EditingAdmin
from agents.conf import clock
from agents.knowledge.documents import collection_create, collection_delete, collection_rename
from agents.models import Collection

SHOWN = 100


def _delete(asked: Asked) -> Told:
    return each(asked, lambda row: collection_delete(collection=row, by=asked.by, now=asked.now), "deleted")


class CollectionForm(EditForm):
    owner = forms.ModelChoiceField(User.objects.filter(is_active=True).order_by("username"))

    class Meta:
        model = Collection
        fields = ["name"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["owner"]


@admin.register(Collection)
class CollectionAdmin(EditingAdmin):
    list_display = ["name", "owner", "documents", "watched", "created_at"]
    list_filter = [DeletedFilter]
    list_select_related = ["owner"]
    search_fields = ["name", "owner__username"]
    empty = "There are no collections. Make one, then put documents into it: watches and schedules read collections."
    ordering = ["name", "id"]
    sortable_by = ("name",)
    form_class = CollectionForm
    edit_template = "admin/collection.html"
    acts = (
        Act("delete", "Delete", "agents.delete_collection", _delete, grave=True, fits=lambda row: not row.deleted_at,
            explained="Its documents stay; they are in no collection, or in others. Watches on it fire no more."),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Collection]:
        attached = Count("attachments", filter=Q(attachments__detached_at__isnull=True), distinct=True)
        watching = Count("triggers", filter=Q(triggers__kind="watch", triggers__deleted_at__isnull=True), distinct=True)
        rows: QuerySet[Collection] = super().get_queryset(request)
        return rows.annotate(attached=attached, watching=watching)

    @column("documents")
    def documents(self, collection: Any) -> int:
        return int(collection.attached)

    @column("watches")
    def watched(self, collection: Any) -> int:
        return int(collection.watching)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return (obj is None or obj.deleted_at is None) and super().has_change_permission(request, obj)

    def save_new(self, request: HttpRequest, form: Any) -> Collection:
        return collection_create(by=person(request), now=clock(), **form.cleaned_data)

    def save_changes(self, request: HttpRequest, row: Collection, form: Any) -> Collection:
        return collection_rename(collection=row, name=form.cleaned_data["name"], by=person(request), now=clock())

    def beside(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        if row is None:
            return {}
        inside = row.attachments.filter(detached_at__isnull=True).select_related("document", "attached_by")
        return {
            "attachments": inside.defer("document__text").order_by("-attached_at", "-pk")[:SHOWN],
            "watches": row.triggers.filter(deleted_at__isnull=True).order_by("name"),
            "may_add": person(request).has_perm("agents.add_document"),
        }
