from django.db import migrations, models
from django.db.models import Count, Q

MOST_NAMED = 10


def require_one_name(apps, schema_editor):
    """Before this migration the same bytes could be one document only: say which are more."""
    uploads = apps.get_model("agents", "Document").objects.filter(deleted_at__isnull=True, origin="upload")
    twice = uploads.values("owner", "digest").annotate(names=Count("pk")).filter(names__gt=1)[:MOST_NAMED]
    found = [
        " and ".join(uploads.filter(owner=one["owner"], digest=one["digest"]).values_list("name", flat=True))
        for one in twice
    ]
    if found:
        raise RuntimeError(
            f"Nothing was taken back: these documents have the same content. Delete all but one of each first: "
            f"{'; '.join(found)}."
        )


class Migration(migrations.Migration):
    """The same bytes may be several documents of an owner, under different names."""

    oldest_beside = "0.2.0"

    dependencies = [("agents", "0036_secret_bindings")]

    operations = [
        migrations.AddConstraint(
            model_name="document",
            constraint=models.UniqueConstraint(
                fields=["owner", "digest", "name"],
                condition=Q(deleted_at__isnull=True, origin="upload"),
                name="document_name_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="document",
            constraint=models.UniqueConstraint(
                fields=["owner", "digest"],
                condition=Q(deleted_at__isnull=True, origin="artifact"),
                name="document_artifact_once",
            ),
        ),
        migrations.RemoveConstraint(model_name="document", name="document_bytes_once"),
        migrations.RunPython(migrations.RunPython.noop, require_one_name),
    ]
