from django.db import migrations, models
from django.db.models import Q

from agents.enums import RunResult


class Migration(migrations.Migration):
    dependencies = [("agents", "0007_inputs_health_fairness")]

    operations = [
        migrations.AlterField(
            model_name="agentsession",
            name="result",
            field=models.JSONField(blank=True, help_text="The receipt.", null=True),
        ),
        migrations.AddField(
            model_name="agentsession",
            name="run_result",
            field=models.CharField(
                blank=True,
                choices=RunResult,
                help_text="What it was good for; empty until it is over.",
                max_length=8,
                default="",
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="agentsession",
            name="result_reason",
            field=models.CharField(blank=True, help_text="Why, in words.", max_length=300, default=""),
            preserve_default=False,
        ),
        migrations.AddConstraint(
            model_name="agentsession",
            constraint=models.CheckConstraint(
                condition=Q(run_result__in=["", *RunResult.values]), name="session_result"
            ),
        ),
    ]
