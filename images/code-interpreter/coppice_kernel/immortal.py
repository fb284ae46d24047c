"""Running a cell does not write to what the kernel itself is made of.

Each use of a Python object counts a reference, so a cell that does nothing writes to every page that holds a function, a
class or a module of ipykernel, IPython, asyncio or zmq: twice as many pages as it changes.  Each of them is compared at the
next checkpoint, and copied in every fork and every thawed kernel.  Objects that never end need no count: CPython calls them
immortal (PEP 683, 3.12 and newer) and counts no references to them.

So what a kernel has loaded when it starts, before it has run anything of the user's, is made immortal: functions and their
code, classes, modules, their dictionaries and descriptors.  All of it would stay until the end anyway.  What is loaded later
is left alone.  Things that C code may be about to fill (tuples but for the constants of code, strings, bytes, lists) are left
alone as well: it tells by the count that they are still its own.

Afterwards all objects there are leave the sight of the garbage collector (gc.freeze), which would write to each when it looks
for cycles.  gc.get_objects() and gc.get_referrers() do not show them any more; sys.getrefcount() of an immortal one is a
large constant.
"""

import gc
import os
import sys
import types
from array import array

KINDS = frozenset(
    {
        dict,
        property,
        classmethod,
        staticmethod,
        types.BuiltinFunctionType,
        types.CellType,
        types.ClassMethodDescriptorType,
        types.FunctionType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodDescriptorType,
        types.MethodType,
        types.ModuleType,
        types.WrapperDescriptorType,
    }
)
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by `class`; the others are immortal, or lie in a library's data
PLACES = 1024  # of one preadv(2): IOV_MAX


def _is_known():
    """A count of 64 bits at the beginning of each object, of which CPython looks at the lower half: 0xffffffff is immortal."""
    return (
        sys.implementation.name == "cpython"
        and sys.version_info >= (3, 12)
        and sys.byteorder == "little"
        and object.__basicsize__ == 16  # not so in builds that trace references, or without a GIL
    )


def _make(objects):
    """Writes the counts.  One call of preadv(2) writes to 1,024 places; PyDLL does not give the GIL away meanwhile."""
    import ctypes

    preadv = ctypes.PyDLL(None, use_errno=True).preadv
    preadv.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long)
    preadv.restype = ctypes.c_ssize_t
    count = len(objects)
    places = array("Q", [4]) * (2 * count)  # struct iovec: address, length
    places[::2] = array("Q", map(id, objects))
    begin = places.buffer_info()[0]
    fd = os.memfd_create("immortal")
    try:
        os.write(fd, b"\xff" * (4 * PLACES))
        for at in range(0, count, PLACES):
            n = min(PLACES, count - at)
            if preadv(fd, begin + 16 * at, n, 0) != 4 * n:
                raise OSError(ctypes.get_errno(), "preadv")
    finally:
        os.close(fd)


def _works():
    """Is an object without a count one, in this interpreter?"""

    def probe():
        pass

    _make([probe])
    before = sys.getrefcount(probe)
    held = [probe] * 3
    return sys.getrefcount(probe) == before > len(held) + 1000


def _lasting():
    """What stays until the end."""
    function, code = types.FunctionType, types.CodeType
    kinds, flags = KINDS, type.__dict__["__flags__"].__get__
    # Nothing here may call what an object says of itself: isinstance() asks a proxy for its class.
    picked = [o for o in gc.get_objects() if type(o) in kinds or (issubclass(type(o), type) and flags(o) & HEAP_TYPE)]
    codes = [o.__code__ for o in picked if type(o) is function]
    while codes:
        constants = [c.co_consts for c in codes]
        picked += codes
        picked += constants
        codes = [c for each in constants for c in each if type(c) is code]
    return picked


def install_immortals(shell):
    if _is_known() and _works():
        _make(_lasting())
        gc.freeze()
