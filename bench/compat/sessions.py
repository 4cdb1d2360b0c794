"""Runs cases in real sessions, a session for each: with a daemon, a kernel and both walls, as agents run their code."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence

from cases import Case, Outcome, Step

from rlm_client import Client
from rlm_client.results import Cell

SEEDED = "import random\nrandom.seed(0)"
NUMPY_SEEDED = "import numpy\nnumpy.random.seed(0)\ndel numpy"
_PLACE = re.compile(r"  (?:Cell \d+, line \d+|.*, line \d+, in |\.\.\. )")
_NAME = re.compile(r"([A-Za-z_][\w.]*)(?::|$)")
_REFUSED = re.compile(r"^(\w+Refused)(?::|$)", re.MULTILINE)
_RULES = {
    "ImportRefused": "import",
    "PathRefused": "files",
    "AuditRefused": "system",
    "AttributeRefused": "interpreter",
    "CallRefused": "builtin",
    "CellRefused": "cell",
}
_numbers = itertools.count()


def outcomes(cases: Sequence[Case], policy: str, *, with_numpy: bool) -> Iterator[Outcome]:
    """Run the cases one after the other, each in a session of its own, which ends with it."""
    for case in cases:
        with Client(f"compat-{next(_numbers)}", policy=policy) as client:
            client.eval_code(f"{SEEDED}\n{NUMPY_SEEDED}" if with_numpy else SEEDED)
            steps = [_step(client.eval_code(shown(cell) if case.mode == "single" else cell)) for cell in case.cells]
            client.end_session()
        yield Outcome(case.name, steps)


class _AtThePrompt(ast.NodeTransformer):
    """Prints the values of expressions, those in loops included, as the prompt does."""

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        """Keep the value in ``_``, too."""
        kept = ast.Assign([ast.Name("_", ast.Store())], node.value)
        return [kept, *ast.parse("if _ is not None:\n    print(repr(_))").body]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Show nothing of what functions and classes compute."""
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815


def shown(source: str) -> str:
    """Return an example that shows its values as the prompt does; a session would show them as a notebook does."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return source
    return ast.unparse(ast.fix_missing_locations(_AtThePrompt().visit(tree)))


def _step(cell: Cell) -> Step:
    step = Step(output=cell.stdout[:100_000])
    if cell.error is not None:
        step.detail = error_line(cell.error)
        named = _NAME.match(step.detail)
        step.error = named[1].rpartition(".")[2] if named else step.detail
        refused = _REFUSED.findall(cell.error)
        step.refusal = _RULES.get(refused[-1], "cell") if refused else ""
    return step


def error_line(text: str) -> str:
    """Return the line of a traceback that names the error: the first after the last place that is not indented."""
    lines = text.splitlines()
    last = max((at for at, line in enumerate(lines) if _PLACE.match(line)), default=-1)
    return next((line for line in lines[last + 1 :] if line and not line[0].isspace()), lines[-1])
