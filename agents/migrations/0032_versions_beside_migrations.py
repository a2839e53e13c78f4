from django.db import migrations, models


class Migration(migrations.Migration):
    oldest_beside = "0.1.0"

    dependencies = [
        ('agents', '0031_turns_at_models'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='version',
            field=models.CharField(blank=True, db_default='', help_text='Of lqops. Empty: before 0.2.0.', max_length=40),
        ),
        migrations.CreateModel(
            name='AppliedMigration',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('app', models.CharField(max_length=40)),
                ('name', models.CharField(max_length=200)),
                ('oldest_beside', models.CharField(max_length=40)),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('app', 'name'), name='applied_migration_once')],
            },
        ),
    ]
