"""Days before months, and a clock of 24 hours with seconds: these pages are read next to log lines."""

DATE_FORMAT = "j M Y"
DATETIME_FORMAT = "j M Y, H:i:s"
