"""URLs that the pages of the audit log need: their own, the admin's, and the sign-in."""

from allauth.account import views as account
from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", account.login, name="account_login"),
    path("account/logout/", account.logout, name="account_logout"),
    path("account/second-factor/", include("allauth.mfa.urls")),
    path("account/sessions/", include("allauth.usersessions.urls")),
    path("", include("audit.views")),
]
