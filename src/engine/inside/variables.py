"""Tells what variables a kernel has.  Runs in a copy of it (engine/diff.c) with names of its own, and may leave traces there.

In: request = {"seconds"}.  Out: one display of MIME type application/vnd.coppice.inside+json,
{"variables": [{name, type, shape?, size?, digest?, note?, preview?}], "modules", "hidden", "truncated"}.

A digest is the same in every process for values that are equal: sets and dicts are summed without order, arrays and tables by
their buffers, objects by what pickle would ask of them (but functions and classes of cells by their code), never by an address
or a repr.  What cannot be had within the budget is left out, and note says why.
"""

import hashlib
import sys
import time
import types

VARIABLES_MAX = 2000
STEPS_MAX = 500_000  # objects looked at for one variable
BYTES_MAX = 1 << 30  # hashed for one variable
DEPTH_MAX = 200
SECONDS_EACH = 5.0
PREVIEW_MAX = 60
SIZE_SAMPLE = 1000
ATOMS = (int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented))
OWN_NAMES = {"In", "Out", "exit", "quit", "get_ipython"}


class NoDigest(Exception):
    pass


def type_name(kind):
    module = getattr(kind, "__module__", None)
    name = getattr(kind, "__qualname__", None) or "?"
    return (name if module in ("builtins", "__main__", None) else f"{module}.{name}")[:200]


def well_formed(text):
    """Lone surrogates would not pass as JSON."""
    return text.encode("utf-8", "replace").decode()


