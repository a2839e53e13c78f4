"""The record: append-only hash chains, redaction, receipts. Bottom layer: it imports nothing from agents."""
