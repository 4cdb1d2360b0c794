"""IPython's way from a value to its representations, shortened for values that have only one."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from ipykernel.displayhook import ZMQShellDisplayHook
from IPython.core.formatters import DisplayFormatter

_LAST = ("_", "__", "___")
"""Names by which code uses the last three values."""
MOST_COLUMNS = 20
"""How many columns pandas shows in a notebook by default."""
MOST_CHARS = 1_000_000
"""Characters that a front end gets of the text of one value: a page of JupyterLab stands still over many more."""
_PLAIN = frozenset((int, bool, str, bytes, complex))


class QuickFormatter(DisplayFormatter):
    """Skips IPython's eleven formatters for types that have no representation but their ``repr``.

    Under the language wall nothing can register a formatter for a built-in type; without it all are asked.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        html = self.formatters["text/html"]
        for module in ("pandas", "pandas.core.frame"):  # as pandas calls its module since 3.0, and before
            html.for_type_by_name(module, "DataFrame", _table)

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return representations by MIME type, and their metadata."""
        shell, length = self.parent, 0
        for_people = not shell.kernel.session.bare  # an agent's answer is cut where it is made
        if type(obj) in _PLAIN and shell.wall is not None and include is exclude is None:
            if for_people and type(obj) in (str, bytes) and len(obj) > MOST_CHARS:
                length, obj = len(obj), obj[:MOST_CHARS]  # the text of all of it takes several times its memory
            try:
                formats, metadata = {"text/plain": repr(obj)}, {}
            except ValueError:  # an integer with more digits than Python converts: IPython reports it in its own way
                formats, metadata = super().format(obj, include, exclude)
        else:
            formats, metadata = super().format(obj, include, exclude)
        text = formats.get("text/plain")
        if for_people and type(text) is str and len(text) > MOST_CHARS:
            formats["text/plain"] = text[:MOST_CHARS] + _cut(length or len(text))
        return formats, metadata


def short_prompt(prompt: str) -> str:
    """Return the prompt of `input`; raises ValueError if it is too long to be shown."""
    if len(prompt) > MOST_CHARS:
        length = f"{len(prompt):,} characters, and may have at most {MOST_CHARS:,}"
        raise ValueError(f"the prompt of input() has {length}: print the text first, and ask with a short prompt")
    return prompt


def _cut(length: int) -> str:
    return f"\n[cut: the first {MOST_CHARS:,} of {length:,} characters; slice the value, or print a part of it]"


def _table(frame: Any) -> Any:
    """Return a DataFrame as HTML, with as many columns as in other notebooks."""
    # In a process without IPython's own application, pandas formats for a terminal: text is cut to the width of a line,
    # which an agent reads well, but a table has all columns, and no front end can show thousands.
    pandas = sys.modules.get("pandas")
    if pandas is None or pandas.get_option("display.max_columns") != 0:
        return frame._repr_html_()
    with pandas.option_context("display.max_columns", MOST_COLUMNS):
        return frame._repr_html_()


class QuickDisplayHook(ZMQShellDisplayHook):
    """Shows the value of a cell, and keeps it as ``_``, ``_1`` and ``Out[1]``."""

    # Traits of IPython's that nobody observes.
    exec_result: Any = None
    session: Any = None
    pub_socket: Any = None
    showing = False
    """Whether the value of a cell is shown at this moment."""
    _: Any
    __: Any
    ___: Any

    def __call__(self, result: Any = None) -> None:
        """Show the value of a cell; under the language wall without IPython's log for exports."""
        self.showing = True
        shell = self.shell
        try:
            if shell.wall is None:
                super().__call__(result)
            elif result is not None and not self.quiet():
                data, metadata = shell.display_formatter.format(result)
                self.update_user_ns(result)
                if self.exec_result is not None:
                    self.exec_result.result = result
                if data:
                    self.send(data, metadata)
        finally:
            self.showing = False

    def send(self, data: dict[str, object], metadata: dict[str, object]) -> None:
        """Send the representations of a value, after what was printed before."""
        sys.stdout.flush()
        sys.stderr.flush()
        content = {"data": data, "metadata": metadata, "execution_count": self.shell.execution_count - 1}
        if self.session.bare:
            self.session.show("execute_result", content, {})
        else:
            self.session.send(self.pub_socket, "execute_result", content, parent=self.parent_header, ident=self.topic)

    def update_user_ns(self, result: Any) -> None:
        """Keep a value as IPython does, unless code has assigned ``_``, ``__`` or ``___`` itself."""
        shell = self.shell
        names, hidden = shell.user_ns, shell.user_ns_hidden
        results = names.get("_oh")
        if result is results:
            return
        ours = "_" not in vars(builtins)
        for name in _LAST:
            if name in names and names[name] is not hidden.get(name, getattr(self, name)):
                ours = False
        self.___, self.__, self._ = self.__, self._, result
        number = shell.execution_count - 1
        values = {f"_{number}": result}
        if ours:
            values.update(_=result, __=self.__, ___=self.___)
        names.update(values)
        hidden.update(values)
        if type(results) is dict:
            results[number] = result

    def forget(self) -> None:
        """Release the kept values, which may be what fills the memory."""
        names, hidden = self.shell.user_ns, self.shell.user_ns_hidden
        for name in [name for name in hidden if name in _LAST or (name[0] == "_" and name[1:].isdecimal())]:
            kept = hidden.pop(name)
            if names.get(name) is kept:
                del names[name]
        self._ = self.__ = self.___ = ""
        if type(results := names.get("_oh")) is dict:
            results.clear()

    def quiet(self) -> bool:
        """Return whether the cell ends in a semicolon. It is split into tokens only if it has one."""
        cells = self.shell.history_manager.input_hist_parsed
        return bool(cells) and ";" in cells[-1] and bool(super().quiet())