class Digester:
    def __init__(self, end):
        self.end = min(end, time.monotonic() + SECONDS_EACH)
        self.steps = self.bytes = 0
        self.known = {}  # id -> (object, digest): shared parts are summed once, and stay alive so that no id comes twice
        self.path = {}  # id -> depth, of what is being summed: cycles

    def sum(self, *parts):
        h = hashlib.sha256()
        for part in parts:
            if isinstance(part, str):
                part = part.encode("utf-8", "surrogatepass")
            self.bytes += len(part) if isinstance(part, bytes) else part.nbytes
            if self.bytes > BYTES_MAX:
                raise NoDigest("too large")
            h.update(len(part).to_bytes(8, "little") if isinstance(part, bytes) else part.nbytes.to_bytes(8, "little"))
            h.update(part)
        return h.digest()

    def of(self, value):
        self.steps += 1
        if self.steps > STEPS_MAX or (self.steps % 256 == 0 and time.monotonic() > self.end):
            raise NoDigest("too large")
        kind = type(value)
        if kind in ATOMS:
            return self.sum(kind.__name__, value if kind is bytes else repr(value))
        key = id(value)
        if key in self.known:
            return self.known[key][1]
        if key in self.path:
            return self.sum("cycle", str(self.path[key]))
        if len(self.path) >= DEPTH_MAX:
            raise NoDigest("nested too deeply")
        self.path[key] = len(self.path)
        try:
            digest = self.any(value, kind)
        finally:
            del self.path[key]
        self.known[key] = (value, digest)
        return digest

    def any(self, value, kind):
        if kind is list or kind is tuple:
            return self.sequence(value, kind.__name__)
        if kind is set or kind is frozenset:
            return self.sum(kind.__name__, *sorted(self.of(item) for item in value))
        if kind is dict:
            return self.sum("dict", *sorted(self.of(k) + self.of(v) for k, v in value.items()))
        if kind is bytearray:
            return self.sum("bytearray", bytes(value))
        root = (getattr(kind, "__module__", None) or "").partition(".")[0]
        if root == "numpy":
            done = self.numpy(value)
            if done is not None:
                return done
        if root == "pandas":
            done = self.pandas(value, kind)
            if done is not None:
                return done
        return self.object(value, kind)

    def sequence(self, value, name):
        # The commonest large ones, of plain values: repr tells them exactly and is written in C.
        if len(value) > 100 and set(map(type, value)) <= {int, float, str, bool, type(None)}:
            return self.sum(name, "plain", repr(tuple(value)))
        return self.sum(name, *(self.of(item) for item in value))

    def numpy(self, value):
        import numpy

        if isinstance(value, numpy.generic):
            value = numpy.asarray(value)
        if not isinstance(value, numpy.ndarray):
            return None
        head = (type_name(type(value)), str(value.dtype.descr if value.dtype.names else value.dtype.str), str(value.shape))
        if value.dtype.hasobject:
            return self.sum(*head, self.sequence(value.ravel().tolist(), "list"))
        if value.nbytes + self.bytes > BYTES_MAX:
            raise NoDigest("too large")
        if type(value) is not numpy.ndarray and hasattr(value, "mask"):
            return self.sum(*head, self.of(numpy.asarray(value.mask)), self.of(numpy.asarray(value.filled())))
        flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
        return self.sum(*head, memoryview(flat))

    def pandas(self, value, kind):
        import pandas

        if isinstance(value, pandas.DataFrame):
            parts = [self.of(list(value.columns)), *(self.series(value.iloc[:, i]) for i in range(value.shape[1]))]
            return self.sum(type_name(kind), str(value.shape), *parts, self.of(value.index))
        if isinstance(value, pandas.Series):
            return self.sum(type_name(kind), self.of(value.name), self.series(value), self.of(value.index))
        if isinstance(value, pandas.Index):
            return self.sum(type_name(kind), self.of(list(value.names)), self.series(value))
        return None

    def series(self, value):
        """The values of one column, or of an index."""
        import pandas

        head = (str(value.dtype), str(len(value)))
        try:
            if value.dtype != object and not isinstance(value, pandas.MultiIndex):
                hashes = pandas.util.hash_array(value.array if hasattr(value, "array") else value, categorize=True)
                return self.sum(*head, memoryview(hashes))
        except Exception:
            pass
        return self.sum(*head, self.sequence(value.tolist(), "list"))

    def code(self, code):
        constants = [self.code(c) if isinstance(c, types.CodeType) else self.of(c) for c in code.co_consts]
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return self.sum("code", code.co_code, *constants, self.of(names), self.of(shape))

    def function(self, value):
        cells = []
        for cell in value.__closure__ or ():
            try:
                cells.append(self.of(cell.cell_contents))
            except ValueError:
                cells.append(self.sum("empty"))
        return self.sum("function", value.__name__, self.code(value.__code__), self.of(value.__defaults__),
                        self.of(value.__kwdefaults__), *cells)

    def object(self, value, kind):
        if isinstance(value, types.FunctionType):
            if value.__module__ == "__main__":
                return self.function(value)
            return self.sum("name", str(value.__module__), value.__qualname__)
        if isinstance(value, (types.BuiltinFunctionType, types.ModuleType)) and isinstance(
                getattr(value, "__self__", None), (types.ModuleType, type(None))):
            return self.sum("name", str(getattr(value, "__module__", None)), value.__name__)
        if isinstance(value, types.MethodType):
            return self.sum("method", self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, (property, staticmethod, classmethod)):
            inner = (value.fget, value.fset, value.fdel) if isinstance(value, property) else (value.__func__,)
            return self.sum(kind.__name__, *(self.of(f) for f in inner))
        if isinstance(value, type):
            return self.class_(value)
        if isinstance(value, (types.GeneratorType, types.CoroutineType, types.FrameType, types.TracebackType)):
            raise NoDigest(f"{type_name(kind)} has no value to compare")
        return self.reduced(value, kind)

    def class_(self, value):
        if value.__module__ != "__main__":
            return self.sum("name", str(value.__module__), value.__qualname__)
        skip = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__"}
        own = {k: v for k, v in vars(value).items() if k not in skip and not isinstance(v, types.MemberDescriptorType)
               and not isinstance(v, types.GetSetDescriptorType)}
        return self.sum("class", value.__qualname__, self.of(list(value.__bases__)), self.of(own))

    def reduced(self, value, kind):
        try:
            state = value.__reduce_ex__(4)
        except NoDigest:
            raise
        except Exception as error:
            raise NoDigest(f"cannot be pickled: {str(error)[:100]}") from None
        if isinstance(state, str):
            return self.sum("name", type_name(kind), state)
        if not isinstance(state, tuple) or not 2 <= len(state) <= 6:
            raise NoDigest("its __reduce_ex__ is no good")
        parts = [self.of(part) for part in state[:3]]
        parts += [self.of(list(part)) if part is not None else b"" for part in state[3:5]]
        return self.sum("object", type_name(kind), *parts)


