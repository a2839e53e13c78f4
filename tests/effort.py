"""How much work a function takes, with as little as possible of what else its machine does."""

import gc
import math
import sys
import time


def seconds(act, rounds=1):
    """The fewest processor seconds that one of so many calls took in this thread.

    The garbage collector rests meanwhile: how long it takes depends on everything else that is in memory.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        best = math.inf
        for _ in range(rounds):
            started = time.thread_time()
            act()
            best = min(best, time.thread_time() - started)
        return best
    finally:
        if was_on:
            gc.enable()


def takes_at_most(limit, act, tries=5):
    """Is it done in so many seconds at least once? A busy machine may need another try, and coverage more time."""
    limit *= 3 if sys.gettrace() else 1
    return any(seconds(act) <= limit for _ in range(tries))


def grows_too_fast(act, make, size, times=10, slack=0.02, tries=5):
    """Does `act` on a text that is so many times as long take far more than so many times as long?

    Work that grows with the square takes `times`² as long, so the bound stands between the two.
    """
    small, large = make(size), make(times * size)
    return all(
        seconds(lambda: act(large)) > times**1.5 * seconds(lambda: act(small), rounds=2) + slack for _ in range(tries)
    )
