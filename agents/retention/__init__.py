"""What is kept, for how long, and what is archived: runs and their audit events, and rows that nobody needs."""
