from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0005_schedule_read_up_to'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ModelOutage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=128, unique=True)),
                ('since', models.DateTimeField()),
                ('next_try_at', models.DateTimeField()),
                ('tries', models.PositiveIntegerField(default=0)),
                ('woken_at', models.DateTimeField(blank=True, help_text='When a waiting run was last woken to try it.', null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
            ],
        ),
        migrations.RemoveConstraint(
            model_name='agentsession',
            name='session_waiting_on',
        ),
        migrations.AlterField(
            model_name='agentsession',
            name='waiting_on',
            field=models.CharField(blank=True, choices=[('approval', 'Approval'), ('input', 'Input'), ('operator', 'Operator'), ('model', 'Model')], max_length=12),
        ),
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('agent', 'Agent'), ('run_stopped', 'Run Stopped'), ('approval_waiting', 'Approval Waiting'), ('question_waiting', 'Question Waiting'), ('trigger_paused', 'Trigger Paused'), ('outcome_unknown', 'Outcome Unknown'), ('watch_behind', 'Watch Behind'), ('sensor_failing', 'Sensor Failing'), ('model_away', 'Model Away'), ('model_back', 'Model Back')], default='agent', max_length=20),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('status', 'waiting')), fields=['next_wake_at'], name='session_waiting'),
        ),
        migrations.AddConstraint(
            model_name='agentsession',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'waiting'), ('waiting_on__in', ['approval', 'input', 'operator', 'model'])), models.Q(models.Q(('status', 'waiting'), _negated=True), ('waiting_on', '')), _connector='OR'), name='session_waiting_on'),
        ),
    ]
