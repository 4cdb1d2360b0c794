"""Keep the zygote's pages shared: objects whose reference count is never written again (PEP 683).

A forked kernel that merely looks at an object writes its reference count, and the page it is on becomes a private copy.
Objects of the zygote live as long as the zygote anyway, so from CPython 3.12 on they are made immortal just before the
first fork: their count is a constant. Where the layout is not the one that PEP 683 describes, nothing is done.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import sysconfig
import types

IMMORTAL = 0xFFFFFFFF
"""``_Py_IMMORTAL_REFCNT`` of 64-bit builds of CPython 3.12 and 3.13: the low 32 bits of ``ob_refcnt``."""
_IMMORTAL_BIT = 0x80000000


def possible() -> bool:
    """True if this interpreter has the layout that `immortalize` writes, checked on objects that must show it."""
    known = sys.implementation.name == "cpython" and sys.version_info[:2] in ((3, 12), (3, 13))
    if not known or struct.calcsize("P") != 8 or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    probe = object()
    return _count(None).value & _IMMORTAL_BIT != 0 and _count(probe).value == sys.getrefcount(probe) - 1


def _count(found: object) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(id(found))


def immortalize() -> int:
    """Make every object that the collector can reach immortal; returns how many. Call it before `gc.freeze`."""
    if not possible():
        return 0
    gc.collect()
    pending = gc.get_objects()
    seen = {id(pending), id(sys._getframe())}
    done = 0
    while pending:
        found = pending.pop()
        if id(found) in seen or type(found) is types.FrameType:
            continue
        seen.add(id(found))
        count = _count(found)
        if not count.value & _IMMORTAL_BIT:
            count.value = IMMORTAL
            done += 1
        pending.extend(other for other in gc.get_referents(found) if id(other) not in seen)
    del seen, pending
    return done
