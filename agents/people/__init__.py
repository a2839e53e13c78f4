"""Who may, and who is told: access, API keys, notifications, activity."""
