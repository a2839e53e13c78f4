"""URLs of the web process."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

from agents.webhooks import receive_webhook
from lqops.metrics import metrics
from lqops.web import SignInForm, healthz, readyz

admin.autodiscover()

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="login.html", authentication_form=SignInForm), name="login"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("favicon.ico", RedirectView.as_view(url=static("lqops/icon.svg"))),
    path("hooks/<str:public_id>", receive_webhook, name="hook"),
    path("api/", include("agents.api.urls")),
    path("", include("audit.views")),
]
