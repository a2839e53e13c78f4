"""One function puts the values of secrets in the place of their handles; everything else sees names."""

import ast

import pytest

from .source import ROOT, shown, source_files

VALUES = "LQOPS_SECRETS"
RESOLVER = "agents/skills/handles.py"
FUNCTION = "secrets_resolve"
# File, and how often the setting may be named there.
NAMED = {"lqops/settings.py": 3, "agents/conf.py": 1, RESOLVER: 1}


def mentions(source: str) -> list[ast.AST]:
    """Return the nodes that name the setting with the values: as a name, an attribute, or a text for getattr."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        name = getattr(node, "id", None) or getattr(node, "attr", None)
        if name == VALUES or (isinstance(node, ast.Constant) and node.value == VALUES):
            found.append(node)
    return found


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def test_values_are_read_in_one_function_and_nowhere_else():
    counted = {shown(path): len(mentions(path.read_text(encoding="utf-8"))) for path in source_files()}
    assert {place: count for place, count in counted.items() if count} == NAMED

    source = (ROOT / RESOLVER).read_text(encoding="utf-8")
    assert len(mentions(ast.unparse(function_named(ast.parse(source), FUNCTION)))) == 1
    names = function_named(ast.parse((ROOT / "agents/conf.py").read_text(encoding="utf-8")), "secret_names")
    assert ast.unparse(names.body[-1]) == "return sorted(settings.LQOPS_SECRETS)"


def test_environment_is_not_asked_for_secrets():
    """The settings read them once; `LQOPS_SECRET_` stands in other modules in texts for people alone."""
    readers = [
        shown(path)
        for path in source_files(folders=("agents", "audit"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and any(isinstance(given, ast.Constant) and str(given.value).startswith("LQOPS_SECRET_") for given in node.args)
    ]
    assert readers == []


def test_function_cannot_be_called_without_destination_and_user():
    tree = ast.parse((ROOT / RESOLVER).read_text(encoding="utf-8"))
    arguments = function_named(tree, FUNCTION).args
    required = {
        argument.arg
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if not default
    }
    assert {"destinations", "user", "now"} <= required


@pytest.mark.parametrize("source", ["settings.LQOPS_SECRETS['x']", "getattr(settings, 'LQOPS_SECRETS')"])
def test_mention_is_found(source):
    assert len(mentions(source)) == 1
