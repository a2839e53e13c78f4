"""The built-in analyst: checks documents against playbooks without a model server."""
