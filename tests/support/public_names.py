"""The names that users may rely on, with their signatures, as text: what `tests/project/public_names.txt` pins.

Read from the sources and not from what they make at run time: what a reader of the code sees is what is promised.
"""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef
_LONGEST_VALUE = 100
"""Characters of a constant that are shown; of a longer one only that there is one."""


def described(folder: Path) -> Iterator[str]:
    """Describe each module below a package's folder that says what of it is public, in their order."""
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        names = _public(tree, path)
        if names:
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
            yield f"# {module}"
            homes, calls = _imported(tree), _calls(path.with_name("calls.py"))
            for name in sorted(names):
                yield from [f"{name} = {homes[name]}.{name}"] if name in homes else _shown(tree, name, calls)
            yield ""


def _public(tree: ast.Module, path: Path) -> list[str]:
    """What ``__all__`` of a module lists; a package that computes it from a table is asked."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            if isinstance(node.value, ast.Call):
                return list(importlib.import_module(_dotted(path)).__all__)
            return list(ast.literal_eval(node.value))
    return []


def _dotted(path: Path) -> str:
    """The name by which the module of a file is imported."""
    parts = [] if path.stem == "__init__" else [path.stem]
    while (path := path.parent).joinpath("__init__.py").exists():
        parts.insert(0, path.name)
    return ".".join(parts)


def _imported(tree: ast.Module) -> dict[str, str]:
    """Where each name that a module imports, if only for types, comes from."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {one.asname or one.name: str(node.module) for node in imports for one in node.names}


def _calls(path: Path) -> dict[str, Definition]:
    """The tools as functions, of which the clients make their methods."""
    nodes = ast.parse(path.read_text()).body if path.exists() else []
    return {node.name: node for node in nodes if isinstance(node, Definition)}


def _shown(tree: ast.Module, name: str, calls: dict[str, Definition]) -> Iterator[str]:
    """The definition of one name of a module, without its body."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield from _class(node, calls)
        elif isinstance(node, Definition) and node.name == name:
            yield _function(node)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            yield f"{name}: {ast.unparse(node.annotation)}"
        elif isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            yield _value(node)


def _value(node: ast.AnnAssign | ast.Assign) -> str:
    text = ast.unparse(node)
    declared, equals, _ = text.partition(" = ")
    return text if len(text) <= _LONGEST_VALUE else f"{declared}{equals}..."


def _class(node: ast.ClassDef, calls: dict[str, Definition]) -> Iterator[str]:
    bases = ", ".join([ast.unparse(base) for base in node.bases] + [ast.unparse(word) for word in node.keywords])
    yield from (f"@{ast.unparse(decorator)}" for decorator in node.decorator_list)
    yield f"class {node.name}({bases})" if bases else f"class {node.name}"
    for member in node.body:
        if isinstance(member, Definition) and (member.name == "__init__" or not member.name.startswith("_")):
            yield from (f"    @{ast.unparse(decorator)}" for decorator in member.decorator_list)
            yield f"    {_function(member)}"
        elif isinstance(member, ast.AnnAssign | ast.Assign):
            target = ast.unparse(member.target if isinstance(member, ast.AnnAssign) else member.targets[0])
            made = member.value.args[0] if isinstance(member.value, ast.Call) and member.value.args else None
            if isinstance(made, ast.Attribute) and ast.unparse(made.value) == "calls":
                yield f"    {_method(calls[made.attr], node.name)}"
            elif not target.startswith("_"):
                yield f"    {_value(member)}"


def _method(call: Definition, client: str) -> str:
    """The method that a client has for a tool: what the call returns is what it reads the answer as."""
    shown = _function(call).replace(f"def {call.name}(", f"def {call.name}(self, ").replace("(self, )", "(self)")
    made, _, read = shown.partition(" -> ")
    word = "async " if client.startswith("Async") else ""
    return f"{word}{made} -> {read.removeprefix('Call[').removesuffix(']')}"


def _function(node: Definition) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{word} {node.name}({ast.unparse(node.args)}){returns}"


def undeclared(folder: Path) -> list[str]:
    """Name what of a package's public functions and attributes has no declared type.

    That is a parameter, what is returned, or an attribute that is neither a parameter nor a constant: of these, one
    type checker may infer another type than the next. A missing argument of a generic type is left to mypy.
    """
    found = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        wrong: list[ast.stmt] = []
        wrong += [node for node in ast.walk(tree) if isinstance(node, Definition) and not _is_complete(node)]
        wrong += [one for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for one in _attributes(node)]
        found += [f"{path.relative_to(folder.parent)}:{node.lineno}: {ast.unparse(node)[:80]}" for node in wrong]
    return found


def _is_complete(node: Definition) -> bool:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    more = [one for one in (node.args.vararg, node.args.kwarg) if one]
    return node.returns is not None and all(one.annotation or one.arg in {"self", "cls"} for one in [*given, *more])


def _attributes(node: ast.ClassDef) -> Iterator[ast.Assign]:
    """The attributes of a public class that are set without saying what they are."""
    made = [one for one in node.body if isinstance(one, Definition) and one.name == "__init__"]
    own = [one for one in node.body if isinstance(one, ast.Assign)]
    own += [one for body in made for one in ast.walk(body) if isinstance(one, ast.Assign)]
    for assigned in own if not node.name.startswith("_") else []:
        for target in map(ast.unparse, assigned.targets):
            name = target.removeprefix("self.")
            is_public = name.isidentifier() and not name.startswith("_") and (target != name or assigned in node.body)
            if is_public and not isinstance(assigned.value, ast.Constant | ast.Name):
                yield assigned
