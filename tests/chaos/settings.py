"""Settings of the processes that chaos starts: those of the product, under a clock that can be stepped."""

from lqops.settings import *  # noqa: F403
from tests.chaos import fake_clock

fake_clock.install()
