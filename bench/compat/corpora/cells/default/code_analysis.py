# %%
import ast
SRC = '''
import os, json as j
from collections import Counter

LIMIT = 10

def load(path, *, strict=False):
    """Load a file."""
    with open(path) as f:
        for line in f:
            if strict and not line.strip():
                raise ValueError("blank")
            yield line

class Store:
    def __init__(self): self.items = []
    def add(self, x):
        if x in self.items or (x and len(self.items) > LIMIT):
            return False
        self.items.append(x)
        return True
'''
tree = ast.parse(SRC)
for node in ast.walk(tree):
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        print(type(node).__name__, node.name, node.lineno, ast.get_docstring(node))
# %%
class Complexity(ast.NodeVisitor):
    def __init__(self):
        self.stack, self.result = [], {}
    def visit_ClassDef(self, node):
        self.stack.append(node.name)
        self.generic_visit(node)
        self.stack.pop()
    def visit_FunctionDef(self, node):
        score = 1
        for n in ast.walk(node):
            if isinstance(n, (ast.If, ast.For, ast.While, ast.With, ast.ExceptHandler)):
                score += 1
            elif isinstance(n, ast.BoolOp):
                score += len(n.values) - 1
        self.result[".".join([*self.stack, node.name])] = score
        self.generic_visit(node)
v = Complexity()
v.visit(tree)
v.result
# %%
imports = sorted(
    alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for alias in n.names
)
used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
print("unused imports:", [i for i in imports if i not in used])
class Rename(ast.NodeTransformer):
    def visit_Name(self, node):
        return ast.copy_location(ast.Name("MAXIMUM", node.ctx), node) if node.id == "LIMIT" else node
print(ast.unparse(Rename().visit(ast.parse("LIMIT = 10\ny = x if x > LIMIT else f'{LIMIT!r:>4}'"))))
# %%
print(ast.literal_eval("{'a': [1, -2.5, None], (1, 2): b'x'}"))
for bad in ("__import__('os')", "1 +", "[x for x in y]"):
    try:
        ast.literal_eval(bad)
    except (ValueError, SyntaxError) as e:
        print(type(e).__name__)
import tokenize, io, keyword
toks = tokenize.generate_tokens(io.StringIO("for i in range(3): pass  # go").readline)
print([(tokenize.tok_name[t.type], t.string) for t in toks if t.string.strip()])
keyword.iskeyword("match"), keyword.softkwlist
