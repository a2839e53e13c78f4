import agents.models.fields
from django.db import migrations, models


def drop_new_budgets(apps, schema_editor):
    """On the way back: what the version before does not know. Days of installation, agents and triggers stay."""
    budgets = apps.get_model("agents", "Budget").objects
    budgets.filter(period="month").delete()
    budgets.filter(scope__in=["owner", "project"]).delete()


class Migration(migrations.Migration):
    """Budgets of months, owners and projects, and their caps. Rows of days stay as they are."""

    dependencies = [
        ('agents', '0020_retention'),
    ]

    operations = [
        migrations.CreateModel(
            name='Cap',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('scope', models.CharField(choices=[('installation', 'Installation'), ('owner', 'Owner'), ('project', 'Project'), ('agent', 'Agent'), ('trigger', 'Trigger')], max_length=16)),
                ('subject_id', models.BigIntegerField(default=0)),
                ('period', models.CharField(choices=[('day', 'Day'), ('month', 'Month')], max_length=8)),
                ('cap_usd', agents.models.fields.MicroUSDField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.AlterModelOptions(
            name='budget',
            options={'verbose_name': 'spending of a period', 'verbose_name_plural': 'spending and caps'},
        ),
        migrations.RemoveConstraint(
            model_name='budget',
            name='budget_one_per_day',
        ),
        migrations.RemoveConstraint(
            model_name='budget',
            name='budget_installation_cap',
        ),
        migrations.AddField(
            model_name='budget',
            name='period',
            field=models.CharField(choices=[('day', 'Day'), ('month', 'Month')], db_default='day', default='day', max_length=8),
        ),
        migrations.AlterField(
            model_name='budget',
            name='day',
            field=models.DateField(help_text='Of a month, its first.'),
        ),
        migrations.AlterField(
            model_name='budget',
            name='scope',
            field=models.CharField(choices=[('installation', 'Installation'), ('owner', 'Owner'), ('project', 'Project'), ('agent', 'Agent'), ('trigger', 'Trigger')], max_length=16),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.UniqueConstraint(fields=('scope', 'subject_id', 'period', 'day'), name='budget_one_per_period'),
        ),
        migrations.AddConstraint(
            model_name='budget',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('period', 'day'), ('scope', 'installation'), _negated=True), ('cap_usd__isnull', False), _connector='OR'), name='budget_installation_cap'),
        ),
        migrations.AddConstraint(
            model_name='cap',
            constraint=models.UniqueConstraint(fields=('scope', 'subject_id', 'period'), name='cap_one_per_period'),
        ),
        migrations.AddConstraint(
            model_name='cap',
            constraint=models.CheckConstraint(condition=models.Q(('period', 'day'), ('scope__in', ('installation', 'agent', 'trigger')), _negated=True), name='cap_not_on_its_row'),
        ),
        migrations.RunPython(migrations.RunPython.noop, drop_new_budgets),
    ]
