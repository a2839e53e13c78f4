"""How much of a document is taken. Each limit is checked before the work that it bounds."""

MAX_BYTES = 20_000_000
MAX_CHARS = 5_000_000

# PDF
MAX_PAGES = 2_000

# The archive inside a DOCX, by what its directory declares
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 64_000_000
# An element takes far more memory than the few bytes that it is written in.
MAX_ELEMENTS = 2_000_000
MAX_RATIO = 100
# Small files may be packed as tightly as they like: blank forms are.
RATIO_FREE_BYTES = 2_000_000

# The process that reads what has a structure
MAX_SECONDS = {"html": 10, "docx": 30, "pdf": 60}
MAX_MEMORY_BYTES = 600_000_000
# How many of them run at once for one process of lqops, and how long the next one waits for its turn
MAX_READERS = 2
MAX_WAIT_SECONDS = 60
