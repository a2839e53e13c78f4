import agents.models.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ._together import Together


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0003_fulltext'),
    ]

    operations = [
        Together(
            migrations.CreateModel(
                name='AgentEvent',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('owner_id', models.BigIntegerField()),
                    ('kind', models.CharField(max_length=64)),
                    ('data', models.JSONField(default=dict)),
                    ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ('agent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='happenings', to='agents.agent')),
                    ('session', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='happenings', to='agents.agentsession')),
                ],
                options={
                    'verbose_name': 'event',
                    'ordering': ['id'],
                    'indexes': [models.Index(fields=['owner_id', 'id'], name='agent_event_owner'), models.Index(fields=['agent', 'id'], name='agent_event_agent'), models.Index(fields=['session', 'id'], name='agent_event_session')],
                },
            ),
            migrations.CreateModel(
                name='Alert',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=64)),
                    ('text', models.TextField(blank=True)),
                    ('source_name', models.CharField(blank=True, max_length=64)),
                    ('dedupe', models.CharField(blank=True, help_text='One alert for one happening, however often told.', max_length=96)),
                    ('created_at', models.DateTimeField()),
                    ('cleared_at', models.DateTimeField(blank=True, null=True)),
                    ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='agents.agentsession')),
                ],
                options={
                    'indexes': [models.Index(condition=models.Q(('cleared_at__isnull', True)), fields=['session'], name='alert_pending')],
                    'constraints': [models.UniqueConstraint(condition=models.Q(('dedupe', ''), _negated=True), fields=('session', 'dedupe'), name='alert_once')],
                },
            ),
            migrations.CreateModel(
                name='GateDay',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('day', models.DateField()),
                    ('asked', models.PositiveIntegerField(default=0, help_text='Times that the small model was asked.')),
                    ('opened', models.PositiveIntegerField(default=0)),
                    ('unchanged', models.PositiveIntegerField(default=0, help_text='Skipped because nothing had changed.')),
                    ('immaterial', models.PositiveIntegerField(default=0, help_text='Skipped because the small model saw nothing in it.')),
                    ('spent_usd', agents.models.fields.MicroUSDField(default=0)),
                    ('saved_usd', agents.models.fields.MicroUSDField(default=0, help_text="Skipped turns at the average price of the agent's turns.")),
                    ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='gate_days', to='agents.agent')),
                ],
                options={
                    'constraints': [models.UniqueConstraint(fields=('agent', 'day'), name='gate_day')],
                },
            ),
            migrations.CreateModel(
                name='HotField',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=64)),
                    ('value', models.JSONField(blank=True, null=True)),
                    ('previous', models.JSONField(blank=True, help_text='What it was before the last change.', null=True)),
                    ('source', models.CharField(choices=[('sensor', 'Sensor'), ('refresh', 'Refresh'), ('agent', 'Agent')], max_length=8)),
                    ('source_name', models.CharField(blank=True, max_length=64)),
                    ('updated_at', models.DateTimeField(help_text='When it was last written, changed or not.')),
                    ('changed_at', models.DateTimeField(help_text='When its value last became another.')),
                    ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='hot_fields', to='agents.agentsession')),
                ],
                options={
                    'verbose_name': 'hot state field',
                    'constraints': [models.UniqueConstraint(fields=('session', 'name'), name='hot_field_name')],
                },
            ),
            migrations.CreateModel(
                name='Sensor',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=64)),
                    ('kind', models.CharField(choices=[('poll', 'Poll'), ('watch', 'Watch'), ('stream', 'Stream')], max_length=8)),
                    ('config', models.JSONField(default=dict, help_text="As the agent's definition says.")),
                    ('wanted', models.BooleanField(default=False, help_text="Its agent's loop is under way.")),
                    ('state', models.CharField(choices=[('waiting', 'Waiting'), ('fine', 'Fine'), ('failing', 'Failing'), ('unresolved', 'Unresolved'), ('invalid', 'Invalid')], default='waiting', max_length=12)),
                    ('problem', models.TextField(blank=True, help_text='Why it cannot run, or what failed last.')),
                    ('failures', models.PositiveIntegerField(default=0, help_text='In a row.')),
                    ('next_due_at', models.DateTimeField(blank=True, null=True)),
                    ('read_at', models.DateTimeField(blank=True, null=True)),
                    ('value', models.TextField(blank=True, help_text='The beginning of what was read last.')),
                    ('cursor', models.JSONField(blank=True, default=dict, help_text='Where to go on: Last-Event-ID, ETag, hashes of files.')),
                    ('signals', models.JSONField(blank=True, default=dict, help_text='When each signal fired last, and its last score.')),
                    ('lease_owner', models.CharField(blank=True, max_length=96)),
                    ('lease_until', models.DateTimeField(blank=True, null=True)),
                    ('fencing', models.PositiveBigIntegerField(default=0)),
                    ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sensors', to='agents.agent')),
                ],
                options={
                    'indexes': [models.Index(condition=models.Q(('wanted', True)), fields=['lease_until'], name='sensor_lease')],
                    'constraints': [models.UniqueConstraint(fields=('agent', 'name'), name='sensor_name'), models.CheckConstraint(condition=models.Q(('kind__in', ['poll', 'watch', 'stream'])), name='sensor_kind'), models.CheckConstraint(condition=models.Q(('state__in', ['waiting', 'fine', 'failing', 'unresolved', 'invalid'])), name='sensor_state')],
                },
            ),
            migrations.CreateModel(
                name='Turn',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('number', models.PositiveIntegerField()),
                    ('state', models.CharField(choices=[('open', 'Open'), ('done', 'Done'), ('skipped', 'Skipped'), ('failed', 'Failed')], default='open', max_length=12)),
                    ('started_at', models.DateTimeField()),
                    ('ended_at', models.DateTimeField(blank=True, null=True)),
                    ('yielded', models.CharField(blank=True, help_text='How the agent ended its turn.', max_length=12)),
                    ('sleep_seconds', models.PositiveIntegerField(blank=True, null=True)),
                    ('reason', models.TextField(blank=True, help_text='What the agent said about it, or what stopped it.')),
                    ('seen', models.JSONField(blank=True, default=dict, help_text='The hot state and alerts that it was shown, in short.')),
                    ('definition', models.TextField(blank=True, help_text='The text that it goes by, while it is open: a newer one holds from the next turn on.')),
                    ('tokens', models.PositiveBigIntegerField(default=0)),
                    ('cost_usd', agents.models.fields.MicroUSDField(default=0)),
                    ('actions', models.PositiveIntegerField(default=0, help_text='Calls with side effects that succeeded.')),
                    ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='turns', to='agents.agentsession')),
                ],
                options={
                    'ordering': ['session_id', 'number'],
                    'constraints': [models.UniqueConstraint(fields=('session', 'number'), name='turn_number'), models.CheckConstraint(condition=models.Q(('state__in', ['open', 'done', 'skipped', 'failed'])), name='turn_state')],
                },
            ),
            migrations.AddField(
                model_name='agent',
                name='wanted',
                field=models.BooleanField(default=False, editable=False, help_text='Its loop was started, and nobody has stopped it since.'),
            ),
            migrations.AddField(
                model_name='agentsession',
                name='definition_digest',
                field=models.CharField(blank=True, max_length=64),
            ),
            migrations.AddField(
                model_name='message',
                name='turn',
                field=models.PositiveIntegerField(default=0, help_text='The turn of a loop in which it was said.'),
            ),
            migrations.AddField(
                model_name='trigger',
                name='analysis_mode',
                field=models.CharField(choices=[('single', 'Single'), ('agentic', 'Agentic')], default='single', help_text='single: one question to the model. agentic: steps, in which it may call skills.', max_length=8),
            ),
            migrations.AlterField(
                model_name='notification',
                name='kind',
                field=models.CharField(choices=[('agent', 'Agent'), ('run_stopped', 'Run Stopped'), ('approval_waiting', 'Approval Waiting'), ('question_waiting', 'Question Waiting'), ('trigger_paused', 'Trigger Paused'), ('outcome_unknown', 'Outcome Unknown'), ('watch_behind', 'Watch Behind'), ('sensor_failing', 'Sensor Failing')], default='agent', max_length=20),
            ),
        ),
        Together(
            migrations.AddField(
                model_name='agent',
                name='allow_high_risk',
                field=models.BooleanField(default=False, help_text='In mode auto, calls of high risk run without being asked about. Only superusers set it.'),
            ),
            migrations.AddField(
                model_name='agentsession',
                name='definition_version',
                field=models.PositiveIntegerField(blank=True, help_text="The version of its agent's definition that it runs by.", null=True),
            ),
            migrations.AddField(
                model_name='trigger',
                name='guardrails',
                field=models.JSONField(blank=True, default=dict, help_text='Guardrails for its runs.'),
            ),
            migrations.AddIndex(
                model_name='message',
                index=models.Index(fields=['session', 'turn', 'seq'], name='message_turn'),
            ),
        ),
        Together(
            migrations.AddField(
                model_name='agent',
                name='definition',
                field=models.TextField(blank=True, help_text='YAML: instructions, pacing, hot state, sensors, guardrails.'),
            ),
            migrations.AddField(
                model_name='trigger',
                name='loop',
                field=models.JSONField(blank=True, default=dict, help_text='Settings of the step loop for its runs.'),
            ),
        ),
        migrations.AddField(
            model_name='agent',
            name='definition_digest',
            field=models.CharField(blank=True, editable=False, max_length=64),
        ),
        migrations.AddField(
            model_name='agent',
            name='definition_version',
            field=models.PositiveIntegerField(default=0, editable=False),
        ),
    ]
