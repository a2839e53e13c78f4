"""Budgets, prices, the journal of calls, trigger health."""
