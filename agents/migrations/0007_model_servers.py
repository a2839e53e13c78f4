from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0006_model_outages'),
    ]

    operations = [
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
        migrations.AlterField(
            model_name='inferencelog',
            name='purpose',
            field=models.CharField(choices=[('chat', 'Chat'), ('judge', 'Judge'), ('embedding', 'Embedding'), ('autonomous_executor', 'Autonomous Executor'), ('simulation', 'Simulation'), ('precheck', 'Precheck'), ('signal', 'Signal'), ('compaction', 'Compaction'), ('test', 'Test')], max_length=24),
        ),
    ]
