"""Counts of failed sign-ins, for the brake on guessing passwords."""

from django.db import models
from django.db.models.functions import Now


class SignInCount(models.Model):
    """Tries that did not lead in: of an account, of an address, or of an account at an address that it is known at."""

    subject = models.CharField(max_length=160, unique=True)
    failures = models.PositiveIntegerField(default=0)
    began_at = models.DateTimeField(db_default=Now())
    known_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["began_at"], name="sign_in_began")]

    def __str__(self) -> str:
        return f"{self.failures} since {self.began_at:%Y-%m-%d %H:%M}"
