"""Hosts that lack something: the error names it, doctor says what to do, nothing is left behind or lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli import Cli
from client import BUILD, ApiError, Daemon, wait_for

NO_CGROUPS = ["unshare", "-m", "--propagation", "private", "sh", "-c",
              "findmnt -rn -t cgroup,cgroup2 -o TARGET | sort -r | xargs -r -n 1 umount -l; exec \"$@\"", "sh"]


def small_disk(path: Path, mib: int) -> list[str]:
    """The folder is a small disk, for this daemon only."""
    return ["unshare", "-m", "--propagation", "private", "sh", "-c",
            f"mount -t tmpfs -o size={mib}m,mode=700 small {path} && exec \"$@\"", "sh"]


def check(report, name):
    return next(c for c in report["checks"] if c["name"] == name)


@pytest.fixture
def on(states_daemon):
    """Restarts the daemon under a wrapper."""
    states_daemon.api.delete("/api/sandboxes", all="true")

    def restart(wrapper):
        states_daemon.stop()
        states_daemon.wrapper = wrapper
        states_daemon.start()
        return states_daemon.api

    yield restart
    states_daemon.api.delete("/api/sandboxes", all="true")
    restart([])


def none_left(daemon: Daemon) -> bool:
    return not any((daemon.home / "sandboxes").iterdir())


def test_no_user_namespaces(on, states_daemon, scratch):
    keeper = scratch / "keeper"
    keeper.write_text(f'#!/bin/sh\nexec {BUILD}/tests/keeper/failcall clone3 1 {BUILD}/bin/coppice-keeper "$@"\n')
    keeper.chmod(0o755)
    api = on(["env", f"COPPICE_KEEPER={keeper}"])
    with pytest.raises(ApiError) as e:
        api.new(name="poor")
    assert e.value.code == "unsupported" and "user namespaces" in e.value.message and "doctor" in e.value.message
    report = api.get("/api/doctor")
    lacks = check(report, "user_namespaces")
    assert not report["ok"] and not lacks["ok"] and lacks["needed"] and "sysctl" in lacks["remedy"]
    said = Cli(states_daemon.home)("doctor")
    assert said.status == 1 and "FAIL user_namespaces" in said.out and "sysctl" in said.out
    wait_for(lambda: none_left(states_daemon))
    api = on([])
    sb = api.new(name="poor")
    assert sb.text("1 + 1") == "2"
    sb.remove()


def test_no_cgroups(on, states_daemon):
    api = on(NO_CGROUPS)
    with pytest.raises(ApiError) as e:
        api.new(name="poor")
    assert e.value.code == "unsupported" and "cgroup" in e.value.message, e.value
    report = api.get("/api/doctor")
    lacks = check(report, "cgroup")
    assert not report["ok"] and not lacks["ok"] and lacks["needed"] and "mount" in lacks["remedy"]
    wait_for(lambda: none_left(states_daemon))


def test_a_full_disk_loses_nothing(on, states_daemon):
    api = on(small_disk(states_daemon.home / "sandboxes", 48))
    sb = api.new(name="full")
    sb.ok("x = 41; open('/workspace/kept', 'w').write('kept')")
    cell = sb.run("with open('/workspace/big', 'wb') as f:\n  while True: f.write(b'x' * (1 << 20))")
    assert cell["status"] == "error" and cell["error"]["name"] == "OSError" and "No space left" in cell["error"]["value"]
    # Nothing more can be written, by a cell, a command or an upload, and each says so or still works.
    assert sb.text("x + 1") == "42"
    flood = sb.run("for i in range(200000): print('y' * 100)")
    assert flood["status"] == "ok", flood
    with pytest.raises(ApiError) as e:
        sb.write("/workspace/more", os.urandom(4 << 20))
    assert e.value.code == "disk_full" and e.value.retryable is not None
    with pytest.raises(ApiError) as e:
        sb.exec("true")  # there would be no log of it
    assert e.value.code == "disk_full"
    assert sb.text("open('/workspace/kept').read()") == "'kept'"
    with pytest.raises(ApiError) as e:
        api.new(name="another")
    assert e.value.code == "disk_full", e.value
    sb.ok("import os; os.remove('/workspace/big')")
    sb.write("/workspace/more", b"fits")
    assert sb.text("x") == "41"
    assert check(api.get("/api/doctor"), "disk")
    sb.remove()


def test_two_homes_share_no_uids(states_daemon, daemon):
    """Sandboxes of different daemons run under different uids, also after the daemon that started one has died."""
    def uid_of(sb):
        run = Path("/proc")
        for entry in run.iterdir():
            if entry.name.isdigit():
                try:
                    if f"/{sb.id}" in (entry / "cgroup").read_text():
                        return int((entry / "uid_map").read_text().split()[1])
                except OSError:
                    continue
        raise AssertionError(f"no process of {sb.id}")

    a, b = states_daemon.api.new(), daemon.api.new()
    assert uid_of(a) % 65536 == uid_of(b) % 65536 == 0
    assert uid_of(a) != uid_of(b)
    states_daemon.kill()
    others = [daemon.api.new() for _ in range(3)]
    assert uid_of(a) not in map(uid_of, [b, *others])
    states_daemon.start()
    ranges = check(daemon.api.get("/api/doctor"), "uid_ranges")
    assert ranges["ok"] and int(ranges["detail"].split()[0]) >= 5, ranges
    for sb in [a, b, *others]:
        sb.remove()
