import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import agents.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0012_second_eyes"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="approval",
            name="rules",
            field=models.JSONField(
                blank=True, default=list, help_text="The rules that ask: id, version, name and role."
            ),
        ),
        migrations.CreateModel(
            name="ApprovalRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "public_id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, help_text="The same for all versions of a rule."
                    ),
                ),
                ("version", models.PositiveIntegerField(default=1, editable=False)),
                (
                    "name",
                    models.CharField(help_text="Shown to approvers, and to the agent when it denies.", max_length=120),
                ),
                (
                    "effect",
                    models.CharField(
                        choices=[("allow", "Allow"), ("ask", "Ask"), ("deny", "Deny")],
                        help_text="Of several rules that fit a call the strictest counts. Calls that always ask cannot be allowed.",
                        max_length=8,
                    ),
                ),
                (
                    "role",
                    models.CharField(blank=True, help_text="Who has to decide; empty: whoever may.", max_length=150),
                ),
                ("skill", models.CharField(blank=True, help_text="Empty: every skill.", max_length=64)),
                ("conditions", models.JSONField(blank=True, default=list)),
                (
                    "min_cost_usd",
                    agents.models.fields.MicroUSDField(
                        blank=True, help_text="Only calls that are estimated at this or more.", null=True
                    ),
                ),
                ("destinations", models.JSONField(blank=True, default=list)),
                ("enabled", models.BooleanField(default=False)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False),
                ),
                (
                    "replaced_at",
                    models.DateTimeField(editable=False, help_text="When it was changed or deleted.", null=True),
                ),
                (
                    "agent",
                    models.ForeignKey(
                        blank=True,
                        help_text="Empty: every agent.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="approval_rules",
                        to="agents.agent",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("public_id", "version"), name="approval_rule_version"),
                    models.UniqueConstraint(
                        condition=models.Q(("replaced_at__isnull", True)),
                        fields=("public_id",),
                        name="approval_rule_one_current",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("effect__in", ["allow", "ask", "deny"])), name="approval_rule_effect"
                    ),
                ],
            },
        ),
    ]
