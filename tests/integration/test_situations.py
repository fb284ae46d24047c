"""Situations that broke other people's code interpreters; the number is the row of the project's list.

Rows on cells stand in test_cells.py and test_cell_limits.py, those on the server's death in test_daemon_death.py.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time

import pytest
from client import ApiError, wait_for


def timed(call, *args, **kwargs):
    t0 = time.monotonic()
    value = call(*args, **kwargs)
    return value, time.monotonic() - t0


# -- cells ----------------------------------------------------------------------------------------------------------------


def test_044_long_matrix_product_ends(sandbox):
    sandbox.ok("import numpy as np; a = np.ones((6000, 6000))", timeout=60)
    cell, seconds = timed(sandbox.run, "while True: a @ a", timeout=1)
    assert cell["status"] == "timeout" and seconds < 6
    assert sandbox.text("1+1") == "2"


def test_045_a_kernel_that_cannot_start_says_why(api):
    sb = api.new(start_kernel=False)
    # Break ipykernel as a user could.
    sb.exec("sudo rm -rf /usr/lib/python3/dist-packages/ipykernel && sudo mkdir /usr/lib/python3/dist-packages/ipykernel")
    with pytest.raises(ApiError) as error:
        _, seconds = timed(api.post, f"{sb.path}/contexts", {"language": "python"})
    assert error.value.code == "kernel_start_failed" and "ipykernel" in error.value.message
    cell, seconds = timed(sb.run, "1")
    assert cell["status"] == "died" and "ipykernel" in cell["error"]["value"] and seconds < 10
    sb.remove()


def test_047_a_waiting_client_costs_nothing(sandbox):
    used = os.times()
    cell = sandbox.run("import time; time.sleep(30)", timeout=2)
    now = os.times()
    assert cell["status"] == "timeout"
    assert now.user + now.system - used.user - used.system < 0.5


def test_056_the_second_import_is_warm(sandbox):
    sandbox.ok("import pandas", timeout=60)
    cell = sandbox.ok("import time; t0 = time.perf_counter()\nimport pandas\n(time.perf_counter() - t0) < 0.05")
    assert cell["results"][0]["data"]["text/plain"] == "True"


def test_057_packages_install_and_import_in_the_next_cell(sandbox, wheel):
    """Without a network the wheel comes as a file; an index on loopback belongs to the network issue."""
    sandbox.write("/workspace/" + wheel.name, wheel.read_bytes())
    cell = sandbox.ok(f"%pip install --no-index /workspace/{wheel.name}", timeout=90)
    assert "Successfully installed" in cell["stdout"] + cell["stderr"] and "\r" not in cell["stdout"]
    assert sandbox.text("import coppice_probe; coppice_probe.answer()") == "42"
    done = sandbox.exec(f"pip install --no-index --target /workspace/lib /workspace/{wheel.name}", timeout=90)
    assert done["exit_code"] == 0, done


SILENT_INDEX = """
import socket, time
s = socket.create_server(("127.0.0.1", 8900))
while True:
    kept = s.accept(), globals().get("kept")
