from django.db import migrations, models
from django.db.models import Q


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
    ]
