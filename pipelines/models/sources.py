"""Static reading of the project's own Python files: the imports of each, and the tables that its functions declare.

The version of a table computed in Python thus depends on all the code that computes it. Results are cached in the
user's cache folder and used if all files are identical.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipelines.models.cache import digest_of, remembered
from pipelines.models.errors import CatalogError

PACKAGE = Path(__file__).resolve().parents[1]
_DECORATORS = ("python_model", "input_table")
_INPUT = re.compile(rb"^INPUT\b.*=", re.MULTILINE)
_INPUT_KINDS = ("EventInput", "SetInput")


@dataclass(frozen=True)
class DeclaredTable:
    """A table declared by a decorator of python_tables.py. `function`: the decorated function, as `module:name`."""

    name: str
    layer: str
    function: str
    path: str
    is_input: bool
    doc: str = ""
    columns: list[list[str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    @property
    def module(self) -> str:
        """The module of the decorated function."""
        return self.function.partition(":")[0]


@dataclass(frozen=True)
class DeclaredInput:
    """The literals in a module's `INPUT = EventInput(…)`, or SetInput; see pipelines/readers/inputs."""

    module: str
    kind: str
    suffixes: list[str]
    scope: str = ""


@dataclass(frozen=True)
class Code:
    """The declarations of a package. `digest`: a hash over all its files."""

    tables: list[DeclaredTable]
    inputs: list[DeclaredInput]
    digest: str


def declared_tables() -> dict[str, DeclaredTable]:
    """Return all tables that functions of the project declare, by name.

    Raise CatalogError if two have the same name.
    """
    tables: dict[str, DeclaredTable] = {}
    for table in read_code().tables:
        if table.name in tables:
            raise CatalogError(
                f"{table.path}: the table {table.name!r} is already declared in {tables[table.name].path}"
            )
        tables[table.name] = table
    return tables


def code_version(module: str) -> str:
    """Return a hash over a module that declares tables and over its direct and indirect imports in the project."""
    return code_versions()[module]


def code_digest() -> str:
    """Return a hash over all Python files of the project, unique to this state of the code."""
    return read_code().digest


@lru_cache
def read_code(package: Path = PACKAGE) -> Code:
    """Return the declarations in the files of a package. Raise CatalogError for a declaration that cannot be read."""
    names = module_names(package)
    texts = {path: path.read_bytes() for path in names}
    root = str(package.parent)
    digest = digest_of(part for path, text in texts.items() for part in (str(path).removeprefix(root), text))

    def declarations() -> dict[str, list[dict[str, Any]]]:
        declaring = [path for path, text in texts.items() if any(f"@{name}(".encode() in text for name in _DECORATORS)]
        tables = [table for path in declaring for table in _declarations(ast.parse(texts[path]), names[path], path)]
        relative = [{**asdict(table), "path": table.path.removeprefix(root)} for table in tables]
        inputs = [_input(ast.parse(text), names[path], path) for path, text in texts.items() if _INPUT.search(text)]
        return {"tables": relative, "inputs": [asdict(declared) for declared in inputs]}

    cached = remembered("sources", digest, declarations, package)
    tables = [DeclaredTable(**{**table, "path": root + table["path"]}) for table in cached["tables"]]
    return Code(tables, [DeclaredInput(**fields) for fields in cached["inputs"]], digest)


@lru_cache
def code_versions(package: Path = PACKAGE) -> dict[str, str]:
    """Return, by module that declares tables, a hash over it and over its direct and indirect imports."""
    code = read_code(package)
    # Cached separately from the declarations, because only lakes need versions, which require parsing every module.
    return remembered("versions", code.digest, lambda: _versions(package, code), package)


def _versions(package: Path, code: Code) -> dict[str, str]:
    paths = {name: path for path, name in module_names(package).items()}
    texts = {path: path.read_bytes() for path in paths.values()}

    @lru_cache
    def imports(module: str) -> set[str]:
        path = paths[module]
        return set(imported(ast.parse(texts[path]), module, path.name == "__init__.py", set(paths)))

    def version(module: str) -> str:
        modules, pending = set(), [module]
        while pending:
            if (name := pending.pop()) not in modules:
                modules.add(name)
                pending += imports(name)
        return digest_of(part for name in sorted(modules) for part in (name, texts[paths[name]]))[:16]

    return {module: version(module) for module in sorted({table.module for table in code.tables})}


