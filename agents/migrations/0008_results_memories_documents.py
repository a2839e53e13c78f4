import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from agents.migrations._normalised_keys import normalise_keys


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0007_inputs_health_fairness"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

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
                choices=[
                    ("ok", "Ok"),
                    ("findings", "Findings"),
                    ("empty", "Empty"),
                    ("partial", "Partial"),
                    ("failed", "Failed"),
                ],
                help_text="Empty until it is over.",
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
                condition=models.Q(("run_result__in", ["", "ok", "findings", "empty", "partial", "failed"])),
                name="session_result",
            ),
        ),
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(
                condition=models.Q(("run_result__in", ("partial", "failed"))),
                fields=["completed_at"],
                name="session_unfinished",
            ),
        ),
        migrations.AddField(
            model_name="inferencelog",
            name="reasoning_tokens",
            field=models.PositiveBigIntegerField(
                default=0, help_text="What the model thought before it answered; part of the output."
            ),
        ),
        migrations.AddField(
            model_name="document",
            name="marks",
            field=models.JSONField(
                blank=True, default=list, help_text="Pages, sheets or slides: offset in the text and label, in order."
            ),
        ),
        migrations.AddField(
            model_name="finding",
            name="location",
            field=models.CharField(
                blank=True,
                help_text="Page, sheet or slide of a verified quote, if its file has any.",
                max_length=164,
            ),
        ),
        migrations.AddField(
            model_name="memory",
            name="content_hash",
            field=models.CharField(
                default="",
                editable=False,
                help_text="Equal for memories that differ in case, spaces or marks alone.",
                max_length=64,
            ),
        ),
        migrations.AddField(
            model_name="precedent",
            name="ended_as",
            field=models.CharField(
                blank=True,
                choices=[("dismissed", "Dismissed"), ("expired", "Expired"), ("merged", "Merged")],
                help_text="Why it is no longer open.",
                max_length=12,
                verbose_name="end",
            ),
        ),
        migrations.AddField(
            model_name="precedent",
            name="merged_into",
            field=models.ForeignKey(
                blank=True,
                help_text="Where its count went.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="merged",
                to="agents.precedent",
            ),
        ),
        migrations.AlterField(
            model_name="contextproposal",
            name="text",
            field=models.TextField(
                help_text="Derived from the precedent, perhaps edited; what accepting adds to the context."
            ),
        ),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(fields=["owner", "content_hash"], name="memory_same_content"),
        ),
        migrations.AddConstraint(
            model_name="precedent",
            constraint=models.CheckConstraint(
                condition=models.Q(("ended_as__in", ["", "dismissed", "expired", "merged"])), name="precedent_end"
            ),
        ),
        migrations.RunPython(normalise_keys, migrations.RunPython.noop),
    ]
