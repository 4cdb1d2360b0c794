"""``exec``, ``eval``, ``compile``, ``globals`` and ``locals`` for policies that do not block them."""

from __future__ import annotations

import ast
import reprlib
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import CodeType, FrameType
from typing import Any, Final

from rlm_sandbox.language_wall.audit_hook import compiling
from rlm_sandbox.language_wall.registry import cell_frame
from rlm_sandbox.namespaces import Namespace

_HIDDEN: Final = frozenset({"__builtins__", "__loader__", "__spec__"})
_FLAGS: Final = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class NamespaceView(MutableMapping[str, Any]):
    """The result of ``globals()``: the variables, without the interpreter's plumbing."""

    __slots__ = ("_namespace",)

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def __getitem__(self, key: str) -> Any:
        return self._namespace[_visible(key)]

    def __setitem__(self, key: str, value: Any) -> None:
        self._namespace[_visible(key)] = value

    def __delitem__(self, key: str) -> None:
        del self._namespace[_visible(key)]

    def __iter__(self) -> Iterator[str]:
        return iter([key for key in self._namespace if key not in _HIDDEN])

    def __len__(self) -> int:
        return sum(key not in _HIDDEN for key in self._namespace)

    def copy(self) -> Namespace:
        """Return the variables as a separate dict."""
        return {key: self._namespace[key] for key in self}

    @reprlib.recursive_repr("{...}")
    def __repr__(self) -> str:
        return repr(self.copy())


def _visible(key: Any) -> str:
    """Return an exact str that is not hidden: a subclass could equal a hidden name without looking like it."""
    if type(key) is not str or key in _HIDDEN:
        raise KeyError(key)
    return key


class SourceCode:
    """The result of ``compile``: the text, which is checked and compiled when it is run."""

    __slots__ = ("_filename", "_mode", "_source")

    def __init__(self, source: str, filename: str, mode: str) -> None:
        self._source, self._filename, self._mode = source, filename, mode


class Evaluation:
    """The builtins that turn text into running code, all through the wall's compiler."""

    def __init__(self, compiler: Callable[[str, str, str], CodeType], builtins: Namespace) -> None:
        self._compiler = compiler
        self._builtins = builtins

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the builtins by name."""

        # Frames are counted from here: each function's caller is the user's frame.
        def exec(source: Any, globals: Any = None, locals: Any = None, /) -> None:  # noqa: A001
            self._run(source, "exec", globals, locals, sys._getframe(1))

        def eval(source: Any, globals: Any = None, locals: Any = None, /) -> Any:  # noqa: A001
            return self._run(source, "eval", globals, locals, sys._getframe(1))

        def globals() -> NamespaceView:  # noqa: A001
            frame = cell_frame(sys._getframe(1))
            return NamespaceView({} if frame is None else frame.f_globals)

        def locals() -> Any:  # noqa: A001
            frame = cell_frame(sys._getframe(1))
            if frame is None:
                return {}
            if frame.f_locals is frame.f_globals:
                return NamespaceView(frame.f_globals)
            return {key: value for key, value in frame.f_locals.items() if key.isidentifier() and key not in _HIDDEN}

        return {"exec": exec, "eval": eval, "compile": self.compile, "globals": globals, "locals": locals}

    def compile(
        self,
        source: Any,
        filename: Any = "<string>",
        mode: str = "exec",
        flags: int = 0,
        dont_inherit: bool = False,
        optimize: int = -1,
    ) -> Any:
        """Act as ``compile`` of text: return a tree or an object that ``exec`` and ``eval`` take."""
        if flags & ~_FLAGS or mode not in ("exec", "eval", "single"):
            raise ValueError("compile() takes the modes exec, eval and single, and only the flags for a syntax tree")
        text = _source_text(source)
        if flags & ast.PyCF_ONLY_AST:
            return _parse(text, str(filename), mode, flags)
        return SourceCode(text, str(filename), mode)

    def evaluate(self, text: str, names: Mapping[str, Any] | None = None) -> Any:
        """Evaluate the text of an annotation, with the builtins only, or of a formula, with these names too."""
        code = self._compiler(text.strip(), "<text>", "eval")
        return eval(code, {"__builtins__": self._builtins, "__name__": "__main__"}, names)

    def _run(self, source: Any, mode: str, globals: Any, locals: Any, frame: FrameType) -> Any:
        if type(source) is SourceCode:
            source, mode = source._source, source._mode
        text = _source_text(source)
        code = self._compiler(text.strip() if mode == "eval" else text, "<string>", mode)
        if globals is None:
            if (cell := cell_frame(frame)) is None:
                return self._run_in(code, {}, locals)  # a library has called this
            return eval(code, cell.f_globals, _locals_of(cell) if locals is None else _namespace_of(locals))
        if type(globals) is NamespaceView:
            return eval(code, globals._namespace, _namespace_of(globals if locals is None else locals))
        return self._run_in(code, globals, locals)

    def _run_in(self, code: CodeType, globals: Any, locals: Any) -> Any:
        """Run in a private dict and copy back: the caller's dict never holds the builtins."""
        if type(globals) is not dict:
            raise TypeError("globals must be a real dict")
        private = {**without_plumbing(globals), "__builtins__": self._builtins}
        try:
            return eval(code, private, private if locals is None or locals is globals else _namespace_of(locals))
        finally:
            globals.update(without_plumbing(private))


@compiling
def _parse(text: str, filename: str, mode: str, flags: int) -> ast.AST:
    tree: ast.AST = compile(text, filename, mode, flags, dont_inherit=True)
    return tree


def _locals_of(frame: FrameType) -> Any:
    """Return the module's namespace, or a copy of a function's variables.

    A copy, because since CPython 3.13 ``f_locals`` writes through: text could bind a parameter after its check at the
    function's entry.
    """
    return frame.f_globals if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def without_plumbing(namespace: Mapping[str, Any]) -> Namespace:
    """Return a copy of the variables, without the builtins that compiled code finds among them."""
    return {key: value for key, value in namespace.items() if key not in _HIDDEN}


def _namespace_of(mapping: Any) -> Any:
    return mapping._namespace if type(mapping) is NamespaceView else mapping


def _source_text(source: Any) -> str:
    if isinstance(source, str):
        return str.__str__(source)
    if isinstance(source, bytes | bytearray):
        return bytes(source).decode()
    raise TypeError("exec(), eval() and compile() take source text in this session")
