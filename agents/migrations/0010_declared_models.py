from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0009_consent"),
    ]

    operations = [
        migrations.CreateModel(
            name="DeclaredModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "model",
                    models.CharField(help_text="The name by which lqops knows the model.", max_length=128, unique=True),
                ),
                (
                    "settings",
                    models.JSONField(default=dict, help_text="Keys of the models file, and roles; never a key."),
                ),
                ("changed_at", models.DateTimeField()),
            ],
        ),
    ]
