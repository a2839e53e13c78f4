import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0010_declared_models"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(model_name="agentsession", name="session_mode"),
        migrations.AlterField(
            model_name="agentsession",
            name="mode",
            field=models.CharField(
                choices=[
                    ("phased", "Phased"),
                    ("loop", "Loop"),
                    ("chat", "Chat"),
                    ("heartbeat", "Heartbeat"),
                    ("sensor", "Sensor"),
                    ("index", "Index"),
                ],
                default="phased",
                max_length=12,
            ),
        ),
        migrations.AddConstraint(
            model_name="agentsession",
            constraint=models.CheckConstraint(
                condition=models.Q(("mode__in", ["phased", "loop", "chat", "heartbeat", "sensor", "index"])),
                name="session_mode",
            ),
        ),
        migrations.AddField(
            model_name="document",
            name="indexed_as",
            field=models.CharField(
                blank=True,
                default="",
                editable=False,
                help_text="The vector space in which all its chunks have a vector.",
                max_length=160,
            ),
            preserve_default=False,
        ),
        migrations.AddIndex(
            model_name="document",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", True)),
                fields=["owner", "indexed_as"],
                name="document_indexed",
            ),
        ),
        migrations.CreateModel(
            name="ChunkVector",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("space", models.CharField(max_length=160)),
                ("vector", models.BinaryField()),
                (
                    "chunk",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="vectors", to="agents.chunk"
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [models.Index(fields=["owner", "space", "id"], name="chunk_vector_owner")],
                "constraints": [models.UniqueConstraint(fields=("chunk", "space"), name="chunk_vector_once")],
            },
        ),
        migrations.CreateModel(
            name="QueryVector",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("space", models.CharField(max_length=160)),
                ("digest", models.CharField(help_text="SHA-256 of the query.", max_length=64)),
                ("vector", models.BinaryField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "space", "digest"), name="query_vector_once")
                ],
            },
        ),
    ]
