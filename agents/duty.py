"""Whose turn it is to do a duty of which there is one in the installation, such as the ticker's.

Several processes may offer themselves; the row says who holds it, and until when. A duty done twice does no harm (what
it does is decided by rows of its own); the lease only keeps it from being done by everybody all the time.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from agents.models import Lease


def duty_take(name: str, *, owner: str, lifetime: timedelta, now: datetime) -> bool:
    """True while this process holds the duty. It is taken over when its holder was not heard of for a lifetime."""
    Lease.objects.get_or_create(name=name)
    mine_or_free = Q(owner=owner) | Q(until__isnull=True) | Q(until__lte=now) | _beyond(lifetime, now)
    return Lease.objects.filter(mine_or_free, name=name).update(owner=owner, until=now + lifetime) == 1


def duty_is_ahead(name: str, *, lifetime: timedelta, now: datetime) -> bool:
    """True when the duty was taken, or done, at a time that is still to come: the clock was set back since."""
    return Lease.objects.filter(_beyond(lifetime, now) | Q(done_at__gt=now), name=name).exists()


def _beyond(lifetime: timedelta, now: datetime) -> Q:
    """Nobody can have taken the duty for that long, unless the clock was later then than it is now."""
    return Q(until__gt=now + lifetime)


def duty_done(name: str, *, owner: str, now: datetime) -> None:
    Lease.objects.filter(name=name, owner=owner).update(done_at=now)


def duty_leave(name: str, *, owner: str) -> None:
    """Lets the next one take over at once."""
    Lease.objects.filter(name=name, owner=owner).update(owner="", until=None)