def module_names(package: Path) -> dict[Path, str]:
    """Return the Python files of a package and their import names."""
    root, names = str(package), {}
    # Text is twice as fast as Path objects, and every command runs this.
    for folder, _, files in os.walk(root):
        parts = (package.name, *folder[len(root) :].split(os.sep)[1:])
        for file in files:
            if file.endswith(".py"):
                names[*parts, file] = ".".join(parts if file == "__init__.py" else (*parts, file[:-3]))
    return {package.parent.joinpath(*parts): names[parts] for parts in sorted(names)}


def imported(tree: ast.AST, name: str, is_package: bool, known: set[str]) -> Iterator[str]:
    """Yield the known modules that a module imports, including imports in functions and under TYPE_CHECKING."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            parents = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            inner = [f"{base}.{alias.name}" for alias in node.names]
            yield from (submodule for submodule in inner if submodule in known)
            if base in known and not all(submodule in known for submodule in inner):
                yield base


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements in it. `ast.walk` also visits expressions, and takes ten times as long."""
    pending = [tree]
    while pending:
        yield (node := pending.pop())
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += getattr(node, part, ())


def _declarations(tree: ast.Module, module: str, path: Path) -> Iterator[DeclaredTable]:
    constants = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _DECORATORS:
                try:
                    arguments = _said(call, constants)
                    yield DeclaredTable(**arguments, function=f"{module}:{node.name}", path=str(path))
                except (ValueError, TypeError, KeyError) as error:
                    raise CatalogError(
                        f"{path}:{call.lineno}: the declaration of a table cannot be read without running it ({error}); "
                        "give its name first, then literals by name"
                    ) from None


def _input(tree: ast.Module, module: str, path: Path) -> DeclaredInput:
    assigned = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    call: Any = next(node.value for node in assigned if ast.unparse(node).startswith(("INPUT =", "INPUT:")))
    arguments = {keyword.arg: keyword.value for keyword in getattr(call, "keywords", ())}
    try:
        kind = ast.unparse(call.func)
        if kind not in _INPUT_KINDS:
            raise ValueError(f"not a call of {' or '.join(_INPUT_KINDS)}")
        literals = {name: ast.literal_eval(arguments[name]) for name in ("suffixes", "scope") if name in arguments}
        return DeclaredInput(module, kind, list(literals.pop("suffixes")), **literals)
    except (AttributeError, ValueError, TypeError, KeyError) as error:
        raise CatalogError(
            f"{path}:{call.lineno}: the declaration of an input cannot be read without running it ({error}); "
            "write INPUT = EventInput(suffixes=(…), …) or SetInput(scope=…, suffixes=(…), …), these two as literals"
        ) from None


def _said(call: ast.Call, constants: dict[str, ast.expr]) -> dict[str, Any]:
    """Return the arguments of a decorator. Raise ValueError or KeyError for anything but literals."""
    (name,) = call.args
    arguments = {keyword.arg or "**": _value(keyword.value, constants) for keyword in call.keywords}
    is_input = isinstance(call.func, ast.Name) and call.func.id == "input_table"
    return {"name": _value(name, constants), "is_input": is_input, **arguments}


def _value(node: ast.expr, constants: dict[str, ast.expr]) -> Any:
    """Return the value of an expression of literals and names of the module's literals.

    Tuples become lists, as in JSON.
    """
    if isinstance(node, ast.Name):
        return _value(constants[node.id], constants)
    if isinstance(node, ast.List | ast.Tuple):
        return [value for part in node.elts for value in _values(part, constants)]
    return ast.literal_eval(node)


def _values(part: ast.expr, constants: dict[str, ast.expr]) -> list[Any]:
    return _value(part.value, constants) if isinstance(part, ast.Starred) else [_value(part, constants)]
