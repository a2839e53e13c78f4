import agents.models.fields
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='trigger',
            name='max_cost_per_day_usd',
            field=agents.models.fields.MicroUSDField(blank=True, help_text='All sessions of this trigger together, per UTC day. Empty: no cap of its own.', null=True),
        ),
        migrations.AddField(
            model_name='trigger',
            name='max_cost_usd',
            field=agents.models.fields.MicroUSDField(blank=True, help_text="Copied to each session at spawn. Empty: the installation's default.", null=True, verbose_name='cap per session (USD)'),
        ),
    ]
