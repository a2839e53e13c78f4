"""Requests in words, and chats."""
