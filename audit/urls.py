"""URLs of receipts."""

from django.urls import path

from audit import views

app_name = "audit"

urlpatterns = [
    path("receipts/<str:chain>/", views.receipt_page, name="receipt"),
    path("receipts/<str:chain>.json", views.receipt_json, name="receipt-json"),
]
