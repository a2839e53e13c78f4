"""Triggers of sessions: schedules, watches, events, webhooks, run now."""
