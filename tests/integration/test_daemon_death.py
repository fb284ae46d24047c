"""Part 10: kill -9 of the daemon (and of keepers) in the middle of things; situations 60, 81."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from client import BUILD, ApiError, wait_for


def processes_of(sandbox_id: str) -> list[int]:
    """Host processes whose command line or cgroup names the sandbox."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "cgroup").read_text() + (entry / "cmdline").read_text()
        except OSError:
            continue
        if sandbox_id in text:
            found.append(int(entry.name))
    return found


def cell_of(api, sandbox_id, cell_id):
    return api.get(f"/api/sandboxes/{sandbox_id}/cells/{cell_id}")


def test_variables_live_on_and_the_running_cell_completes(own_daemon):
    api = own_daemon.api
    sb = api.new(name="lives")
    sb.ok("x = 41")
    running = api.post(f"{sb.path}/cells", {"code": "import time\ntime.sleep(3)\nprint('finished')\ny = 1", "detach": True})
    waiting = api.post(f"{sb.path}/cells", {"code": "x + y", "detach": True})
    server = sb.exec("sleep 1000", detach=True)
    time.sleep(0.5)
    own_daemon.kill()
    assert processes_of(sb.id)
    own_daemon.start()
    cell = wait_for(lambda: (lambda c: c if c["status"] not in ("running", "queued") else None)(cell_of(api, sb.id, running["id"])), 15)
    assert cell["status"] == "ok" and cell["stdout"] == "finished\n", cell
    assert cell["memory"]["kept"] is True and cell["warnings"]
    cell = wait_for(lambda: (lambda c: c if c["status"] not in ("running", "queued") else None)(cell_of(api, sb.id, waiting["id"])), 15)
    assert cell["results"][0]["data"]["text/plain"] == "42"
    assert sb.text("x") == "41"
    assert api.get("/api/sandboxes/lives")["id"] == sb.id
    assert api.get(f"{sb.path}/commands/{server['pid']}")["status"] == "running"
    sb.remove()


def test_what_ended_while_the_daemon_was_dead_comes_out_right(own_daemon):
    api = own_daemon.api
    sb = api.new()
    sb.ok("x = 1")
    ends = api.post(f"{sb.path}/cells", {"code": "import time; time.sleep(1); print('done')", "detach": True})
    done = sb.exec("sleep 1; echo out; exit 5", detach=True)
    time.sleep(0.3)
    own_daemon.kill()
    time.sleep(2)
    own_daemon.start()
    command = wait_for(lambda: (lambda c: c if not c["running"] else None)(api.get(f"{sb.path}/commands/{done['id']}")))
    assert command["status"] == "exited" and command["exit_code"] == 5 and command["stdout"] == "out\n"
    cell = wait_for(lambda: (lambda c: c if c["status"] not in ("running", "queued") else None)(cell_of(api, sb.id, ends["id"])), 15)
    assert cell["status"] in ("ok", "lost"), cell
    if cell["status"] == "lost":
        assert cell["warnings"]
    assert sb.text("x") == "1"
    sb.remove()


def test_a_kernel_that_died_meanwhile_is_told(own_daemon):
    api = own_daemon.api
    sb = api.new()
    sb.ok("x = 1")
    api.post(f"{sb.path}/cells", {"code": "import time, os; time.sleep(1); os._exit(3)", "detach": True})
    time.sleep(0.3)
    own_daemon.kill()
    time.sleep(2)
    own_daemon.start()
    cell = sb.run("'x' in globals()")
    assert cell["status"] == "ok" and cell["results"][0]["data"]["text/plain"] == "False"
    assert cell["state_lost"]["reason"] == "died"
    sb.remove()


@pytest.fixture
def deaths(own_daemon, scratch):
    """A file with the number of keepers that die before they say anything."""
    count, keeper = scratch / "deaths", scratch / "dying-keeper"
    count.write_text("0\n")
    keeper.write_text(f"""#!/bin/sh
read -r left < {count}
[ "$left" = 0 ] || {{ echo $((left - 1)) > {count}; exit 1; }}
exec {BUILD}/bin/coppice-keeper "$@"
""")
    keeper.chmod(0o755)
    own_daemon.stop()
    own_daemon.env["COPPICE_KEEPER"] = str(keeper)
    own_daemon.start()
    yield count
    own_daemon.stop()
    del own_daemon.env["COPPICE_KEEPER"]
    own_daemon.start()


