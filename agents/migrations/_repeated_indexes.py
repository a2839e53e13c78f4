from django.db.migrations.operations.base import Operation


class DropRepeatedIndex(Operation):
    """Drop the index of a foreign key that is the beginning of another index.

    Django's AlterField would copy the whole table on SQLite.
    """

    def __init__(self, model_name, name):
        self.model_name = model_name
        self.name = name

    def state_forwards(self, app_label, state):
        field = state.models[app_label, self.model_name].fields[self.name].clone()
        field.db_index = False
        state.alter_field(app_label, self.model_name, self.name, field, preserve_default=True)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        model, field = self._of(app_label, from_state)
        name = schema_editor._create_index_name(model._meta.db_table, [field.column])
        schema_editor.execute(f"DROP INDEX IF EXISTS {schema_editor.quote_name(name)}")

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        model, field = self._of(app_label, to_state)
        schema_editor.execute(schema_editor._create_index_sql(model, fields=[field]))

    def _of(self, app_label, state):
        model = state.apps.get_model(app_label, self.model_name)
        return model, model._meta.get_field(self.name)

    def describe(self):
        return f"Drop the repeated index of {self.name} of {self.model_name}"
