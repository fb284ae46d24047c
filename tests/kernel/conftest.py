"""Kernels for the hard cases: the host's ipykernel, and the one of a sandbox image when COPPICE_KERNEL_ROOTFS names its
root file system (a directory; it is used under an overlay and not changed)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from driver import Image, Kernel, find_drive


def _missing(reason):
    if os.environ.get("MUST_WORK") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def drive():
    path = find_drive()
    if not path or not shutil.which(path):
        _missing("coppice-kernel-drive is not built")
    return path


@pytest.fixture(scope="session", params=["host", "image"])
def place(request):
    """None for the host, or an Image."""
    if request.param == "host":
        if subprocess.run(["/usr/bin/python3", "-c", "import ipykernel"], stderr=subprocess.DEVNULL).returncode:
            _missing("the host has no python3-ipykernel")
        yield None
        return
    root = os.environ.get("COPPICE_KERNEL_ROOTFS")
    if not root:
        pytest.skip("COPPICE_KERNEL_ROOTFS is not set")
    if os.geteuid() != 0:
        _missing("running in an image takes root")
    if not Path(root, "usr/bin/python3").exists():
        pytest.fail(f"{root} is no root file system with Python")
    image = Image(root)
    yield image
    image.close()


@pytest.fixture
def start(drive, place):
    """Starts kernels that are closed after the test: start(stock=…, env=…, cwd=…, limits=…)."""
    kernels = []

    def make(**options):
        kernel = Kernel(drive, image=place, **options)
        kernels.append(kernel)
        return kernel.wait_ready()

    yield make
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def kernel(start):
    return start()


def _has(place, module):
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
    command = ["/usr/bin/python3", "-c", code]
    if place:
        command = ["chroot", place.root, *command]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


@pytest.fixture
def need(place):
    """need("pandas"): skips when the kernel's Python lacks the module."""

    def check(module):
        if not _has(place, module):
            pytest.skip(f"no {module} there")

    return check
