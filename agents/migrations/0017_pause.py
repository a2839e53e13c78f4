import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


def name_idle(apps, schema_editor):
    """`paused` was the watchdog's mark; it has a name of its own now."""
    apps.get_model("agents", "AgentSession").objects.filter(halt_state="paused").update(halt_state="idle")


def name_paused(apps, schema_editor):
    apps.get_model("agents", "AgentSession").objects.filter(halt_state="idle").update(halt_state="paused")


class Migration(migrations.Migration):
    """Pauses of runs, agents, triggers and all work; the watchdog's mark is called idle."""

    dependencies = [
        ('agents', '0016_charts'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Pause',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('session', 'Session'), ('agent', 'Agent'), ('trigger', 'Trigger'), ('organisation', 'Organisation')], max_length=16)),
                ('reason', models.TextField(blank=True)),
                ('requested_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('actor', models.CharField(blank=True, help_text='Who the audit log names if it was no user.', max_length=64)),
                ('resumed_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.RemoveConstraint(
            model_name='agentsession',
            name='session_halt_state',
        ),
        migrations.RemoveConstraint(
            model_name='agentsession',
            name='session_waiting_on',
        ),
        migrations.AddField(
            model_name='agentsession',
            name='paused_at',
            field=models.DateTimeField(blank=True, help_text='Since when a pause holds it up.', null=True),
        ),
        migrations.AddField(
            model_name='halt',
            name='spares_waiting',
            field=models.BooleanField(default=False, help_text='Whether runs that only wait for a person are paused instead of ended.'),
        ),
        migrations.AlterField(
            model_name='agentsession',
            name='halt_state',
            field=models.CharField(choices=[('running', 'Running'), ('halt_requested', 'Halt Requested'), ('halted', 'Halted'), ('idle', 'Idle')], default='running', max_length=16),
        ),
        migrations.AlterField(
            model_name='agentsession',
            name='waiting_on',
            field=models.CharField(blank=True, choices=[('approval', 'Approval'), ('input', 'Input'), ('operator', 'Operator'), ('model', 'Model'), ('resume', 'Resume')], max_length=12),
        ),
        migrations.AddIndex(
            model_name='agentsession',
            index=models.Index(condition=models.Q(('paused_at__isnull', False)), fields=['id'], name='session_paused'),
        ),
        migrations.RunPython(name_idle, name_paused),
        migrations.AddConstraint(
            model_name='agentsession',
            constraint=models.CheckConstraint(condition=models.Q(('halt_state__in', ['running', 'halt_requested', 'halted', 'idle'])), name='session_halt_state'),
        ),
        migrations.AddConstraint(
            model_name='agentsession',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'waiting'), ('waiting_on__in', ['approval', 'input', 'operator', 'model', 'resume'])), models.Q(models.Q(('status', 'waiting'), _negated=True), ('waiting_on', '')), _connector='OR'), name='session_waiting_on'),
        ),
        migrations.AddField(
            model_name='pause',
            name='agent',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='pauses', to='agents.agent'),
        ),
        migrations.AddField(
            model_name='pause',
            name='halt',
            field=models.ForeignKey(blank=True, help_text='The halt that spared the run.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='agents.halt'),
        ),
        migrations.AddField(
            model_name='pause',
            name='requested_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='lqops_pauses', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='pause',
            name='resumed_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='pause',
            name='session',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='pauses', to='agents.agentsession'),
        ),
        migrations.AddField(
            model_name='pause',
            name='trigger',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='pauses', to='agents.trigger'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('agent__isnull', True), ('scope', 'session'), ('session__isnull', False), ('trigger__isnull', True)), models.Q(('agent__isnull', False), ('scope', 'agent'), ('session__isnull', True), ('trigger__isnull', True)), models.Q(('agent__isnull', True), ('scope', 'trigger'), ('session__isnull', True), ('trigger__isnull', False)), models.Q(('agent__isnull', True), ('scope', 'organisation'), ('session__isnull', True), ('trigger__isnull', True)), _connector='OR'), name='pause_scope'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(condition=models.Q(('resumed_at__isnull', True), ('scope', 'session')), fields=('session',), name='pause_one_of_session'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(condition=models.Q(('resumed_at__isnull', True), ('scope', 'agent')), fields=('agent',), name='pause_one_of_agent'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(condition=models.Q(('resumed_at__isnull', True), ('scope', 'trigger')), fields=('trigger',), name='pause_one_of_trigger'),
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(condition=models.Q(('resumed_at__isnull', True), ('scope', 'organisation')), fields=('scope',), name='pause_one_of_organisation'),
        ),
    ]
