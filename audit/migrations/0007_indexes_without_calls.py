from django.db import migrations, models


class Migration(migrations.Migration):
    """Calls, which are most events, are in no index but that of their chain; nothing looks for them by another."""

    dependencies = [
        ('audit', '0006_retention'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='auditevent',
            name='audit_event_newest',
        ),
        migrations.RemoveIndex(
            model_name='auditevent',
            name='audit_event_kind',
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(condition=models.Q(('kind', 'autonomous_session.tool_call'), _negated=True), fields=['at'], name='audit_event_time'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(condition=models.Q(('kind', 'autonomous_session.tool_call'), _negated=True), fields=['kind', '-id'], name='audit_event_of_kind'),
        ),
    ]
