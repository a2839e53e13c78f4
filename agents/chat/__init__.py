"""Chats: one message, one run of the step loop, one answer."""
