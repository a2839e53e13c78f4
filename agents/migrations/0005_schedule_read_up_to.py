from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents', '0004_autonomy'),
    ]

    operations = [
        migrations.AddField(
            model_name='trigger',
            name='read_up_to',
            field=models.DateTimeField(blank=True, editable=False, help_text='Earlier than the last run: what came in later is still to be read.', null=True),
        ),
    ]
