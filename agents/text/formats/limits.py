"""Limits on how much of a document is read. Each is checked before the work that it bounds."""

MAX_BYTES = 20_000_000
MAX_CHARS = 5_000_000

MAX_PAGES = 2_000
# A table: rows with text, as many as a spreadsheet has, and cells, with empty ones between others.
MAX_ROWS = 1_048_576
MAX_CELLS = 5_000_000

# The archive inside DOCX, XLSX, PPTX and ODT, as its directory declares it.
MAX_ENTRIES = 2_000
MAX_UNPACKED_BYTES = 64_000_000
# An element takes far more memory than its few bytes of markup.
MAX_ELEMENTS = 2_000_000

# Mails: parsing a long header takes time; attachments that are named, and how many of them are read.
MAX_HEADER_CHARS = 50_000
MAX_NAMED_ATTACHMENTS = 200
MAX_READ_ATTACHMENTS = 20

# The subprocess: seconds for each kind, and memory.
MAX_SECONDS = {
    "html": 10,
    "csv": 30,
    "rtf": 30,
    "docx": 30,
    "xlsx": 60,
    "pptx": 30,
    "odt": 30,
    "pdf": 60,
    "eml": 60,
    "msg": 60,
}
MAX_MEMORY_BYTES = 600_000_000
# How many run at once for one process of lqops, and how long the next one waits.
MAX_READERS = 2
MAX_WAIT_SECONDS = 60
