"""What starts sessions: schedules, watches, events, webhooks, run now."""
