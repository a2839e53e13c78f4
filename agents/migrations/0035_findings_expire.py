from django.db import migrations, models


def open_again(apps, schema_editor):
    """The version before knows no findings that expired."""
    apps.get_model("agents", "Finding").objects.filter(state="expired").update(state="open")


class Migration(migrations.Migration):
    oldest_beside = "0.2.0"

    dependencies = [
        ('agents', '0034_clocks_of_hosts'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='finding',
            name='finding_state',
        ),
        migrations.AlterField(
            model_name='finding',
            name='state',
            field=models.CharField(choices=[('open', 'Open'), ('acknowledged', 'Acknowledged'), ('dismissed', 'Dismissed'), ('resolved', 'Resolved'), ('expired', 'Expired')], db_default='open', default='open', max_length=12),
        ),
        migrations.AddConstraint(
            model_name='finding',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['open', 'acknowledged', 'dismissed', 'resolved', 'expired'])), name='finding_state'),
        ),
        migrations.RunPython(migrations.RunPython.noop, open_again),
    ]
