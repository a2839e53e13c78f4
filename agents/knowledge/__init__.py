"""Documents, search, playbooks, projects, precedents and memories."""
