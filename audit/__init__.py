"""The audit log: append-only hash chains, redaction, receipts. Bottom layer: imports nothing from agents."""
