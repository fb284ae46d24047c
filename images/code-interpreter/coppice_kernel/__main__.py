"""Starts a kernel, as ipykernel_launcher does.

Without the garbage collector until the kernel is complete: there is no garbage then, and looking for it takes a tenth of the
start.  What is there in the end it never looks at (immortal.py).
"""

import gc

if __name__ == "__main__":
    gc.disable()
    try:
        from ipykernel.kernelapp import IPKernelApp

        app = IPKernelApp.instance()
        app.initialize()
    finally:
        gc.enable()
    app.start()
