"""The command line against the real daemon: the session of the first issue, and each verb's promises."""

import json
import os
import re
import signal
import subprocess
import tarfile
import time

import pytest

from cli import Cli
from client import Daemon, wait_for


@pytest.fixture(scope="module")
def demo(cli):
    """A sandbox named demo-cli, shared by the tests that leave no trace in each other's way."""
    cli.ok("new", "--name", "demo-cli")
    yield "demo-cli"
    cli("rm", "--force", "demo-cli")


# -- the session -----------------------------------------------------------------------------------------------------


def test_the_session_of_the_issue(cli, tmp_path):
    new = cli.ok("new", "--name", "session")
    assert re.fullmatch(r"sb_[a-z0-9]{10}\n", new.out)
    one = cli.ok("run", "session", "x = 41")
    assert (one.out, one.err) == ("", "[ok #1]\n")
    two = cli.ok("run", "session", "print(x + 1)")
    assert (two.out, two.err) == ("42\n", "[ok #2]\n")
    three = cli("run", "session", "1/0")
    assert three.status == 1 and three.out == ""
    assert "ZeroDivisionError: division by zero" in three.err and three.err.endswith("[error #3]\n")
    four = cli.ok("run", "session", "x")
    assert (four.out, four.err) == ("41\n", "[ok #4]\n")
    script = tmp_path / "script.py"
    script.write_text("print('from a file')\n6 * 7\n")
    cell = cli.json("run", "session", "-f", script, "--timeout", "60", "--json")
    assert cell["status"] == "ok" and cell["stdout"] == "from a file\n" and cell["execution_count"] == 5
    assert cell["timeout_seconds"] == 60
    listing = cli.ok("exec", "session", "ls -la ~ && echo $?")
    assert ".bashrc" in listing.out and listing.out.endswith("\n0\n") and listing.err == ""
    detached = cli.json("exec", "session", "--detach", "python3 -m http.server 8000")
    assert detached["pid"] > 0
    status = cli.ok("exec", "session", "--status", str(detached["pid"])).out
    assert status.startswith('{"pid":%d,"status":"running","running":true,' % detached["pid"])
    data = tmp_path / "data.csv"
    data.write_text("a,b\n1,2\n")
    cli.ok("cp", data, "session:/workspace/")
    assert cli.ok("exec", "session", "cat /workspace/data.csv").out == "a,b\n1,2\n"
    cli.ok("run", "session", "open('/workspace/plot.png', 'wb').write(bytes(range(256)))")
    cli.ok("cp", "session:/workspace/plot.png", ".", cwd=tmp_path)
    assert (tmp_path / "plot.png").read_bytes() == bytes(range(256))
    assert re.search(r"^sb_\w+ +session +running", cli.ok("ls").out, re.M)
    assert "memory_bytes" in cli.ok("info", "session").out
    assert cli.json("info", "--daemon", "--json")["version"]
    assert "> x = 41" in cli.ok("logs", "session").out
    assert cli.ok("rm", "session").out == new.out
    assert "session" not in cli.ok("ls").out
    assert cli("doctor").out.count("ok ") > 3


# -- run -------------------------------------------------------------------------------------------------------------


def test_code_from_every_source(cli, demo, tmp_path):
    (tmp_path / "a.py").write_text("print('file')")
    assert cli.ok("run", demo, "-f", tmp_path / "a.py").out == "file\n"
    assert cli.ok("run", demo, "-", input="print('dash')").out == "dash\n"
    assert cli.ok("run", demo, "-f", "-", input="print('f dash')").out == "f dash\n"
    assert cli.ok("run", demo, input="print('pipe')").out == "pipe\n"
    assert cli("run", demo, "-f", tmp_path / "none.py").status == 2
    assert cli("run", demo).status == 2  # neither code nor a pipe
    assert cli("run", demo, "1", "-f", tmp_path / "a.py").status == 2


def test_code_that_begins_with_a_dash(cli, demo):
    assert cli.ok("run", demo, "--", "-1").out == "-1\n"


