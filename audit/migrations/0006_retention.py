import django.db.models.deletion
from django.db import migrations, models

from audit import models as tables


def install(apps, schema_editor):
    tables.install(schema_editor.connection)


def remove(apps, schema_editor):
    tables.remove(schema_editor.connection)


class Migration(migrations.Migration):

    dependencies = [
        ('audit', '0005_skill_audit_chain'),
    ]

    operations = [
        migrations.RunPython(remove, install),
        migrations.CreateModel(
            name='Seal',
            fields=[
                ('number', models.PositiveBigIntegerField(primary_key=True, serialize=False)),
                ('statement', models.JSONField()),
                ('digest', models.CharField(help_text='SHA-256 of the canonical statement.', max_length=64)),
                ('event_seq', models.BigIntegerField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='DroppedSegment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('events', models.PositiveBigIntegerField()),
                ('at', models.DateTimeField()),
                ('seal', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='dropped', to='audit.seal')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='SealedChain',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('chain', models.CharField(max_length=64)),
                ('first_seq', models.BigIntegerField()),
                ('last_seq', models.BigIntegerField()),
                ('first_hash', models.CharField(max_length=64)),
                ('last_hash', models.CharField(max_length=64)),
                ('seal', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='chains', to='audit.seal')),
            ],
            options={
                'default_permissions': (),
                'constraints': [models.UniqueConstraint(fields=('chain', 'first_seq'), name='audit_sealed_chain_once')],
            },
        ),
        migrations.RunPython(install, remove),
    ]
