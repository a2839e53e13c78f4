"""Reversible anonymisation: personal data leaves the process as placeholders and is restored in the reply.

One `Anonymizer` serves one model call and holds the only mapping. It reads no row, opens no connection and writes no
log line. It is a safety net, not a guarantee; docs/anonymisation.md says what it finds and what it misses.
"""

from agents.anonymize.anonymizer import Anonymizer, RestoringStream
from agents.anonymize.reading import Kind

__all__ = ["Anonymizer", "Kind", "RestoringStream"]
