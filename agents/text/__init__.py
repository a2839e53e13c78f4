"""Text from strangers made safe to use: marked blocks, strict YAML, extraction, chunks."""
