from django.db import migrations, models


class Migration(migrations.Migration):
    """An admin's consent that an identity of single sign-on is linked to an account; a kind of notification about it."""

    oldest_beside = "0.1.0"
    dependencies = [("agents", "0028_short_list_of_new_words")]

    operations = [
        migrations.AddField(
            model_name="profile",
            name="sso_link_until",
            field=models.DateTimeField(
                blank=True,
                help_text="Until then an identity of single sign-on is linked by its address alone.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="notification",
            name="kind",
            field=models.CharField(
                choices=[
                    ("agent", "Agent"),
                    ("run_stopped", "Run Stopped"),
                    ("run_findings", "Run Findings"),
                    ("run_completed", "Run Completed"),
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
                    ("loop_waiting", "Loop Waiting"),
                    ("input_given_up", "Input Given Up"),
                    ("finding", "Finding"),
                    ("budget", "Budget"),
                    ("channel_failing", "Channel Failing"),
                    ("fault", "Fault"),
                    ("sign_in", "Sign In"),
                ],
                default="agent",
                max_length=20,
            ),
        ),
    ]
