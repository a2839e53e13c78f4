"""The walk: five phases in a fixed order, each with its own grants. Untrusted text picks none of its steps."""
