import django.db.models.deletion
import django.db.models.functions.datetime
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0011_search_by_meaning"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="approval",
            name="escalated_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="promptskill",
            name="changed_by",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="unreadinput",
            name="retried_by",
            field=models.ForeignKey(
                blank=True,
                help_text="Who last had it read again.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AlterField(
            model_name="notification",
            name="kind",
            field=models.CharField(
                choices=[
                    ("agent", "Agent"),
                    ("run_stopped", "Run Stopped"),
                    ("approval_waiting", "Approval Waiting"),
                    ("approval_escalated", "Approval Escalated"),
                    ("delegated", "Delegated"),
                    ("question_waiting", "Question Waiting"),
                    ("trigger_paused", "Trigger Paused"),
                    ("outcome_unknown", "Outcome Unknown"),
                    ("watch_behind", "Watch Behind"),
                    ("sensor_failing", "Sensor Failing"),
                    ("model_away", "Model Away"),
                    ("model_back", "Model Back"),
                    ("input_given_up", "Input Given Up"),
                    ("fault", "Fault"),
                ],
                default="agent",
                max_length=20,
            ),
        ),
        migrations.CreateModel(
            name="ApprovalVote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                ("note", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="votes", to="agents.approval"
                    ),
                ),
                (
                    "holder",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("approval", "user"), name="approval_vote_per_person"),
                    models.UniqueConstraint(fields=("approval", "holder"), name="approval_vote_per_right"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Delegation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("until", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, help_text="Ended before its time.", null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "delegate",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lqops_delegated",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lqops_delegations",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["delegate"], name="delegation_open"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)), fields=("owner",), name="delegation_one_open"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("owner", models.F("delegate")), _negated=True), name="delegation_to_another"
                    ),
                ],
            },
        ),
    ]
