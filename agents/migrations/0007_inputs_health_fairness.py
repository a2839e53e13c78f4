import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


def note_since_when_runs_wait(apps, schema_editor):
    """Runs that waited for room had no time; without one they would be taken last."""
    sessions = apps.get_model("agents", "AgentSession").objects.using(schema_editor.connection.alias)
    sessions.filter(status="queued", enqueued_at__isnull=True).update(enqueued_at=models.F("created_at"))


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0006_model_outages'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Alarm',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.CharField(max_length=160, unique=True)),
                ('text', models.CharField(max_length=500)),
                ('since', models.DateTimeField()),
                ('told_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Host',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=96, unique=True)),
                ('seen_at', models.DateTimeField()),
                ('keys', models.CharField(help_text='A digest of each key, by which hosts compare them.', max_length=200)),
                ('free_bytes', models.BigIntegerField(help_text='Free space of the fullest file system on which it writes.')),
                ('checkpoint_fault', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='ModelServer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=128, unique=True)),
                ('endpoint', models.CharField(help_text='Digest of its address and name there; others are asked anew.', max_length=64)),
                ('form', models.JSONField(default=dict, help_text='Parts of requests that the server takes in another form.')),
                ('streams', models.BooleanField(default=True)),
                ('reports_usage', models.BooleanField(default=True, help_text='Whether it says how many tokens it used.')),
                ('found_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='SharedText',
            fields=[
                ('digest', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('text', models.TextField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='UnreadInput',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ('state', models.CharField(choices=[('queued', 'a run is reading it'), ('retrying', 'read again when due'), ('given_up', 'given up'), ('dismissed', 'dismissed')], max_length=12)),
                ('reason', models.CharField(help_text='Why the last run did not read it.', max_length=24)),
                ('tries', models.PositiveIntegerField(default=0, help_text='Runs that have tried.')),
                ('due_at', models.DateTimeField(blank=True, help_text='When the next run starts.', null=True)),
                ('failed_at', models.DateTimeField(help_text='When the last run ended.')),
            ],
        ),
        migrations.AddField(
            model_name='agentsession',
            name='claimed_at',
            field=models.DateTimeField(blank=True, help_text='When a worker last took it.', null=True),
        ),
        migrations.AddField(
            model_name='agentsession',
            name='urgency',
            field=models.PositiveSmallIntegerField(choices=[(0, 'Urgent'), (1, 'Batch')], default=1),
        ),
        migrations.AddField(
            model_name='halt',
            name='actor',
            field=models.CharField(blank=True, help_text='Who the audit log names if it was no user.', max_length=64),
        ),
        migrations.AlterField(
            model_name='agentsession',
            name='enqueued_at',
            field=models.DateTimeField(blank=True, help_text='Since when it waits for a worker.', null=True),
        ),
        migrations.AlterField(
            model_name='inferencelog',
            name='purpose',
            field=models.CharField(choices=[('chat', 'Chat'), ('judge', 'Judge'), ('embedding', 'Embedding'), ('autonomous_executor', 'Autonomous Executor'), ('simulation', 'Simulation'), ('precheck', 'Precheck'), ('signal', 'Signal'), ('compaction', 'Compaction'), ('test', 'Test')], max_length=24),
        ),
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('agent', 'Agent'), ('run_stopped', 'Run Stopped'), ('approval_waiting', 'Approval Waiting'), ('question_waiting', 'Question Waiting'), ('trigger_paused', 'Trigger Paused'), ('outcome_unknown', 'Outcome Unknown'), ('watch_behind', 'Watch Behind'), ('sensor_failing', 'Sensor Failing'), ('model_away', 'Model Away'), ('model_back', 'Model Back'), ('input_given_up', 'Input Given Up'), ('fault', 'Fault')], default='agent', max_length=20),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('status', 'queued')), fields=['urgency', 'owner', 'trigger', 'enqueued_at', 'id'], name='session_next'),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('claimed_at__isnull', False)), fields=['owner', 'claimed_at'], name='session_owner_served'),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('claimed_at__isnull', False)), fields=['owner', 'trigger', 'claimed_at'], name='session_trigger_served'),
        ),
        migrations.AddField(
            model_name='unreadinput',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='lqops_unread_inputs', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='unreadinput',
            name='session',
            field=models.OneToOneField(help_text='The last run that tried to read it.', on_delete=django.db.models.deletion.CASCADE, related_name='unread_input', to='agents.agentsession'),
        ),
        migrations.AddField(
            model_name='unreadinput',
            name='trigger',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='unread_inputs', to='agents.trigger'),
        ),
        migrations.AddIndex(
            model_name='unreadinput',
            index=models.Index(condition=models.Q(('state', 'retrying')), fields=['due_at'], name='unread_input_due'),
        ),
        migrations.AddIndex(
            model_name='unreadinput',
            index=models.Index(condition=models.Q(('state', 'given_up')), fields=['-id'], name='unread_input_given_up'),
        ),
        migrations.AddConstraint(
            model_name='unreadinput',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['queued', 'retrying', 'given_up', 'dismissed'])), name='unread_input_state'),
        ),
        migrations.RunPython(note_since_when_runs_wait, migrations.RunPython.noop),
    ]
