"""Variables on their way from one kernel to another (engine/take.c), with names of its own.

In: request = {"do": "give", "names", "path", "bytes"} in a copy of the source: pickles them to a new file at path;
    request = {"do": "receive", "names", "path"} in the target: loads that file, removes it and sets the variables.
Out: one display of MIME type application/vnd.coppice.inside+json: {"variables": [{name, type}], "bytes"}, or
{"error": "missing" | "not_picklable" | "too_large" | "not_loadable", "name", "message"}.
"""

import os
import pickle
import types


class Failure(Exception):
    def __init__(self, code, name, message):
        super().__init__(message)
        self.reply = {"error": code, "name": name, "message": message[:500]}


class TooLarge(Exception):
    pass


def size_of(data):
    return len(data) if isinstance(data, bytes) else memoryview(data).nbytes


class Bounded:
    """A file that does not grow beyond a limit."""

    def __init__(self, file, limit):
        self.file, self.left = file, limit

    def write(self, data):
        self.left -= size_of(data)
        if self.left < 0:
            raise TooLarge
        return self.file.write(data)


class Nowhere:
    def write(self, data):
        return size_of(data)


def type_name(value):
    kind = type(value)
    return (kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}")[:200]


def describe(error):
    return f"{type(error).__name__}: {error}"


class Pickler(pickle.Pickler):
    """What was defined in a cell has no module to be found in again: pickle would only write down its name."""

    def reducer_override(self, value):
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} was defined in a cell; run that cell in the target instead")
        return NotImplemented


def pickle_to(value, file):
    Pickler(file, protocol=min(5, pickle.HIGHEST_PROTOCOL)).dump(value)


def check_each(values, limit):
    """Which one it was."""
    for name, value in values.items():
        try:
            pickle_to(value, Bounded(Nowhere(), limit))
        except TooLarge:
            raise Failure("too_large", name, "") from None
        except Exception as error:
            raise Failure("not_picklable", name, describe(error)) from None


def give(user, request):
    values = {}
    for name in request["names"]:
        if name not in user:
            raise Failure("missing", name, "")
        if isinstance(user[name], types.ModuleType):
            raise Failure("not_picklable", name, "a module; import it in the target instead")
        values[name] = user[name]
    fd = os.open(request["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        try:
            pickle_to(values, Bounded(file, request["bytes"]))
        except Exception as error:
            check_each(values, request["bytes"])
            if isinstance(error, TooLarge):
                raise Failure("too_large", ", ".join(values), "") from None
            raise Failure("not_picklable", ", ".join(values), describe(error)) from None
    return {"variables": [{"name": n, "type": type_name(v)} for n, v in values.items()],
            "bytes": os.stat(request["path"]).st_size}


def receive(user, request):
    try:
        with open(request["path"], "rb") as file:
            values = pickle.load(file)
            size = os.fstat(file.fileno()).st_size
    except Exception as error:
        raise Failure("not_loadable", ", ".join(request["names"]), describe(error)) from None
    finally:
        try:
            os.unlink(request["path"])
        except OSError:
            pass
    user.update((name, values[name]) for name in request["names"])
    return {"variables": [{"name": n, "type": type_name(values[n])} for n in request["names"]], "bytes": size}


def main(request):
    from IPython import get_ipython

    shell = get_ipython()
    try:
        reply = (give if request["do"] == "give" else receive)(shell.user_ns, request)
    except Failure as failure:
        reply = failure.reply
    shell.display_pub.publish({"application/vnd.coppice.inside+json": reply, "text/plain": ""})


main(request)  # noqa: F821
