"""The life of a session: birth, lease, approvals, questions, halt, end, reads."""
