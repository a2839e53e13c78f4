"""Loops and heartbeats: autonomous agents, one turn per task; the pause between turns is a row."""
