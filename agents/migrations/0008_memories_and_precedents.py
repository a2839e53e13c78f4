import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from agents.migrations._normalised_keys import normalise_keys


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0007_inputs_health_fairness'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='memory',
            name='content_hash',
            field=models.CharField(default='', editable=False, help_text='Equal for memories that differ in case, spaces or marks alone.', max_length=64),
        ),
        migrations.AddField(
            model_name='precedent',
            name='ended_as',
            field=models.CharField(blank=True, choices=[('dismissed', 'Dismissed'), ('expired', 'Expired'), ('merged', 'Merged')], help_text='Why it is no longer open.', max_length=12, verbose_name='end'),
        ),
        migrations.AddField(
            model_name='precedent',
            name='merged_into',
            field=models.ForeignKey(blank=True, help_text='Where its count went.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='merged', to='agents.precedent'),
        ),
        migrations.AlterField(
            model_name='contextproposal',
            name='text',
            field=models.TextField(help_text='Derived from the precedent, perhaps edited; what accepting adds to the context.'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['owner', 'content_hash'], name='memory_same_content'),
        ),
        migrations.AddConstraint(
            model_name='precedent',
            constraint=models.CheckConstraint(condition=models.Q(('ended_as__in', ['', 'dismissed', 'expired', 'merged'])), name='precedent_end'),
        ),
        migrations.RunPython(normalise_keys, migrations.RunPython.noop),
    ]
