"""URLs that the pages of the audit log need: their own, the admin's, and the sign-in."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="login.html"), name="login"),
    path("", include("audit.views")),
]
