"""Untrusted text made safe to use: marked blocks, strict YAML, extraction, chunks and quotes."""
