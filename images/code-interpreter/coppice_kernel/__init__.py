"""What Coppice adds to an ipykernel inside a sandbox.

The kernel is started by this package (__main__.py), with two options more than usual::

    --IPKernelApp.outstream_class=coppice_kernel.OutStream
    --IPKernelApp.extra_extensions=coppice_kernel

The first replaces the capture of output (stream.py), the second loads the rest: tables as bounded JSON, limits on what a
result may weigh (display.py), figures of any matplotlib backend, repair of sys.stdout, short tracebacks with hints
(hooks.py), and that a cell does not write to what the kernel is made of (immortal.py).  Private parts of ipykernel are used;
where one is missing, that feature stays stock, and the kernel starts all the same.  Nothing is put into the user's namespace.
"""

__all__ = ["OutStream", "load_ipython_extension"]


def __getattr__(name):
    """OutStream, when it is asked for: importing this package loads nothing else, as __main__.py wants it."""
    if name != "OutStream":
        raise AttributeError(name)
    try:
        from .stream import OutStream
    except Exception:  # another ipykernel than we know
        from ipykernel.iostream import OutStream
    return OutStream


def load_ipython_extension(shell):
    """Called by IPython.  A feature that cannot be had is left out, and said in the kernel's log."""
    import sys

    for module, names in (
        ("stream", ("install_backpressure", "install_handover", "install_rest")),
        ("display", ("install_tables", "install_limits")),
        ("hooks", ("install_tracebacks", "install_cell_end", "install_filters")),
        ("hooks", ("install_prepare", "install_no_profile")),
        ("immortal", ("install_immortals",)),  # last: what the others made is among it
    ):
        for name in names:
            try:
                loaded = __import__(f"{__name__}.{module}", fromlist=[name])
                getattr(loaded, name)(shell)
            except Exception as error:
                print(f"coppice_kernel: no {name}: {error!r}", file=sys.__stderr__)
