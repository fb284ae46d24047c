"""What happens around a cell: errors, the state of the streams, figures."""

import io
import os
import sys
import warnings

from .display import Formatting

TRACEBACK_HEAD = 20  # entries kept at either end of a long traceback
TRACEBACK_TAIL = 20
TRACEBACK_ENTRY = 8 * 1024  # characters
TRACEBACK_TOTAL = 64 * 1024

HINTS = (
    ("RuntimeError", "cannot be called from a running event loop", "cells are async: write `await main()`"),
    ("RuntimeError", "event loop is already running", "cells are async: write `await main()`"),
    ("StdinNotImplementedError", "", "nobody can answer input() here: pass the value in the code"),
)


# -- errors --------------------------------------------------------------------------------------------------------------


def _shorten(text, limit):
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters cut …\n{text[-half:]}"


def bound_traceback(lines):
    """At most 40 entries and 64 Ki characters; the ends are what tells."""
    lines = [_shorten(str(line), TRACEBACK_ENTRY) for line in lines]
    if len(lines) > TRACEBACK_HEAD + TRACEBACK_TAIL:
        cut = len(lines) - TRACEBACK_HEAD - TRACEBACK_TAIL
        lines[TRACEBACK_HEAD:-TRACEBACK_TAIL] = [f"… {cut} entries cut …\n"]
    while sum(map(len, lines)) > TRACEBACK_TOTAL and len(lines) > 4:
        middle = len(lines) // 2
        lines[middle - 1 : middle + 1] = ["… cut …\n"]
    return lines


def hint_for(name, text):
    for wanted, part, hint in HINTS:
        if name == wanted and part in text:
            return hint
    return None


def install_tracebacks(shell):
    show_stock = shell._showtraceback

    def show(etype, evalue, stb):
        name = getattr(etype, "__name__", str(etype))
        try:
            text = str(evalue)
        except Exception:
            text = "<its message cannot be had>"
        if Formatting.depth:
            # Raised by an object's own __repr__ or formatter: worth a warning, but the cell did not fail.
            if Formatting.failure is None:
                Formatting.failure = _shorten(f"{name}: {text}", 1000)
                print(f"Warning: showing the result failed: {_shorten(text, 1000)} ({name})", file=sys.stderr)
            return
        lines = bound_traceback(stb or [])
        hint = hint_for(name, text)
        if hint:
            lines.append(f"Hint: {hint}\n")
        show_stock(etype, evalue, lines)

    shell._showtraceback = show


def install_filters(shell):
    """Warnings that speak of a terminal nobody has, or of what is no fault of the cell."""
    warnings.filterwarnings("ignore", message="To exit: use 'exit'", category=UserWarning)
    warnings.filterwarnings("ignore", message="Output cache limit", category=UserWarning)
    warnings.filterwarnings("ignore", message=".*is non-interactive, and thus cannot be shown", category=UserWarning)


# -- the end of a cell -----------------------------------------------------------------------------------------------------


def _is_usable(stream):
    """A stream that user code put in place and that may well be wanted: a tee, say.  Not one that swallows or breaks."""
    if stream is None or isinstance(stream, io.IOBase):
        return False
    return callable(getattr(stream, "write", None)) and callable(getattr(stream, "flush", None))


def restore_streams(streams):
    """Puts back what a cell broke; returns what to say about it."""
    said = []
    for name, stream in streams.items():
        current = getattr(sys, name, None)
        if current is not stream and not _is_usable(current):
            kind = "removed" if current is None else f"replaced by {type(current).__name__}"
            said.append(f"sys.{name} was {kind} and is restored (to capture output use contextlib.redirect_stdout)")
            setattr(sys, name, stream)
        reopen = getattr(stream, "reopen", None)
        if reopen and reopen():
            said.append(f"sys.{name} was closed and is open again")
        repair = getattr(stream, "repair_descriptor", None)
        if repair and repair():
            said.append(f"the descriptor of {name} was closed and is open again")
    return said


def publish_figures(shell):
    """Shows and closes open figures, as the inline backend would, when another backend is in use."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not pyplot.get_fignums():
        return
    if "inline" in str(pyplot.get_backend()).lower():
        return
    import base64

    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        buffer = io.BytesIO()
        try:
            figure.savefig(buffer, format="png", bbox_inches="tight")
            data = {"image/png": base64.b64encode(buffer.getvalue()).decode(), "text/plain": str(figure)}
            shell.display_pub.publish(data, {})
        except Exception as error:
            print(f"Warning: figure {number} cannot be drawn: {error!r}", file=sys.stderr)
        pyplot.close(figure)


def install_cell_end(shell):
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}

    def at_end(*_):
        # First the streams: what follows may print.
        for text in restore_streams(streams):
            print(f"Warning: {text}", file=sys.stderr)
        try:
            publish_figures(shell)
        except Exception as error:
            print(f"Warning: figures are not shown: {error!r}", file=sys.stderr)

    shell.events.register("post_run_cell", at_end)
    set_parent_stock = shell.set_parent

    def set_parent(parent):
        set_parent_stock(parent)
        # ipykernel tells sys.stdout, which may be a wrapper that does not pass it on: its text would go to an old cell.
        for name, stream in streams.items():
            if getattr(sys, name, None) is not stream and hasattr(stream, "set_parent"):
                stream.set_parent(parent)

    shell.set_parent = set_parent


# -- the profile ---------------------------------------------------------------------------------------------------------


def install_no_profile(shell):
    """Takes away the profile that IPython has made next to the connection file: seven folders and a README, which it makes
    again should it ever want one.  They would be copied with each saved state, and that takes a millisecond."""
    from ipykernel.kernelapp import IPKernelApp

    beside = os.path.dirname(IPKernelApp.instance().abs_connection_file)
    if os.path.dirname(shell.ipython_dir) != beside:
        return  # somebody's own
    for folder, _, files in os.walk(shell.ipython_dir, topdown=False):
        if os.path.basename(folder) == "startup" and files == ["README"]:
            os.unlink(os.path.join(folder, "README"))
        if not os.listdir(folder):
            os.rmdir(folder)


# -- what the daemon asks for ----------------------------------------------------------------------------------------------

PREPARE = "# coppice: prepare\n"  # prepare_mark of kernel.c


def install_prepare(shell):
    """The lines by which a copied kernel is made a new one (random numbers, limits, environment) are run as they are: as a
    cell they would cost as much as the user's first one, which waits for them."""
    kernel = shell.kernel
    stock = kernel.do_execute

    def do_execute(code, silent, *args, **kwargs):
        if not (silent and code.startswith(PREPARE)):
            return stock(code, silent, *args, **kwargs)
        reply = {"status": "ok", "execution_count": shell.execution_count - 1, "payload": [], "user_expressions": {}}
        try:
            exec(code, {})
        except Exception as error:
            reply.update(status="error", ename=type(error).__name__, evalue=str(error), traceback=[])
        return reply

    kernel.do_execute = do_execute
