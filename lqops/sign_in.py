"""The two forms with which people sign in, each behind the brake on guessing passwords."""

from math import ceil
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm as StaffForm

from agents.conf import clock
from agents.people.keys import sign_in_begin, sign_in_done


class _Braked(AuthenticationForm):
    """Counts the try, then looks at the password. Where the try comes from is what the server says, not a header."""

    waits = False  # there were too many tries: the page says how long, instead of that the password is wrong

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username is None or not password:
            return super().clean()
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        if wait := sign_in_begin(username=username, address=address, now=clock()):
            self.waits = True
            minutes = ceil(wait.total_seconds() / 60)
            raise ValidationError(f"Too many failed sign-ins. Try again in {minutes} minutes.", code="too_many")
        cleaned = super().clean()
        sign_in_done(username=username, address=address, now=clock())
        return cleaned


class SignIn(_Braked):
    """For everybody who has an account."""


class StaffSignIn(_Braked, StaffForm):  # type: ignore[misc]  # unfold ships no types
    """For the control room."""
