"""The command line without a daemon: starting one, failing to, and what needs none."""

import os
import subprocess
import time

import pytest

from cli import Cli
from client import BUILD


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    yield home
    pid_file = home / "coppiced.pid"
    if pid_file.exists():
        pid = int(pid_file.read_text())
        try:
            os.kill(pid, 15)
            for _ in range(200):
                os.kill(pid, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            pass


def fake_daemon(tmp_path, script: str) -> str:
    path = tmp_path / "fake-coppiced"
    path.write_text("#!/bin/bash\n" + script)
    path.chmod(0o755)
    return str(path)


def test_a_daemon_is_started_and_outlives_the_command(home):
    cli = Cli(home)
    assert cli.ok("ls").out.startswith("ID ")
    pid = cli.json("info", "--daemon", "--json")["pid"]
    assert cli.json("info", "--daemon", "--json")["pid"] == pid
    assert os.getpgid(pid) == pid and os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert (home / "coppiced.log").stat().st_mode & 0o077 == 0
    assert home.stat().st_mode & 0o077 == 0


def test_commands_at_the_same_time_start_one_daemon(home):
    cli = Cli(home)
    many = [cli.popen("info", "--daemon", "--json", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(12)]
    outs = [p.communicate(timeout=60)[0] for p in many]
    assert [p.returncode for p in many] == [0] * 12
    import json
    assert len({json.loads(out)["pid"] for out in outs}) == 1


def test_a_relative_home(tmp_path, home):
    cli = Cli()
    cli.env["COPPICE_HOME"] = "home"
    cli.ok("ls", cwd=tmp_path)
    assert cli.json("info", "--daemon", "--json", cwd=tmp_path)["home"] == str(home)


def test_a_daemon_that_cannot_start_says_why(tmp_path, home):
    cli = Cli(home, COPPICE_DAEMON=fake_daemon(tmp_path, "echo 'the disk is on fire' >&2; exit 1\n"))
    done = cli("ls")
    assert done.status == 3
    assert "could not start" in done.err and "the disk is on fire" in done.err and "coppiced.log" in done.err
    assert done.err.count("disk is on fire") == 1
    assert cli("ls").err.count("disk is on fire") == 1  # not what an earlier attempt had logged


def test_a_missing_daemon_program(home):
    done = Cli(home, COPPICE_DAEMON="/nonexistent/coppiced")("ls")
    assert done.status == 3 and "/nonexistent/coppiced" in done.err


def test_a_home_that_cannot_be_made():
    done = Cli("/proc/nothing/home")("ls")
    assert done.status == 3 and "/proc/nothing" in done.err


def test_serve_runs_in_the_foreground(home):
    cli = Cli(home)
    process = cli.popen("serve", "--log-level", "debug", stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    for line in process.stderr:
        if b"serving" in line:
            break
    assert cli.json("info", "--daemon", "--json")["pid"] == process.pid
    process.terminate()
    assert process.wait(20) == 0


def test_what_needs_no_daemon_starts_none(home):
    cli = Cli(home)
    assert cli.ok("version").out.startswith("coppice ")
    assert "kernel" in cli("doctor").out
    cli.ok("help")
    assert not home.exists()


@pytest.mark.parametrize("args", [["help"], ["--help"], ["help", "run"], ["run", "--help"], ["help", "context"],
                                  ["help", "image", "build"], ["exec", "-h"], ["image", "--help"], ["token", "-h"]])
def test_help(args):
    done = Cli().ok(*args)
    assert "coppice" in done.out and done.err == ""


def test_help_for_every_verb_has_an_example():
    verbs = [line[2:21].strip() for line in Cli().ok("help").out.splitlines() if line.startswith("  ") and line[2].islower()]
    assert len(verbs) > 20
    for verb in verbs:
        text = Cli().ok("help", *verb.split()).out
        group = f"coppice {verb} " in text and "examples:" not in text  # lists its verbs, each with its own help
        assert group or f"  coppice {verb}" in text.split("examples:")[1], verb


@pytest.mark.parametrize("args,message", [
    ([], "usage: coppice"),
    (["rnu", "demo", "1"], "did you mean coppice run?"),
    (["create"], "did you mean coppice new?"),
    (["ps"], "did you mean coppice ls?"),
    (["zzzzzz"], "coppice help"),
    (["context"], "context restart"),
    (["image", "biuld"], "did you mean coppice image build?"),
    (["run"], "too few arguments"),
    (["rm"], "which sandbox?"),
    (["rm", "--all", "x"], "--all takes no sandboxes"),
    (["new", "--memory", "much"], "--memory"),
    (["new", "--cpus", "some"], "--cpus"),
    (["new", "extra"], "too many arguments"),
    (["ls", "--colour"], "unknown option --colour"),
])
def test_wrong_usage_is_status_2_and_says_what_to_do(args, message):
    done = Cli()(*args)
    assert done.status == 2, done
    assert message in done.err
    assert done.out == ""


def test_start_is_quick():
    """No figure is promised here: SPECIFICATION.md and bench/run.py have them.  This only catches a start gone wrong."""
    begin = time.monotonic()
    Cli().ok("help")
    assert time.monotonic() - begin < 2
    assert (BUILD / "bin" / "coppice").stat().st_size < 20 << 20
