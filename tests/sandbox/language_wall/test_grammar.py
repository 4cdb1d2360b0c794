# ruff: noqa: E501 - cells are shown as they are run
"""Every node type of every supported Python is admitted by review or refused; a new one is refused."""

import ast
import sys

import pytest

from rlm_sandbox.errors import PolicyViolation
from rlm_sandbox.language_wall.transform.core import _LEAVES
from rlm_sandbox.language_wall.transform.transformer import GuardTransformer

REVIEWED = frozenset(
    """
    AnnAssign Assert Assign AsyncFor AsyncFunctionDef AsyncWith Attribute AugAssign Await BinOp BoolOp Break Call
    ClassDef Compare Constant Continue Delete Dict DictComp ExceptHandler Expr Expression For FormattedValue FunctionDef
    GeneratorExp Global If IfExp Import ImportFrom Interactive JoinedStr Lambda List ListComp Match MatchAs MatchClass
    MatchMapping MatchOr MatchSequence MatchSingleton MatchStar MatchValue Module Name NamedExpr Nonlocal ParamSpec Pass
    Raise Return Set SetComp Slice Starred Subscript Try TryStar Tuple TypeAlias TypeVar TypeVarTuple UnaryOp While With
    Yield YieldFrom alias arg arguments comprehension keyword match_case withitem
    """.split()
)
OPERATORS = frozenset(
    """
    Add And BitAnd BitOr BitXor Del Div Eq FloorDiv Gt GtE In Invert Is IsNot LShift Load Lt LtE MatMult Mod Mult Not
    NotEq NotIn Or Pow RShift Store Sub UAdd USub
    """.split()
)
# Not produced by the parser in the modes that cells use, or deprecated aliases.
UNUSED = frozenset(
    "FunctionType Suite AugLoad AugStore Param Index ExtSlice Num Str Bytes NameConstant Ellipsis TypeIgnore slice".split()
)
SINCE_312 = frozenset({"TypeAlias", "TypeVar", "ParamSpec", "TypeVarTuple"})
ABSTRACT = frozenset(
    "AST mod stmt expr expr_context boolop operator unaryop cmpop excepthandler pattern type_ignore type_param".split()
)


def test_the_grammar_of_this_python_is_the_reviewed_one():
    """A node type that a newer Python adds fails here until somebody has reviewed it."""
    known = {
        name
        for name, value in vars(ast).items()
        if isinstance(value, type) and issubclass(value, ast.AST) and not name.startswith("_")
    }
    expected = REVIEWED | OPERATORS
    if sys.version_info < (3, 12):
        expected -= SINCE_312
    assert known - UNUSED - ABSTRACT == expected


def test_every_reviewed_node_has_a_rule_and_no_other_has():
    """The rules and the list agree."""
    leaves = {leaf.__name__ for leaf in _LEAVES if issubclass(leaf, ast.AST)}
    assert leaves == OPERATORS | {"Constant"}
    for name in REVIEWED:
        assert hasattr(GuardTransformer, f"visit_{name}"), name
    assert not hasattr(GuardTransformer, "visit_FunctionType")


def test_an_unknown_node_is_refused(session):
    """Deny by default, for statements, expressions and operators alike."""

    class NewStatement(ast.stmt):
        _fields = ()

    class NewExpression(ast.expr):
        _fields = ()

    class NewOperator(ast.operator):
        _fields = ()

    place = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 1}
    one = ast.Constant(1, **place)
    for body in (
        NewStatement(**place),
        ast.Expr(NewExpression(**place), **place),
        ast.Expr(ast.BinOp(one, NewOperator(), one, **place), **place),
    ):
        with pytest.raises(PolicyViolation, match=r"New\w+ is syntax that this version of the sandbox does not know"):
            session.wall.compile(ast.Module([body], []), "<cell>", "exec")
