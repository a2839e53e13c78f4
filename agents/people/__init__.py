"""People: access, sign-ins, API keys, notifications, activity."""
