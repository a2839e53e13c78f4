from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0006_model_outages'),
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
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('agent', 'Agent'), ('run_stopped', 'Run Stopped'), ('approval_waiting', 'Approval Waiting'), ('question_waiting', 'Question Waiting'), ('trigger_paused', 'Trigger Paused'), ('outcome_unknown', 'Outcome Unknown'), ('watch_behind', 'Watch Behind'), ('sensor_failing', 'Sensor Failing'), ('model_away', 'Model Away'), ('model_back', 'Model Back'), ('fault', 'Fault')], default='agent', max_length=20),
        ),
    ]
