from django.db import migrations, models


class Migration(migrations.Migration):
    """Indexes for what Home and Charts read: active runs, ended runs by day, decided approvals, days of budgets."""

    dependencies = [("agents", "0015_findings_as_work")]

    operations = [
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(
                condition=models.Q(("completed_at__isnull", True)), fields=["-id"], name="session_active"
            ),
        ),
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(
                condition=models.Q(("completed_at__isnull", False)),
                fields=["completed_at", "mode", "run_result"],
                name="session_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="approval",
            index=models.Index(
                condition=models.Q(("resolved_by__isnull", False)), fields=["resolved_at"], name="approval_decided"
            ),
        ),
        migrations.AddIndex(
            model_name="budget",
            index=models.Index(fields=["day", "scope"], name="budget_day"),
        ),
        migrations.AddIndex(
            model_name="toolcall",
            index=models.Index(
                condition=models.Q(("outcome", "unknown"), ("resolved_at__isnull", True)),
                fields=["id"],
                name="tool_call_unknown",
            ),
        ),
    ]
