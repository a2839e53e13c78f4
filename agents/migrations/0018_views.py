import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Saved views of lists, and an index for the last decided call of a kind."""

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("agents", "0017_pause")]

    operations = [
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                condition=models.Q(("resolved_by__isnull", False)),
                fields=["action", "resolved_at"],
                name="approval_alike",
            ),
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("list_name", models.CharField(help_text="The model that the list is of.", max_length=40)),
                ("name", models.CharField(max_length=60)),
                ("query", models.CharField(blank=True, max_length=1000)),
                ("is_shared", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lqops_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "default_permissions": ("delete",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("is_shared", True)), fields=["list_name", "name"], name="view_shared"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "list_name", "name"), name="view_one_name")
                ],
            },
        ),
    ]