def test_a_keeper_that_dies_in_a_resume_costs_no_memory(own_daemon, deaths):
    """Another one follows.  The third death is told, with the memory kept for later or given up, as was asked for."""
    sb = own_daemon.api.new()
    sb.ok("x = 41")
    sb.suspend()
    deaths.write_text("2\n")
    back = sb.resume()
    assert back["memoryRestored"] is True and not back.get("resumeReason") and sb.text("x") == "41"
    sb.suspend()
    deaths.write_text("3\n")
    with pytest.raises(ApiError) as refused:
        sb.resume(require_memory=True)
    assert "keeper" in refused.value.message and "its state is kept" in refused.value.message
    assert sb.info()["state"] == "suspended"
    deaths.write_text("3\n")
    back = sb.resume(cold=True)
    assert back["memoryRestored"] is False and back["resumeReason"] == "restore_failed" and "keeper" in back["resumeMessage"]
    assert sb.run("'x' in globals()")["state_lost"]["reason"] == "restore_failed"
    sb.remove()


def test_a_keeper_that_dies_ends_its_sandbox(own_daemon):
    api = own_daemon.api
    sb = api.new()
    sb.ok("1")
    init = next(p for p in processes_of(sb.id) if Path(f"/proc/{p}/comm").read_text() == "coppice-init\n")
    pid = int(Path(f"/proc/{init}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert Path(f"/proc/{pid}/comm").read_text() == "coppice-keeper\n"
    os.kill(pid, signal.SIGKILL)
    info = wait_for(lambda: (lambda i: i if i["state"] == "ended" else None)(api.get(sb.path)))
    assert info["ended_reason"] == "keeper_died"
    wait_for(lambda: not processes_of(sb.id))


def test_settings_and_names_survive(own_daemon):
    """Situation 81."""
    api = own_daemon.api
    sb = api.new(name="settings", ttl_seconds=3600, labels={"k": "v"}, memory="640M")
    before = sb.info()
    own_daemon.kill()
    own_daemon.start()
    after = sb.info()
    for key in ("name", "ttl_seconds", "expires_at", "labels", "limits", "created_at"):
        assert before[key] == after[key]
    sb.remove()


def test_nothing_is_orphaned_after_remove_all(own_daemon):
    """Situation 60."""
    api = own_daemon.api
    ids = [api.new().id for _ in range(3)]
    api.post(f"/api/sandboxes/{ids[0]}/exec", {"command": "sleep 1000", "detach": True})
    own_daemon.kill()
    own_daemon.start()
    removed = api.delete("/api/sandboxes", all="true")
    assert set(ids) <= set(removed["removed"]) and not removed["failed"]
    for id in ids:
        wait_for(lambda id=id: not processes_of(id))
        wait_for(lambda id=id: not (own_daemon.home / "sandboxes" / id).exists())
    mounts = Path("/proc/self/mountinfo").read_text()
    assert not any(id in mounts for id in ids)
    for root, dirs, _ in os.walk("/sys/fs/cgroup"):
        assert not any(id in d for d in dirs for id in ids), root


def test_kill_during_creation_leaves_nothing(own_daemon):
    api = own_daemon.api
    import threading

    for delay in (0.002, 0.01, 0.03):
        def create():
            try:
                api.new()
            except (ApiError, OSError, Exception):
                pass
        thread = threading.Thread(target=create)
        thread.start()
        time.sleep(delay)
        own_daemon.kill()
        thread.join()
        own_daemon.start()
    # Half-made ones are being undone.
    wait_for(lambda: all(s["state"] in ("running", "ending") for s in api.get("/api/sandboxes")["sandboxes"]))
    api.delete("/api/sandboxes", all="true")
    wait_for(lambda: not list((own_daemon.home / "sandboxes").iterdir()))
