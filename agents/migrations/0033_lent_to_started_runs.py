from typing import Any

from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

import agents.models.fields

WAITING_ON = ["approval", "input", "operator", "model", "resume", "runs"]
CHECK = f"""CASE WHEN status = 'waiting'
    THEN waiting_on = ANY ('{{{",".join(WAITING_ON)}}}'::text[]) ELSE waiting_on = '' END"""


def as_constant(apps: Any, schema_editor: Any) -> None:
    """Hold the words as one constant on PostgreSQL, as the other checks of runs do."""
    if schema_editor.connection.vendor == "postgresql":
        change = f"DROP CONSTRAINT session_waiting_on, ADD CONSTRAINT session_waiting_on CHECK ({CHECK})"
        schema_editor.execute(f"ALTER TABLE agents_agentsession {change}")


def queue_waiting(apps: Any, schema_editor: Any) -> None:
    """The version before knows no run that waits for started runs: it goes on without them."""
    waiting = apps.get_model("agents", "AgentSession").objects.filter(status="waiting", waiting_on="runs")
    waiting.update(status="queued", waiting_on="", next_wake_at=None, enqueued_at=timezone.now())


class Migration(migrations.Migration):
    """A run may wait for the runs that it started, and knows the cap that it was created with.

    An older ticker would give back what is lent and wake nobody.
    """

    oldest_beside = "0.2.0"

    dependencies = [("agents", "0032_versions_beside_migrations")]

    operations = [
        migrations.RemoveConstraint(model_name="agentsession", name="session_waiting_on"),
        migrations.AddField(
            model_name="agentsession",
            name="starting_cap_usd",
            field=agents.models.fields.MicroUSDField(
                blank=True,
                help_text="The cap that it was created with; in a started run, what was lent to it.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="agentsession",
            name="max_cost_usd",
            field=agents.models.fields.MicroUSDField(
                blank=True, help_text="What it may spend itself: its cap without what it has lent.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="agentsession",
            name="waiting_on",
            field=models.CharField(
                blank=True,
                choices=[(one, one.capitalize()) for one in WAITING_ON],
                max_length=12,
            ),
        ),
        migrations.AddConstraint(
            model_name="agentsession",
            constraint=models.CheckConstraint(
                condition=Q(status="waiting", waiting_on__in=WAITING_ON) | (~Q(status="waiting") & Q(waiting_on="")),
                name="session_waiting_on",
            ),
        ),
        migrations.RunPython(as_constant, queue_waiting),
    ]
