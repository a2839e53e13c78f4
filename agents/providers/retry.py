"""When to ask again, and after how long. Pure: the caller waits, and a halt can interrupt it.

Recoverable faults: 2^(n-1) seconds, spread by half; rate limits: 30·n seconds, spread by a fifth, or what the server
asks for, with a count of their own. Everything else is final.
"""

import random
from dataclasses import dataclass, replace

from agents.providers.errors import Fault, ProviderError

LONGEST_WAIT_SECONDS = 3_600.0


@dataclass(frozen=True)
class Tries:
    """How often it was tried, in all and because of rate limits."""

    most: int = 3
    failed: int = 0
    rate_limited: int = 0

    def after(self, error: ProviderError) -> "Tries":
        if error.fault == Fault.RATE_LIMITED:
            return replace(self, rate_limited=self.rate_limited + 1)
        return replace(self, failed=self.failed + 1)


def next_wait(error: ProviderError, tries: Tries, rng: random.Random) -> float | None:
    """Seconds until the next try; None when there is none. `tries` counts this failure already."""
    if not error.recoverable:
        return None
    limited = error.fault == Fault.RATE_LIMITED
    count = tries.rate_limited if limited else tries.failed
    if count >= tries.most:
        return None
    if error.retry_after is not None:
        return min(error.retry_after * rng.uniform(1.0, 1.1), LONGEST_WAIT_SECONDS)
    if limited:
        return 30.0 * count * rng.uniform(0.8, 1.2)
    return float(2 ** (count - 1)) * rng.uniform(0.5, 1.5)