"""


@pytest.mark.parametrize("magic", ["%pip", "!pip"])
def test_058_a_slow_install_is_over_at_the_limit(sandbox, magic):
    """An index that accepts and never answers: pip would wait for minutes, and try again."""
    sandbox.exec(["python3", "-c", SILENT_INDEX], detach=True)
    sandbox.ok("import socket, time\nfor _ in range(600):\n  if not socket.socket().connect_ex(('127.0.0.1', 8900)): break"
               "\n  time.sleep(0.1)")
    cell = sandbox.run(f"{magic} install --index-url http://127.0.0.1:8900/simple nosuchpackage", timeout=5)
    assert cell["status"] == "timeout", cell
    assert sandbox.exec("pgrep -f '[p]ip install'")["exit_code"] == 1
    assert sandbox.text("1 + 1") == "2"


def test_063_a_restart_holds_although_the_next_cell_fails(sandbox):
    sandbox.ok("old = 1")
    sandbox.api.post(f"{sandbox.path}/contexts/default/restart")
    assert sandbox.run("1/0")["status"] == "error"
    assert sandbox.text("'old' in globals()") == "False"


# -- commands ----------------------------------------------------------------------------------------------------------------


def test_065_the_limit_of_a_command_is_kept(sandbox):
    done, seconds = timed(sandbox.exec, "sleep 5", timeout=1)
    assert done["status"] == "timeout" and 1.0 <= seconds < 1.5
    assert sandbox.exec("pgrep -x sleep")["exit_code"] == 1


def test_067_an_unknown_command_is_127_with_a_message(sandbox):
    for command in ("nosuch", ["nosuch", "arg"]):
        done = sandbox.exec(command)
        assert done["exit_code"] == 127 and "nosuch" in done["stderr"] and "not found" in done["stderr"]


@pytest.mark.parametrize("command, code, out", [
    ("cat <<EOF\nhere\nEOF", 0, "here\n"),
    ("cd /tmp && pwd", 0, "/tmp\n"),
    ("echo 'unbalanced", 2, ""),
    ("echo 'a'\"b\" c; exit 3", 3, "ab c\n"),
])
def test_068_heredoc_cd_and_quotes(sandbox, command, code, out):
    done = sandbox.exec(command)
    assert (done["exit_code"], done["stdout"]) == (code, out)


def test_070_a_background_program_survives_its_command(sandbox):
    done, seconds = timed(sandbox.exec, "(for i in $(seq 60); do echo tick; sleep 0.2; done) & echo started")
    assert done["stdout"].startswith("started") or "started" in done["stdout"]
    assert seconds < 3
    time.sleep(3)
    assert int(sandbox.exec("pgrep -fc 'seq 60|sleep 0.2' || true")["stdout"]) >= 1


def test_071_the_whole_group_is_killed(sandbox):
    server = sandbox.exec("python3 -m http.server 8123 & python3 -m http.server 8124", detach=True)
    wait_for(lambda: sandbox.exec("pgrep -fc '^python3 -m http'")["stdout"].strip() == "2")
    sandbox.api.post(f"{sandbox.path}/commands/{server['pid']}/kill", {"signal": "KILL"})
    wait_for(lambda: sandbox.exec("pgrep -fc '^python3 -m http'")["stdout"].strip() == "0", 5)


def test_073_a_sandbox_that_dies_answers(api):
    sb = api.new()
    sb.ok("1")
    threading.Timer(1, sb.remove).start()
    cell, seconds = timed(sb.run, "import time; time.sleep(60)", timeout=90)
    assert cell["status"] in ("cancelled", "died") and seconds < 10


def test_074_control_answers_under_load(api):
    sb = api.new(memory="512M", cpus=1)
    sb.ok("1")
    for _ in range(4):
        sb.exec("while :; do :; done", detach=True)
    sb.exec(["python3", "-c", "b = bytearray(400 * 2**20); import time; time.sleep(60)"], detach=True, timeout=60)
    time.sleep(1)
    _, seconds = timed(api.get, "/api/health")
    assert seconds < 2
    _, seconds = timed(sb.info)
    assert seconds < 2
    _, seconds = timed(sb.remove)
    assert seconds < 5


def test_077_streams_stay_apart(sandbox):
    done = sandbox.exec("echo out; echo err >&2; echo out2")
    assert done["stdout"] == "out\nout2\n" and done["stderr"] == "err\n" and done["exit_code"] == 0


def test_078_kinds_of_limits_are_told_apart(sandbox):
    assert sandbox.run("import time; time.sleep(9)", timeout=1)["status"] == "timeout"
    assert sandbox.exec("sleep 9", timeout=1)["status"] == "timeout"
    running = sandbox.exec("sleep 60", detach=True)
    killed = sandbox.api.post(f"{sandbox.path}/commands/{running['pid']}/kill", {"signal": "TERM"})
    assert killed["pid"] == running["pid"]
    state = wait_for(lambda: (lambda c: c if not c["running"] else None)(sandbox.api.get(f"{sandbox.path}/commands/{running['pid']}")))
    assert state["status"] in ("killed", "exited") and state["signal"] in (15, "TERM", "SIGTERM")


# -- life ---------------------------------------------------------------------------------------------------------------------------


def test_082_settings_hold_at_once(api):
    sb = api.new(ttl_seconds=600, memory="768M", cpus=1.5, pids=99, labels={"a": "b"}, metadata={"n": 1})
    info = sb.info()
    assert info["ttl_seconds"] == 600 and info["expires_at"] > info["created_at"]
    assert info["limits"]["memory_bytes"] == 768 << 20 and info["limits"]["cpus"] == 1.5 and info["limits"]["pids"] == 99
    assert info["labels"] == {"a": "b"} and info["metadata"] == {"n": 1}
    changed = api.call("PATCH", sb.path, {"ttl_seconds": 60, "labels": {"c": "d"}})
    assert changed["ttl_seconds"] == 60 and sb.info()["labels"] == {"c": "d"}
    sb.remove()


def test_085_086_the_reason_of_an_end_is_told(api):
    sb = api.new(ttl_seconds=1)
    def ended():
        try:
            info = api.get(sb.path)
        except ApiError as error:
            return error.body
        return info if info["state"] == "ended" else None
    end = wait_for(ended, 10)
    assert end.get("ended_reason") == "ttl" or "ttl" in end.get("message", "")
    with pytest.raises(ApiError) as error:
        sb.run("1")
    assert error.value.code in ("sandbox_ended", "sandbox_not_found") and error.value.retryable is False
    other = api.new()
    other.remove()
    with pytest.raises(ApiError) as error:
        other.run("1")
    assert error.value.code in ("sandbox_ended", "sandbox_not_found")
    assert "removed" in error.value.message or error.value.code == "sandbox_not_found"


def test_091_a_dead_reference_is_a_typed_error(api):
    with pytest.raises(ApiError) as error:
        api.post("/api/sandboxes/sb_aaaaaaaaaa/cells", {"code": "1"})
    assert error.value.status == 404 and error.value.code == "sandbox_not_found" and error.value.message


def test_094_nothing_of_one_sandbox_is_in_the_next(api):
    one = api.new()
    one.exec("echo secret > /workspace/s; echo secret > /tmp/s; echo secret > ~/s; sudo sh -c 'echo secret > /etc/s'")
    one.remove()
    two = api.new()
    assert two.exec("cat /workspace/s /tmp/s ~/s /etc/s; true")["stdout"] == ""
    two.remove()


def test_099_a_name_is_free_again_after_removal(api):
    for _ in range(100):
        sb = api.new(name="again", start_kernel=False)
        with pytest.raises(ApiError) as error:
            api.new(name="again", start_kernel=False)
        assert error.value.code == "name_taken"
        sb.remove()


# -- files ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 18 << 10, 16 << 20, 1 << 30], ids=["0B", "18K", "16M", "1G"])
def test_100_uploads_of_any_size_are_whole(sandbox, daemon, size, tmp_path):
    block = hashlib.sha256(str(size).encode()).digest() * 2048  # 64 KiB
    want = hashlib.sha256()
    path = tmp_path / "data"
    with open(path, "wb") as f:
        left = size
        while left:
            part = block[:left]
            f.write(part)
            want.update(part)
            left -= len(part)
    before = daemon.rss()
    with open(path, "rb") as f:
        reply = sandbox.api.raw("PUT", f"{sandbox.path}/files?path=/workspace/data&sha256=true", f, {"Content-Length": str(size)}, timeout=300)
    assert reply.status == 200, reply.body
    assert reply.json()["size"] == size and reply.json()["sha256"] == want.hexdigest()
    stat = sandbox.api.get(f"{sandbox.path}/files/stat", path="/workspace/data", sha256="true")
    assert stat["size"] == size and stat["sha256"] == want.hexdigest() and stat["type"] == "file"
    got = sandbox.api.raw("GET", f"{sandbox.path}/files?path=/workspace/data", timeout=300).body
    assert len(got) == size and hashlib.sha256(got).digest() == want.digest()
    assert daemon.rss() - before < 32 << 20


def test_102_links_do_not_lead_out(sandbox):
    secret = "/etc/hostname"
    sandbox.exec(f"ln -s {secret} /workspace/link; ln -s / /workspace/root; ln -s ../../../../../../etc /workspace/up")
    host = open(secret).read()
    for path in ("/workspace/link", "/workspace/root/etc/hostname", "/workspace/up/hostname", "/proc/1/root/etc/hostname",
                 "/workspace/../../../etc/hostname"):
        try:
            assert sandbox.read(path).decode() != host or sandbox.exec("cat /etc/hostname")["stdout"] == host
        except ApiError as error:
            assert error.code in ("file_not_found", "file_access", "file_type", "bad_request")
    with pytest.raises(ApiError):
        sandbox.write("/workspace/root/etc/planted", b"x")
    assert not os.path.exists("/etc/planted")


@pytest.mark.parametrize("path", ["/workspace/fifo", "/dev/zero", "/dev/tty", "/workspace/socket", "/workspace"])
def test_102_special_files_never_hang(sandbox, path):
    sandbox.exec("mkfifo /workspace/fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/workspace/socket')\"")
    with pytest.raises(ApiError) as error:
        _, seconds = timed(sandbox.read, path)
    assert error.value.code in ("file_type", "file_access", "file_not_found")


def test_103_big_files_and_big_cells(sandbox):
    sandbox.write("/workspace/big", b"y" * 5_000_000)
    assert sandbox.text("len(open('/workspace/big').read())") == "5000000"
    assert sandbox.text("len('''" + "z" * 5_000_000 + "''')") == "5000000"


def test_107_no_secret_of_the_server_is_visible(sandbox):
    done = sandbox.exec("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; sudo cat /proc/1/environ")
    assert "COPPICE" not in done["stdout"] and "COPPICE_HOME" not in done["stdout"]
    assert sandbox.exec("ls /proc | grep -c '^[0-9]'")["exit_code"] == 0
    done = sandbox.exec("sudo cat /proc/1/cmdline | tr '\\0' ' '")
    assert "/sandboxes/" not in done["stdout"] and "/home/" not in done["stdout"]
