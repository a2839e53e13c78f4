"""The addresses that the record's pages need: their own, the admin's, and where to sign in."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("login/", LoginView.as_view(template_name="login.html"), name="login"),
    path("", include("audit.urls")),
]
