from django.db.migrations.operations.base import Operation


class Together(Operation):
    """Operations on models of which none needs another's: Django draws all models anew once, not after each."""

    def __init__(self, *operations):
        self.operations = operations

    def state_forwards(self, app_label, state):
        state.__dict__.pop("apps", None)  # what was drawn; it is drawn again when somebody looks
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        for operation in reversed(self.operations):
            operation.database_backwards(app_label, schema_editor, from_state, to_state)

    def describe(self):
        return "; ".join(operation.describe() for operation in self.operations)

    @property
    def reversible(self):
        return all(operation.reversible for operation in self.operations)
