from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("agents", "0008_results")]

    operations = [
        migrations.AddIndex(
            model_name="agentsession",
            index=models.Index(
                condition=Q(run_result__in=("partial", "failed")), fields=["completed_at"], name="session_unfinished"
            ),
        ),
    ]
