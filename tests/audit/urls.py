"""The addresses that the record's pages need: their own and the admin's."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("audit.urls"))]
