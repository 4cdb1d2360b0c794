"""What a session could do with an original builtin, or a raw metaclass, that it has come by.

Holding one is harmless as long as none of these attacks gets anything: each calls ``it`` and puts what it got into
``loot``. Some call it themselves; the others let a library do it, in whose frames no builtin of the session stands.
"""

from __future__ import annotations

from itertools import product
from typing import Final

_CALLS: Final = (
    "it(function, '__globals__')",
    "it(generator, 'gi_frame')",
    "it(function)['__globals__']",
    "it(json)['codecs']",
    "it(json, 'codecs')",
    "it()",
    "it('(lambda: 0).__globals__')",
    "it('result.append((lambda: 0).__globals__)', {'result': result}) or result[0]",
    "it('1', 'x', 'eval')",
    "it('subprocess')",
    "it('<outside>/secret.txt').read()",
    "copy.copy(it('A', (), {'__reduce_ex__': reduce})())",
    "(it(collections.Counter, 'poison', 'ESCAPED'), collections.Counter.poison)[1]",
)
_CALLERS: Final = (
    "",
    "it = functools.partial(it)",
    "it = lambda *given, it=it: list(map(it, *[[part] for part in given]))[0]",
    "it = lambda *given, it=it: pool.submit(it, *given).result()",
    "it = lambda *given, it=it: functools.reduce(it, given)",
    "it = lambda *given, it=it: collections.ChainMap.new_child(Lender(it, given[1:]), given[0])",
)
_START: Final = """
import asyncio, collections, copy, functools, json
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
result = []
function = json.loads
generator = (1 for _ in result)
def reduce(self, protocol): return (str, ('ESCAPED',))
class Lender:
    def __init__(self, *lent): given.append(lent)
    def __getattribute__(self, name): return given[-1][name != '__class__']
given = []
"""
_WHOLE: Final = (
    """
class Meta(it):
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
loot = 'ESCAPED'
""",
    """
class Meta(it):
    def __getattribute__(cls, name): return 'ESCAPED'
class A(metaclass=Meta): pass
loot = A.anything
""",
    """
import asyncio, json
loot = await asyncio.to_thread(it, json.loads, '__globals__')
""",
    """
import asyncio, json
got = []
task = asyncio.ensure_future(asyncio.sleep(0))
task.add_done_callback(lambda _: got.append(it(json.loads, '__globals__')))
await asyncio.sleep(0.01)
loot = got[0]
""",
)
ATTACKS: Final = (
    *(f"{_START}{caller}\nloot = {call}" for caller, call in product(_CALLERS, _CALLS)),
    *_WHOLE,
)
