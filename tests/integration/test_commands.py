"""Commands: exec in all its forms, through the API of a real daemon."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from client import ApiError, wait_for


def small_root(root: Path) -> Path:
    """A root file system of a shell and what it is linked to."""
    libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", "/bin/sh"], check=True, stdout=subprocess.PIPE, text=True).stdout)
    for file in ("/bin/sh", *libraries):
        target = root / file.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return root


def test_shell_command(shared_sandbox):
    c = shared_sandbox.exec("echo out; echo err >&2; exit 3")
    assert (c["status"], c["exit_code"], c["running"]) == ("exited", 3, False)
    assert (c["stdout"], c["stderr"], c["stdout_bytes"], c["stderr_bytes"]) == ("out\n", "err\n", 4, 4)
    assert c["log"]["complete"] and "truncated" not in c
    assert c["pid"] > 1 and c["duration_ms"] > 0 and c["timeout_seconds"] == 30


def test_argv_env_cwd_user(shared_sandbox):
    c = shared_sandbox.exec(["printf", "%s|", "a b", "$HOME", "ü"])
    assert c["stdout"] == "a b|$HOME|ü|"
    c = shared_sandbox.exec("echo $A $USER; pwd; id -u", env={"A": "x=y z"}, cwd="/tmp")
    assert c["stdout"] == "x=y z user\n/tmp\n1000\n"
    assert shared_sandbox.exec("id -u; pwd", user="root", cwd="/")["stdout"] == "0\n/\n"


def test_an_image_of_little_more_than_a_shell(api, make, tmp_path):
    """It names no users: its programs run as root all the same, and another is only known by number."""
    api.post("/api/images/import", {"source": str(small_root(tmp_path / "root")), "name": "small"})
    sandbox = make(image="small", start_kernel=False)
    ids = "while read -r key real rest; do case $key in [UG]id:) echo $key $real;; esac; done < /proc/self/status"
    assert sandbox.exec(f"echo $USER $HOME; pwd; {ids}")["stdout"] == "root /\n/\nUid: 0\nGid: 0\n"
    assert sandbox.exec(ids, user="root")["stdout"] == "Uid: 0\nGid: 0\n"
    assert sandbox.exec(ids, user="7")["stdout"] == "Uid: 7\nGid: 7\n"
    with pytest.raises(ApiError, match="no user \"user\""):
        sandbox.exec("pwd", user="user")
    sandbox.remove()
    api.delete("/api/images/small")


def test_pid_is_the_programs_own(shared_sandbox):
    c = shared_sandbox.exec("echo $$")
    assert int(c["stdout"]) == c["pid"]


@pytest.mark.parametrize("what,status,message", [
    (["nosuch"], 127, "nosuch: command not found\n"),
    (["/no/such"], 127, "/no/such: No such file or directory\n"),
    (["/etc/passwd"], 126, "/etc/passwd: Permission denied\n"),
])
def test_a_program_that_cannot_run(shared_sandbox, what, status, message):
    c = shared_sandbox.exec(what)
    assert (c["status"], c["exit_code"], c["stderr"]) == ("exited", status, message)
    assert c["stderr_bytes"] == len(message) and c["log"]["complete"] and "truncated" not in c
    assert shared_sandbox.api.get(f"{shared_sandbox.path}/commands/{c['id']}")["stderr"] == message
    events = list(shared_sandbox.api.events("POST", f"{shared_sandbox.path}/exec", {"argv": what}))
    assert [e["type"] for e in events] == ["start", "stderr", "end"]
    assert events[1]["text"] == message and events[2]["command"]["exit_code"] == status


def test_unknown_shell_command(shared_sandbox):
    c = shared_sandbox.exec("nosuch")
    assert c["exit_code"] == 127 and "nosuch: command not found" in c["stderr"]


@pytest.mark.parametrize("params,code", [
    ({"cwd": "/nosuch"}, "exec_failed"),
    ({"user": "nobody-here"}, "bad_request"),
    ({"user": "70000"}, "bad_request"),
    ({"output_max": 1}, "bad_request"),
])
def test_wrong_requests(shared_sandbox, params, code):
    with pytest.raises(ApiError) as error:
        shared_sandbox.exec("true", **params)
    assert error.value.code == code and error.value.message


def test_stdin(shared_sandbox):
    data = bytes(range(256)) * 1000
    c = shared_sandbox.exec("sha256sum; cat /dev/null", stdin_base64=base64.b64encode(data).decode())
    import hashlib
    assert c["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    assert shared_sandbox.exec("cat", stdin="hi\n")["stdout"] == "hi\n"
    assert shared_sandbox.exec("cat")["stdout"] == ""
    # Sealed: the program inside cannot write into the daemon's memory.
    assert shared_sandbox.exec("echo x >/proc/self/fd/0; cat", stdin="hi\n")["stdout"] in ("hi\n", "")


def test_background_process_returns_at_once(sandbox):
    began = time.monotonic()
    c = sandbox.exec("sleep 30 & echo hi")
    assert time.monotonic() - began < 5 and c["stdout"] == "hi\n"
    assert sandbox.exec("pgrep -x sleep")["exit_code"] == 0
    sandbox.api.post(f"{sandbox.path}/commands/{c['pid']}/kill", {})  # the group outlived its leader
    wait_for(lambda: sandbox.exec("pgrep -x sleep")["exit_code"] == 1)


def test_detached_status_logs_kill(sandbox):
    c = sandbox.exec("echo begin; sleep 1000", detach=True)
    assert c["running"] and c["status"] == "running" and c["detached"]
    path = f"{sandbox.path}/commands/{c['pid']}"
    wait_for(lambda: sandbox.api.get(path)["stdout"] == "begin\n")
    assert sandbox.api.get(f"{sandbox.path}/commands")["commands"][-1]["id"] == c["id"]
    sandbox.api.post(f"{path}/kill", {"signal": "TERM"})
    wait_for(lambda: not sandbox.api.get(path)["running"])
    ended = sandbox.api.get(path)
    assert (ended["status"], ended["signal"], ended["exit_code"], ended["stdout"]) == ("killed", 15, 143, "begin\n")
    with pytest.raises(ApiError) as error:
        sandbox.api.post(f"{path}/kill", {})
    assert error.value.code == "invalid_state"
    with pytest.raises(ApiError) as error:
        sandbox.api.get(f"{sandbox.path}/commands/999999")
    assert error.value.code == "command_not_found"


def test_065_timeout_is_kept_and_kills_the_group(sandbox):
    began = time.monotonic()
    c = sandbox.exec("sleep 600 & sleep 601", timeout=1)
    assert 0.9 < time.monotonic() - began < 2.5
    assert (c["status"], c["exit_code"]) == ("timeout", 124)
    assert sandbox.exec("pgrep -x sleep")["exit_code"] == 1


def test_068_odd_shell_input_returns(sandbox):
    for command in ("cat <<X\nhello\nX", "cd /tmp", "echo 'unbalanced", "", " ", "\n", "exit 300", "kill -9 $$"):
        if command == "":
            with pytest.raises(ApiError):
                sandbox.exec(command)
        else:
            assert not sandbox.exec(command, timeout=10)["running"]


def test_070_a_daemon_outlives_its_exec(sandbox):
    sandbox.exec("(while sleep 0.2; do echo tick; done) & echo $! >/tmp/pid")
    time.sleep(1.5)
    assert sandbox.exec("kill -0 $(cat /tmp/pid)")["exit_code"] == 0


def test_077_streams_stay_apart_and_in_order(shared_sandbox):
    events = list(shared_sandbox.api.events("POST", f"{shared_sandbox.path}/exec", {
        "command": "for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done"}))
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert [(e["type"], e.get("text")) for e in events[1:-1]] == [
        ("stdout", "o1\n"), ("stderr", "e1\n"), ("stdout", "o2\n"), ("stderr", "e2\n"), ("stdout", "o3\n"), ("stderr", "e3\n")]
    assert events[-1]["type"] == "end" and "stdout" not in events[-1]["command"]


def test_streams_can_be_read_again(shared_sandbox):
    events = list(shared_sandbox.api.events("POST", f"{shared_sandbox.path}/exec", {"command": "seq 3; sleep 0.1; seq 3"}))
    cmd = events[0]["command_id"]
    again = list(shared_sandbox.api.events("GET", f"{shared_sandbox.path}/commands/{cmd}/stream"))
    assert [e for e in again] == events
    behind = list(shared_sandbox.api.events("GET", f"{shared_sandbox.path}/commands/{cmd}/stream?after=2"))
    assert behind == events[2:]


def test_bytes_that_are_no_text(shared_sandbox):
    c = shared_sandbox.exec(r"printf 'a\377b\000c'; printf '\303' ; sleep 0.1; printf '\274'")
    assert c["stdout"] == "a\ufffdb\0cü" and c["stdout_bytes"] == 7
    events = list(shared_sandbox.api.events("POST", f"{shared_sandbox.path}/exec", {
        "command": r"printf 'x\303' ; sleep 0.1; printf '\274y'; sleep 0.1; printf '\377'; sleep 0.1; printf '\303'"}))
    out = events[1:-1]
    assert out[0]["text"] == "x" and out[1]["text"] == "üy"  # the halves of a character meet
    assert base64.b64decode(out[2]["base64"]) == b"\xff" and base64.b64decode(out[3]["base64"]) == b"\xc3"


def test_output_caps_are_exact(shared_sandbox):
    c = shared_sandbox.exec("seq 1000000", output_max=10000)
    t = c["truncated"]["stdout"]
    assert t["bytes"] == c["stdout_bytes"] == 6888896
    assert t["kept_head"] + t["kept_tail"] + t["dropped"] == t["bytes"] and t["kept_head"] + t["kept_tail"] <= 10000
    assert c["stdout"].startswith("1\n2\n3\n") and c["stdout"].endswith("999999\n1000000\n")
    assert f"{t['dropped']} bytes left out" in c["stdout"]
    exact = shared_sandbox.exec("head -c 10000 /dev/zero | tr '\\0' x", output_max=10000)
    assert exact["stdout"] == "x" * 10000 and "truncated" not in exact


def test_flood_is_bounded_and_told(sandbox, daemon):
    before = daemon.rss()
    c = sandbox.exec("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", timeout=3)
    assert c["status"] == "timeout" and c["stdout_bytes"] > 64 << 20
    assert not c["log"]["complete"] and c["truncated"]["stdout"]["dropped"] > 0
    assert daemon.rss() - before < 48 << 20
    events = sandbox.api.events("GET", f"{sandbox.path}/commands/{c['id']}/stream")
    last = None
    for event in events:
        if event["type"] == "truncated":
            last = event
    kept = c["stdout_bytes"] - last["dropped"]  # the cap is that of the file, whose frames have headers
    assert 60 << 20 < kept <= 64 << 20


def test_disconnect_rules(sandbox):
    for rule, lives in (("continue", True), ("kill", False)):
        events = sandbox.api.events("POST", f"{sandbox.path}/exec", {"command": "echo up; sleep 50", "on_disconnect": rule})
        start = next(events)
        next(events)
        events.close()
        path = f"{sandbox.path}/commands/{start['command_id']}"
        if lives:
            time.sleep(0.5)
            assert sandbox.api.get(path)["running"]
            sandbox.api.post(f"{path}/kill", {})
        else:
            wait_for(lambda: not sandbox.api.get(path)["running"])


def test_memory_limit_is_told(api):
    sb = api.new(memory="256M", start_kernel=False)
    try:
        c = sb.exec("python3 -c 'x = bytearray(400 << 20)'")
        assert c["exit_code"] != 0
        assert "oom" in c or "MemoryError" in c["stderr"]
    finally:
        sb.remove()


def test_many_commands_and_the_oldest_still_known(sandbox):
    first = sandbox.exec("echo first")
    for i in range(150):
        assert sandbox.exec(["true"])["exit_code"] == 0
    assert sandbox.api.get(f"{sandbox.path}/commands/{first['id']}")["stdout"] == "first\n"
    assert len(sandbox.api.get(f"{sandbox.path}/commands")["commands"]) == 151


def test_logs_on_disk_are_bounded(sandbox, daemon):
    logs = daemon.home / "sandboxes" / sandbox.id / "logs"
    commands = [sandbox.exec("head -c 70000000 /dev/zero | tr '\\0' x") for _ in range(6)]
    assert sum(f.stat().st_size for f in logs.glob("cmd_*.log")) < 330 << 20
    assert not (logs / f"{commands[0]['id']}.log").exists()
    events = list(sandbox.api.events("GET", f"{sandbox.path}/commands/{commands[0]['id']}/stream"))
    assert [e["type"] for e in events] == ["start", "stdout", "end"]  # what the result kept
    assert events[1]["text"] == commands[0]["stdout"]


def test_commands_end_with_their_sandbox(api):
    sb = api.new(start_kernel=False)
    c = sb.exec("echo there; sleep 1000", detach=True)
    wait_for(lambda: api.get(f"{sb.path}/commands/{c['id']}")["stdout"] == "there\n")
    result = {}
    waiting = threading.Thread(target=lambda: result.update(sb.exec("echo hi; sleep 1000", timeout=100)))
    waiting.start()
    time.sleep(0.5)
    sb.remove()
    waiting.join(10)
    assert (result["status"], result["stdout"], result["stdout_bytes"]) == ("killed", "hi\n", 3)


def test_daemon_death_in_the_middle_of_a_command(own_daemon):
    sb = own_daemon.api.new(start_kernel=False)
    c = sb.exec("echo one; sleep 3; echo two; exit 5", detach=True, timeout=60)
    ended = sb.exec("echo done; exit 4", detach=True)
    time.sleep(0.3)
    own_daemon.kill()
    own_daemon.start()
    now = own_daemon.api.get(f"{sb.path}/commands/{c['id']}")
    assert now["running"] and now["stdout"] == "one\n"
    events = list(own_daemon.api.events("GET", f"{sb.path}/commands/{c['id']}/stream"))
    assert events[-1]["command"]["exit_code"] == 5
    assert "".join(e.get("text", "") for e in events) == "one\ntwo\n"
    assert own_daemon.api.get(f"{sb.path}/commands/{ended['id']}")["exit_code"] == 4
    sb.remove()
