from django.db import migrations, models


class Migration(migrations.Migration):
    oldest_beside = "0.1.0"

    dependencies = [
        ('agents', '0030_agents_with_a_heartbeat_are_wanted'),
    ]

    operations = [
        migrations.CreateModel(
            name='ModelTurn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('model', models.CharField(max_length=128)),
                ('number', models.PositiveSmallIntegerField()),
                ('holder', models.CharField(db_index=True, max_length=32)),
                ('held_until', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('model', 'number'), name='model_turn_once')],
            },
        ),
    ]
