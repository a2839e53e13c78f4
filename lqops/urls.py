"""URLs of the web process."""

from allauth.account import views as account
from django.apps import apps
from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView

from agents.webhooks import receive_webhook
from lqops.invitations import InvitationView
from lqops.metrics import metrics
from lqops.web import healthz, readyz

admin.autodiscover()

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    # Of allauth's pages only these: nobody signs up, resets a password or changes an e-mail address here.
    path("login/", account.login, name="account_login"),
    path("account/logout/", account.logout, name="account_logout"),
    path("account/inactive/", account.account_inactive, name="account_inactive"),
    path("account/confirm/", account.reauthenticate, name="account_reauthenticate"),
    path("account/second-factor/", include("allauth.mfa.urls")),
    path("account/sessions/", include("allauth.usersessions.urls")),
    path("invitation/<uidb64>/<token>/", InvitationView.as_view(), name="account_invitation"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("favicon.ico", RedirectView.as_view(url=static("lqops/icon.svg"))),
    path("hooks/<str:public_id>", receive_webhook, name="hook"),
    path("api/", include("agents.api.urls")),
    path("", include("audit.views")),
]

if apps.is_installed("allauth.socialaccount"):
    from lqops import oidc

    urlpatterns += [
        path("account/oidc/<str:provider_id>/login/", oidc.login, name="openid_connect_login"),
        path("account/oidc/<str:provider_id>/callback/", oidc.callback, name="openid_connect_callback"),
    ]
