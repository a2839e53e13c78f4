from django.db import migrations, models


def mark(apps, schema_editor):
    """Until now only the start of a loop was remembered."""
    beats = apps.get_model("agents", "AgentSession").objects.filter(mode="heartbeat", completed_at__isnull=True)
    apps.get_model("agents", "Agent").objects.filter(pk__in=beats.values("agent_id")).update(wanted=True)


class Migration(migrations.Migration):
    oldest_beside = "0.2.0"

    dependencies = [
        ("agents", "0029_consent_to_single_sign_on"),
    ]

    operations = [
        migrations.AlterField(
            model_name="agent",
            name="wanted",
            field=models.BooleanField(
                default=False, editable=False, help_text="It was started, and nobody has stopped it since."
            ),
        ),
        migrations.RunPython(mark, migrations.RunPython.noop),
    ]
