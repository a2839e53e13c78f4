import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    oldest_beside = "0.2.0"  # an older worker would go on sending secrets to any host

    dependencies = [
        ('agents', '0035_findings_expire'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='sensor',
            name='secret_uses',
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict, help_text='The day on which each use was recorded last.'),
        ),
        migrations.CreateModel(
            name='SecretBinding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64, unique=True)),
                ('hosts', models.JSONField(default=list)),
                ('updated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('updated_by', models.ForeignKey(blank=True, editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'secret',
            },
        ),
    ]
