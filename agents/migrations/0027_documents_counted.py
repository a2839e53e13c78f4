from django.db import migrations, models

COUNT = """
UPDATE agents_collection SET documents = (
    SELECT COUNT(*) FROM agents_attachment a WHERE a.collection_id = agents_collection.id AND a.detached_at IS NULL
)
"""


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0026_asked_digest"),
    ]

    operations = [
        migrations.AddField(
            model_name="collection",
            name="documents",
            field=models.PositiveIntegerField(default=0, editable=False, help_text="Number of documents in it."),
        ),
        migrations.RunSQL(COUNT, migrations.RunSQL.noop),
    ]
