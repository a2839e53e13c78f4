"""Reads that span models or answer one question often asked. They write nothing and decide nothing."""
