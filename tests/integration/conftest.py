"""Fixtures: one daemon for the session with the code-interpreter image, and a fresh sandbox for a test.

The image comes from tools/test-image.sh, which keeps it in a cache outside the tree and builds it when it is missing.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cli import Cli  # noqa: E402
from client import ROOT, Api, ApiError, Daemon  # noqa: E402
from openapi import Checker  # noqa: E402

# Every JSON call of every test is checked against api/openapi.yaml.
Api.checker = Checker()


@pytest.fixture(scope="session")
def image_dir() -> Path:
    out = subprocess.run([ROOT / "tools/test-image.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return Path(out.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def scratch():
    """A folder for the session, outside the tree and on a real disk (overlayfs needs one)."""
    path = Path(tempfile.mkdtemp(prefix="coppice-test-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def start_daemon(home: Path, image_dir: Path, *args: str, spare: bool = False) -> Daemon:
    """A daemon that has the image."""
    daemon = Daemon(home, *args)
    daemon.spare = spare
    daemon.start()
    daemon.api.post("/api/images/import", {"source": str(image_dir), "name": "code-interpreter"}, timeout=300)
    return daemon


def end_daemon(daemon: Daemon) -> None:
    if daemon.process.poll() is not None:
        daemon.start()
    try:
        daemon.api.delete("/api/sandboxes", all="true")
    except ApiError as error:
        print("removing all sandboxes:", error)
    daemon.stop()


@pytest.fixture(scope="session")
def daemon(scratch, image_dir):
    daemon = start_daemon(scratch / "home", image_dir)
    yield daemon
    end_daemon(daemon)


@pytest.fixture(scope="module")
def own_daemon(scratch, image_dir, request):
    """A daemon that the tests of this module may kill."""
    daemon = start_daemon(scratch / request.module.__name__, image_dir)
    yield daemon
    end_daemon(daemon)


@pytest.fixture
def sparing_daemon(scratch, image_dir, request):
    """One that keeps sandboxes ready for the next fork or golden state, as all do outside of tests."""
    daemon = start_daemon(scratch / request.node.name, image_dir, spare=True)
    yield daemon
    end_daemon(daemon)


@pytest.fixture(scope="session")
def states_daemon(scratch, image_dir):
    """One that tests of saved states may kill; of the session, because importing an image takes long."""
    daemon = start_daemon(scratch / "states", image_dir)
    yield daemon
    end_daemon(daemon)


def daemon_of(request) -> Daemon:
    """That of the session, unless the module names another: DAEMON = "states_daemon"."""
    return request.getfixturevalue(getattr(request.module, "DAEMON", "daemon"))


@pytest.fixture(scope="module")
def api(request):
    return daemon_of(request).api


@pytest.fixture(scope="module")
def cli(request):
    return Cli(daemon_of(request).home)


def remove(sandbox) -> None:
    """It may be gone already."""
    try:
        sandbox.remove()
    except ApiError as error:
        assert error.code in ("sandbox_not_found", "sandbox_ended"), error


@pytest.fixture
def make(api, request):
    """Makes sandboxes that go with the test; POLICY and PARAMS of its module are what they have unless told otherwise."""
    made = []

    def new(policy=None, **params):
        policy = {**getattr(request.module, "POLICY", {}), **(policy or {})}
        made.append(api.new(**({"policy": policy} if policy else {}), **{**getattr(request.module, "PARAMS", {}), **params}))
        return made[-1]

    yield new
    for sandbox in made:
        remove(sandbox)


@pytest.fixture
def sandbox(make):
    return make()


@pytest.fixture(scope="module")
def shared_sandbox(api):
    """One sandbox for all tests of a module that leave no trace in each other's way."""
    sb = api.new()
    yield sb
    sb.remove()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The smallest wheel there is: made here, since no package index is reachable."""
    path = tmp_path_factory.mktemp("wheel") / "coppice_probe-1.0-py3-none-any.whl"
    files = {
        "coppice_probe.py": "def answer():\n    return 42\n",
        "coppice_probe-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: coppice-probe\nVersion: 1.0\n",
        "coppice_probe-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text)}\n"
    files["coppice_probe-1.0.dist-info/RECORD"] = record + "coppice_probe-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    return path
