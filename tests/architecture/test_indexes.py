"""No index is the beginning of another: it would cost every writer and help no reader."""

from django.apps import apps
from django.db import models

OURS = ("agents", "audit")


def indexes_of(model):
    """Yield the columns of each index over all rows of a table, and whether it is one to keep in any case."""
    meta = model._meta
    for field in meta.local_concrete_fields:
        if field.primary_key or field.unique:
            yield (field.name,), True
        elif field.db_index:
            yield (field.name,), False
    for constraint in meta.constraints:
        if isinstance(constraint, models.UniqueConstraint) and constraint.fields and constraint.condition is None:
            yield constraint.fields, True
    for index in meta.indexes:
        if type(index) is models.Index and index.fields and index.condition is None:
            yield tuple(name for name, _ in index.fields_orders), False


def test_no_index_is_the_beginning_of_another():
    repeated = [
        f"{model.__name__}: {', '.join(columns)}"
        for model in apps.get_models()
        if model._meta.app_label in OURS
        for columns, is_kept in indexes_of(model)
        if not is_kept and any(other[: len(columns)] == columns != other for other, _ in indexes_of(model))
    ]

    assert repeated == []