def test_streams_stay_apart_and_live(cli, demo):
    done = cli.ok("run", demo, "import sys\nprint('o')\nprint('e', file=sys.stderr)\nprint('ü', end='')")
    assert done.out == "o\nü"
    assert done.err == "e\n[ok #%s]\n" % re.search(r"#(\d+)", done.err)[1]
    with cli.popen("run", demo, "import time\nprint('now', flush=True)\ntime.sleep(3)", stdout=subprocess.PIPE,
                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        begin = time.monotonic()
        assert process.stdout.readline() == b"now\n"
        assert process.poll() is None, f"only told at the end, after {time.monotonic() - begin} s"


def test_status_for_every_end(cli, demo):
    slow = cli("run", demo, "while True: pass", "--timeout", "1")
    assert slow.status == 124 and "[timeout #" in slow.err and "limit 1 s" in slow.err
    died = cli("run", demo, "import os; os._exit(3)")
    assert died.status == 137 and "[died" in died.err
    after = cli.ok("run", demo, "1")
    assert "state lost" in after.err
    assert "state lost" not in cli.ok("run", demo, "1").err
    assert cli("run", demo, "raise SystemExit").status in (0, 1)


def test_interrupt_by_ctrl_c(cli, demo):
    process = cli.popen("run", demo, "import time\nprint('begun', flush=True)\ntime.sleep(60)", stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert b"[interrupted #" in err


def test_detach_and_attach(cli, demo):
    cell = cli.ok("run", demo, "--detach", "import time; time.sleep(1); print('later')").out.strip()
    assert cell.startswith("cell_")
    assert cli.ok("run", demo, "--attach", cell).out == "later\n"
    assert cli.json("run", demo, "--attach", cell, "--json")["stdout"] == "later\n"


def test_input_on_a_terminal(cli, demo):
    status, seen = cli.on_terminal("run", demo, "--stdin", "n = input('name? '); print('hello', n)",
                                   keys=[(b"name? ", b"wood\n")])
    assert status == 0, seen
    assert "hello wood" in seen


def test_input_without_stdin_is_an_error_at_once(cli, demo):
    begin = time.monotonic()
    assert cli("run", demo, "input()").status == 1
    assert time.monotonic() - begin < 10


def test_colours_only_on_a_terminal(cli, demo):
    assert "\033" not in cli("run", demo, "1/0").err
    status, seen = cli.on_terminal("run", demo, "1")
    assert status == 0 and "\033[32m[ok #" in seen


def test_a_reader_that_goes_away(cli, demo):
    """`coppice run … | head -1`: no traceback of ours, and the cell ends as it would have."""
    process = cli.popen("run", demo, "for i in range(20000): print(i)", stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(30) == 0, err
    assert re.fullmatch(rb"\[ok #\d+\]\n", err)


def test_other_contexts(cli, demo):
    context = cli.ok("context", "new", demo, "--name", "second", "--cwd", "/tmp").out.strip()
    cli.ok("run", demo, "--context", "second", "y = 'second'")
    assert cli.ok("run", demo, "-c", context, "import os; print(y, os.getcwd())").out == "second /tmp\n"
    assert cli("run", demo, "y").status == 1
    assert re.search(r"second +python3 +idle", cli.ok("context", "ls", demo).out)
    cli.ok("context", "restart", demo, "second")
    assert cli("run", demo, "-c", "second", "y").status == 1
    cli.ok("context", "rm", demo, "second")
    gone = cli("run", demo, "-c", "second", "1")
    assert gone.status == 1 and "coppice context ls" in gone.err


# -- exec ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command,status", [("exit 7", 7), ("kill -9 $$", 137), ("true", 0), ("nosuchcommand", 127)])
def test_exec_gives_the_commands_status(cli, demo, command, status):
    assert cli("exec", demo, command).status == status


def test_exec_arguments_are_not_touched(cli, demo):
    words = ["a b", "$HOME", "*", "'", '"', "ü", ""]
    done = cli.ok("exec", demo, "--", "printf", "[%s]", *words)
    assert done.out == "".join(f"[{w}]" for w in words)
    assert cli("exec", demo, "--", "no such program").status == 127


def test_exec_passes_bytes_both_ways(cli, demo):
    data = os.urandom(300_000)
    done = cli("exec", demo, "cat", input=data, text=False)
    assert done.status == 0 and done.out == data


def test_exec_options(cli, demo):
    done = cli.ok("exec", demo, "-w", "/tmp", "-e", "A=1", "--env", "B=x=y", "-u", "root", "pwd; echo $A $B; id -u")
    assert done.out == "/tmp\n1 x=y\n0\n"
    slow = cli("exec", demo, "sleep 30", "--timeout", "1")
    assert slow.status == 124 and "limit of 1 s" in slow.err
    assert cli("exec", demo, "--env", "novalue", "true").status == 2


def test_exec_detached(cli, demo):
    pid = str(cli.json("exec", demo, "-d", "echo begun; exec sleep 100")["pid"])
    wait_for(lambda: "begun" in cli.ok("exec", demo, "--status", pid).out)
    assert re.search(rf"^{pid} +running", cli.ok("exec", demo, "--list").out, re.M)
    cli.ok("exec", demo, "--kill", pid)
    wait_for(lambda: cli.json("exec", demo, "--status", pid)["running"] is False)
    assert cli.ok("exec", demo, "--logs", pid).out == "begun\n"
    assert cli("exec", demo, "--status", "999999").status == 125
    assert cli("exec", demo, "--status", "1", "--kill", "1").status == 2


def test_exec_ctrl_c_reaches_the_command(cli, demo):
    process = cli.popen("exec", demo, "trap 'echo caught; exit 9' INT; echo begun; while :; do sleep 0.1; done",
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == b"caught\n" and process.returncode == 9


# -- cp --------------------------------------------------------------------------------------------------------------


def test_cp_a_folder_there_and_back(cli, demo, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub/empty").mkdir(parents=True)
    (tree / "a file").write_text("a")
    (tree / "sub/script").write_text("#!/bin/sh\necho ran\n")
    (tree / "sub/script").chmod(0o755)
    (tree / "link").symlink_to("sub/script")
    (tree / "out").symlink_to("/etc/passwd")
    done = cli.ok("cp", tree, f"{demo}:/workspace/")
    assert "left out" in done.err
    assert cli.ok("exec", demo, "/workspace/tree/link; ls -A /workspace/tree").out == "ran\na file\nlink\nsub\n"
    cli.ok("cp", f"{demo}:tree", tmp_path / "back")
    assert (tmp_path / "back/a file").read_text() == "a"
    assert (tmp_path / "back/sub/empty").is_dir()
    assert (tmp_path / "back/link").readlink().name == "script"
    assert os.access(tmp_path / "back/sub/script", os.X_OK)
    there = tmp_path / "there"
    there.mkdir()
    cli.ok("cp", f"{demo}:/workspace/tree/", there)  # into a folder that exists: keeps its name
    assert (there / "tree/sub/script").exists()
    (tmp_path / "t.tar").write_bytes(cli("cp", f"{demo}:tree", "-", text=False).out)
    assert "tree/a file" in tarfile.open(tmp_path / "t.tar").getnames()


def test_cp_standard_streams_and_names(cli, demo, tmp_path):
    cli.ok("cp", "-", f"{demo}:in.txt", input="from a pipe")
    assert cli.ok("cp", f"{demo}:in.txt", "-").out == "from a pipe"
    odd = tmp_path / "a:b #?&%ü"
    odd.write_text("odd")
    cli.ok("cp", odd, f"{demo}:/workspace/")
    assert cli.ok("exec", demo, "cat '/workspace/a:b #?&%ü'").out == "odd"
    cli.ok("cp", f"{demo}:/workspace/a:b #?&%ü", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "odd"


def test_cp_large_and_whole(cli, demo, tmp_path):
    big = tmp_path / "big"
    with open(big, "wb") as f:
        f.write(os.urandom(1 << 20) * 64)
    cli.ok("cp", big, f"{demo}:/tmp/big")
    cli.ok("cp", f"{demo}:/tmp/big", tmp_path / "copy")
    assert big.read_bytes() == (tmp_path / "copy").read_bytes()
    cli.ok("exec", demo, "rm /tmp/big")


def test_cp_faults(cli, demo, tmp_path):
    absent = cli("cp", f"{demo}:/none", tmp_path)
    assert absent.status == 1 and "/none" in absent.err
    assert list(tmp_path.iterdir()) == []
    assert cli("cp", tmp_path / "none", f"{demo}:/tmp/").status == 1
    assert cli("cp", "a", "b").status == 2
    assert cli("cp", f"{demo}:a", f"{demo}:b").status == 2
    kept = tmp_path / "kept"
    kept.write_text("old")
    assert cli("cp", f"{demo}:/none", kept).status == 1
    assert kept.read_text() == "old"
    denied = cli("cp", kept, f"{demo}:/etc/passwd")
    assert denied.status == 1 and denied.err.startswith("coppice: ")


# -- the others ------------------------------------------------------------------------------------------------------


def test_new_with_everything(cli):
    sb = cli.json("new", "--json", "--name", "all", "--env", "A=b", "--label", "team=x", "--metadata", "note=hi", "--ttl",
                  "1h", "--memory", "1G", "--cpus", "1.5", "--pids", "200", "--no-kernel")
    assert sb["labels"] == {"team": "x"} and sb["limits"]["memory_bytes"] == 1 << 30 and sb["limits"]["cpus"] == 1.5
    assert sb["expires_at"]
    assert cli.ok("ls", "-q", "--label", "team=x").out.strip() == sb["id"]
    assert cli.ok("ls", "-q", "--label", "team=y").out == ""
    assert cli.ok("exec", "all", "echo $A").out == "b\n"
    taken = cli("new", "--name", "all")
    assert taken.status == 1 and "all" in taken.err
    assert cli.ok("rm", sb["id"]).out.strip() == sb["id"]
    assert sb["id"] in cli.ok("ls", "--all", "-q").out


def test_json_beside_every_table(cli, demo):
    for args in (["ls"], ["context", "ls", demo], ["image", "ls"], ["token", "ls"], ["exec", demo, "--list"]):
        assert isinstance(cli.json(*args, "--json"), list), args
    for args in (["info", demo], ["info", "--daemon"], ["image", "show", "code-interpreter"], ["version"]):
        assert isinstance(cli.json(*args, "--json"), dict), args
    assert [json.loads(line) for line in cli.ok("logs", demo, "--json").out.splitlines()]


def test_logs_follow(cli, demo):
    process = cli.popen("logs", demo, "-f", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    cli.ok("run", demo, "'followed'")
    line = b""
    while b"followed" not in line:
        line = process.stdout.readline()
        assert line
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0


def test_errors_name_the_remedy(cli, demo):
    absent = cli("run", "no-such", "1")
    assert absent.status == 1 and "no-such" in absent.err and "coppice ls" in absent.err
    image = cli("new", "--image", "no-such")
    assert image.status == 1 and "no-such" in image.err and "coppice image" in image.err
    assert cli("rm", "no-such").status == 1
    assert cli("rm", "--force", "no-such").status == 0
    assert cli("run", demo, "1", "--timeout", "25h").status == 1


def test_tokens_over_tcp(scratch):
    daemon = Daemon(scratch / "cli-tcp", "--listen", "127.0.0.1:0").start()
    try:
        local = Cli(daemon.home)
        port = local.json("info", "--daemon", "--json")["api"]["tcp"].rsplit(":", 1)[1]
        token = local.ok("token", "new", "test", "--expires", "1h").out.strip()
        url = f"http://127.0.0.1:{port}"
        remote = Cli(COPPICE_URL=url, COPPICE_TOKEN=token)
        remote.ok("ls")
        refused = Cli(COPPICE_URL=url)("ls")
        assert refused.status == 1 and "COPPICE_TOKEN" in refused.err
        assert Cli(COPPICE_URL=url, COPPICE_TOKEN="wrong")("ls").status == 1
        entry = next(t for t in local.json("token", "ls", "--json") if t["name"] == "test")
        assert "token" not in entry
        local.ok("token", "rm", entry["id"])
        assert remote("ls").status == 1
    finally:
        daemon.stop()
