from django.db import migrations, models


class Migration(migrations.Migration):
    """No index of calls has the outcome in it, so that settling a call writes to none of them."""

    dependencies = [
        ('agents', '0023_closed_sets_as_constants'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='toolcall',
            name='tool_call_open',
        ),
        migrations.RemoveIndex(
            model_name='toolcall',
            name='tool_call_unknown',
        ),
        migrations.AddField(
            model_name='toolcall',
            name='unknown_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunSQL(
            "UPDATE agents_toolcall SET unknown_since = settled_at WHERE outcome = 'unknown'", migrations.RunSQL.noop
        ),
        migrations.AddIndex(
            model_name='toolcall',
            index=models.Index(condition=models.Q(('unknown_since__isnull', False)), fields=['id'], name='tool_call_unresolved'),
        ),
        migrations.AddConstraint(
            model_name='toolcall',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('outcome', 'unknown'), ('unknown_since__isnull', False)), models.Q(models.Q(('outcome', 'unknown'), _negated=True), ('unknown_since__isnull', True)), _connector='OR'), name='tool_call_unknown_since'),
        ),
    ]
