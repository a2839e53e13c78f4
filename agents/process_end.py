"""That this process was asked to end. Whoever waits for long looks here, so that nobody waits for them."""

import threading
from typing import Final

process_ends: Final = threading.Event()
