"""lqops: mission control for unattended AI agents. This package is wiring only."""
