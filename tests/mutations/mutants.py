"""Mutants: one small change each to a function of the product, made in a running process.

A mutant is put in place by giving functions that exist already the code of the changed file, so nothing is written to
disk and nothing is imported again. What a module does when it is imported is not mutated.
"""

import ast
import builtins
import gc
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

COMPARED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COUNTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult}
QUIET = ("logger",)  # what is only logged changes no row
DATABASE = "connection."  # what only another database than SQLite does is not seen here


@dataclass(frozen=True)
class Mutant:
    """A change to one node of a file, known by its number in a walk through the tree."""

    path: Path
    function: int  # the line at which the function begins
    line: int
    change: str
    number: int
    mutate: Callable[[Any], None]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.change}"

    def put_in_place(self) -> int:
        """Change functions of this process; return how many."""
        tree = ast.parse(self.path.read_text())
        before = _codes(tree, self.path)
        self.mutate(next(node for n, node in enumerate(ast.walk(tree)) if n == self.number))
        after = _codes(tree, self.path)
        return _replace(self.path, {place: code for place, code in after.items() if code != before[place]})


def note_calls(path: Path, called: set[tuple[str, int]]) -> None:
    """Make every function of a file add itself to `called` when it is called."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            note = ast.parse(f"_called.add({(str(path), node.lineno)})").body[0]
            node.body.insert(1 if ast.get_docstring(node) else 0, ast.copy_location(note, node.body[0]))
    builtins._called = called  # type: ignore[attr-defined]
    _replace(path, _codes(tree, path))


def _codes(tree: ast.Module, path: Path) -> dict[tuple[str, int], CodeType]:
    """The code of every function by its name and line; those without a name are part of the function around them."""
    codes = _all_codes(compile(ast.fix_missing_locations(tree), str(path), "exec"))
    return {(code.co_qualname, code.co_firstlineno): code for code in codes if not code.co_name.startswith("<")}


def _replace(path: Path, codes: dict[tuple[str, int], CodeType]) -> int:
    """Give functions of this process other code; return how many."""
    changed, module = 0, ".".join(path.with_suffix("").parts)
    gc.unfreeze()  # what the tests have set aside is not listed
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename.endswith(str(path)):
            new = codes.get((found.__code__.co_qualname, found.__code__.co_firstlineno))
            if new is not None and new.co_freevars == found.__code__.co_freevars:
                found.__code__ = new
                changed += 1
        elif isinstance(found, _lru_cache_wrapper) and inspect.unwrap(found).__module__ == module:
            found.cache_clear()  # what was kept was made by the function before
    return changed


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    numbers = {id(node): number for number, node in enumerate(nodes)}
    found = [
        Mutant(path, function.lineno, node.lineno, change, numbers[id(node)], mutate)
        for function in nodes
        if isinstance(function, ast.FunctionDef)
        for node in _inside(function)
        for change, mutate in _changes(node)
    ]
    return sorted(found, key=lambda one: (one.line, one.number, one.change))


def _inside(function: ast.FunctionDef) -> list[ast.AST]:
    """What is run when the function is called; functions in it are visited for themselves."""
    pending, found = list(function.body), []
    while pending:
        node = pending.pop()
        if not isinstance(node, ast.FunctionDef) and not _is_logged(node):
            found.append(node)
            pending += ast.iter_child_nodes(node)
    return found


def _changes(node: ast.AST) -> list[tuple[str, Callable[[Any], None]]]:  # noqa: PLR0911 one line for each kind
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            new = COMPARED[type(op)]
            return [(f"{type(op).__name__} becomes {new.__name__}", lambda one: _set(one, ops=[new()]))]
        case ast.BoolOp(op=op):
            new = ast.Or if isinstance(op, ast.And) else ast.And
            return [(f"{type(op).__name__} becomes {new.__name__}", lambda one: _set(one, op=new()))]
        case ast.BinOp(op=op) if type(op) in COUNTED:
            new = COUNTED[type(op)]
            return [(f"{type(op).__name__} becomes {new.__name__}", lambda one: _set(one, op=new()))]
        case ast.UnaryOp(op=ast.Not()):
            return [("not is left out", lambda one: _set(one, op=ast.UAdd(), operand=_truth(one.operand)))]
        case ast.If() | ast.IfExp() if DATABASE not in ast.unparse(node.test):
            return [
                (f"{kind} is taken", lambda one, kind=kind: _set(one, test=ast.Constant(kind)))
                for kind in (True, False)
            ]
        case ast.Constant(value=bool() as value):
            return [(f"{value} becomes {not value}", lambda one: _set(one, value=not value))]
        case ast.Constant(value=int() as value):
            return [(f"{value} becomes {value + 1}", lambda one: _set(one, value=value + 1))]
        case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
            return [("returns None", lambda one: _set(one, value=ast.Constant(None)))]
        case ast.Expr(value=ast.Call() as call):
            return [(f"{ast.unparse(call.func)}() is left out", lambda one: _set(one, value=ast.Constant(None)))]
    return []


def _is_logged(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(QUIET)


def _truth(operand: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("bool", ast.Load()), [operand], [])


def _is_nothing(value: ast.expr) -> bool:
    """None, or what is as false as None; False itself becomes True."""
    return isinstance(value, ast.Constant) and not value.value


def _set(node: ast.AST, **fields: object) -> None:
    for name, value in fields.items():
        setattr(node, name, value)


def _all_codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for one in code.co_consts if isinstance(one, CodeType) for inner in _all_codes(one))]
