from django.db import migrations, models


class Migration(migrations.Migration):
    """An index for the last decided call of a kind."""

    dependencies = [("agents", "0016_charts")]

    operations = [
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                condition=models.Q(("resolved_by__isnull", False)),
                fields=["action", "resolved_at"],
                name="approval_alike",
            ),
        ),
    ]
