"""What is counted: budgets, prices, the journal of calls, trigger health."""