def shape_of(value):
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and len(shape) <= 32 and all(isinstance(n, int) for n in shape):
        return [int(n) for n in shape]
    if isinstance(value, type):
        return None
    try:
        return [len(value)]
    except Exception:
        return None


def size_of(value):
    """Bytes, approximately: what it holds directly; of a container also its items, from a sample."""
    root = (getattr(type(value), "__module__", None) or "").partition(".")[0]
    if root == "pandas" and hasattr(value, "memory_usage"):
        used = value.memory_usage(deep=len(value) <= 1_000_000)
        return int(used.sum() if hasattr(used, "sum") else used)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return int(nbytes)
    size = sys.getsizeof(value)
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(value) > 0:
        items = value.items() if isinstance(value, dict) else value
        seen = total = 0
        for item in items:
            total += sum(map(sys.getsizeof, item)) if isinstance(value, dict) else sys.getsizeof(item)
            seen += 1
            if seen >= SIZE_SAMPLE:
                break
        size += total * len(value) // max(seen, 1)
    return size


def preview_of(value):
    if type(value) in (bool, type(None), float, complex) or (type(value) is int and value.bit_length() < 200):
        return repr(value)
    if type(value) is str:
        text = value[:PREVIEW_MAX].encode("utf-8", "replace").decode()
        return repr(text) if len(value) <= PREVIEW_MAX else repr(text) + "…"
    return None


def attempt(entry, key, function, value):
    try:
        result = function(value)
    except Exception:
        return
    if result is not None:
        entry[key] = result


def digest_of(value, end):
    """(digest, None) or (None, why there is none)"""
    if time.monotonic() > end:
        return None, "no time was left for it"
    try:
        return Digester(end).of(value).hex()[:32], None
    except NoDigest as why:
        return None, str(why)
    except RecursionError:
        return None, "nested too deeply"
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def describe(name, value, end):
    entry = {"name": name, "type": "?"}
    attempt(entry, "type", lambda v: well_formed(type_name(type(v))), value)
    attempt(entry, "shape", shape_of, value)
    attempt(entry, "size", size_of, value)
    attempt(entry, "preview", preview_of, value)
    digest, note = digest_of(value, end)
    entry.update({"digest": digest} if digest else {"note": well_formed(note)[:100]})
    return entry


def main(request):
    from IPython import get_ipython

    shell = get_ipython()
    end = time.monotonic() + request["seconds"]
    initial = getattr(shell, "user_ns_hidden", {})
    reply = {"variables": [], "modules": 0, "hidden": 0, "truncated": False}
    for name, value in sorted((item for item in list(shell.user_ns.items()) if type(item[0]) is str), key=lambda item: item[0]):
        if name.startswith("_") or name in OWN_NAMES or (name in initial and initial[name] is value):
            reply["hidden"] += 1
        elif issubclass(type(value), types.ModuleType):
            reply["modules"] += 1
        elif len(reply["variables"]) >= VARIABLES_MAX or len(name) > 200 or name != well_formed(name):
            reply["truncated"] = True
        else:
            reply["variables"].append(describe(name, value, end))
    shell.display_pub.publish({"application/vnd.coppice.inside+json": reply, "text/plain": ""})


main(request)  # noqa: F821
