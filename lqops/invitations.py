"""The page of an invitation, where somebody sets the first password of their account."""

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.views import PasswordResetConfirmView
from django.http import HttpResponse
from django.urls import reverse_lazy

from agents.accounts import can_be_invited, user_record_password
from agents.conf import clock


class InvitationView(PasswordResetConfirmView):
    """Takes the token of a link into the session, so that it is in no address that is passed on.

    It never replaces a password: a link that was used, or that is too old, says so.
    """

    template_name = "account/invitation.html"
    success_url = reverse_lazy("account_login")
    reset_url_token = "set"  # noqa: S105 a part of the address

    def get_user(self, uidb64: str) -> User | None:
        user: Any = super().get_user(uidb64)
        return user if user is not None and can_be_invited(user) else None

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        user_record_password(user=form.user, by=form.user, now=clock())
        return response
