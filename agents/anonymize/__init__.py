"""Reversible anonymisation: personal data leaves the process as placeholders and comes back as itself.

One `Anonymizer` serves one model call and holds the only mapping. Pure policy: it reads no row, opens no connection and
writes no log line. It is a safety net, not a guarantee; docs/anonymisation.md says what it finds and what it misses.
"""

from agents.anonymize.anonymizer import Anonymizer
from agents.anonymize.spans import Kind
from agents.anonymize.stream import RestoringStream

__all__ = ["Anonymizer", "Kind", "RestoringStream"]
