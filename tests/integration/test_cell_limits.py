"""Time, memory, death: each ends within its limit + 5 s, says which stage ended it, and the next cell is its own."""

from __future__ import annotations

import time

import pytest


def timed(sandbox, code, timeout):
    t0 = time.monotonic()
    cell = sandbox.run(code, timeout=timeout)
    seconds = time.monotonic() - t0
    assert seconds < timeout + 5, f"ended after {seconds:.1f} s"
    return cell


@pytest.mark.parametrize("code", [
    "while True: pass",                                              # situation 38
    "import time; time.sleep(60)",
    "import subprocess; subprocess.run(['sleep', '600'])",           # situation 42
    "import os; os.system('sleep 600')",
    "!cat",                                                          # case 8
    "import asyncio; await asyncio.sleep(60)",                       # case 17
    "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "import threading; threading.Event().wait()",
], ids=["loop", "sleep", "subprocess", "system", "cat", "await", "regex", "event"])
def test_interrupt_is_enough(sandbox, code):
    sandbox.ok("kept = 1")
    cell = timed(sandbox, code, 1)
    assert cell["status"] == "timeout", cell
    assert cell["timeout"]["stage"] in ("interrupt", "interrupt_repeated") and cell["timeout"]["limit_seconds"] == 1
    assert cell["memory"]["kept"] is True
    t0 = time.monotonic()
    assert sandbox.text("kept + 1") == "2"
    assert time.monotonic() - t0 < 1
    assert sandbox.exec("pgrep -x sleep")["exit_code"] == 1, "no child lives on"


@pytest.mark.parametrize("code", [
    "import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass",    # case 18
    "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(60)",              # case 18
    "sum(range(10**12))",                                                                 # case 19
], ids=["swallows", "ignores", "c-code"])
def test_what_cannot_be_interrupted_is_killed(sandbox, code):
    sandbox.ok("gone = 1")
    cell = timed(sandbox, code, 1)
    assert cell["status"] == "timeout" and cell["timeout"]["stage"] == "kill"
    assert cell["memory"]["kept"] is False and cell["memory"]["reason"] == "timeout"
    cell = sandbox.run("'gone' in globals()")
    assert cell["results"][0]["data"]["text/plain"] == "False"
    assert cell["state_lost"]["reason"] == "timeout" and cell["generation"] == 2
    assert "state_lost" not in sandbox.run("1")


def test_no_late_answer_from_the_old_cell(sandbox):
    """Situation 39: timeout, then five cells; each returns its own output."""
    cell = timed(sandbox, "import time\ntry:\n    time.sleep(20)\nexcept KeyboardInterrupt:\n    time.sleep(0.3); print('late')", 1)
    assert cell["status"] == "timeout"
    for i in range(5):
        assert sandbox.ok(f"print({i})")["stdout"] == f"{i}\n"


@pytest.mark.parametrize("code, died", [
    ("import os; os._exit(7)", {"exit_code": 7}),                       # case 10
    ("import ctypes; ctypes.string_at(0)", {"signal": 11}),
    ("import os; os.abort()", {"signal": 6}),
    ("import os; os.kill(os.getpid(), 9)", {"signal": 9}),              # situation 61
    ("import os; os.closerange(3, 256)\n1", {"signal": 6}),             # case 12
], ids=["exit", "segv", "abort", "kill", "closerange"])
def test_death_is_told_and_the_context_goes_on(sandbox, code, died):
    sandbox.ok("x = 1")
    t0 = time.monotonic()
    cell = sandbox.run("print('before', flush=True)\n" + code)
    assert time.monotonic() - t0 < 5
    assert cell["status"] == "died", cell
    assert {k: cell["died"][k] for k in died} == died
    assert cell["memory"] == {"kept": False, "generation": 1, "reason": "died"}
    cell = sandbox.run("'x' in globals()")
    assert cell["status"] == "ok" and cell["state_lost"]["reason"] == "died" and cell["generation"] == 2
    assert cell["execution_count"] == 1


def test_exit_is_told(sandbox):
    """Case 14."""
    sandbox.ok("x = 1")
    cell = sandbox.run("exit()")
    assert cell["status"] == "ok"
    cell = sandbox.run("'x' in globals()")
    assert cell["results"][0]["data"]["text/plain"] == "False" and cell["state_lost"]["reason"] == "exit"
    cell = sandbox.run("import sys; sys.exit(3)")
    assert cell["status"] == "error" and cell["error"]["name"] == "SystemExit" and cell["memory"]["kept"] is True
    assert cell["stderr"] == ""


def test_memory_limit_refuses_cleanly(api):
    """Case 11, situation 88: an allocation over the limit is a MemoryError with the limit in the reply; the session is kept."""
    sb = api.new(memory="512M")
    sb.ok("x = 1")
    cell = sb.run("b = bytearray(4 * 10**9)")
    assert cell["status"] == "error" and cell["error"]["name"] == "MemoryError"
    assert cell["oom"]["limit_bytes"] == 512 << 20 and cell["oom"]["killed"] is False and cell["oom"]["peak_bytes"] > 0
    assert sb.text("x") == "1"
    sb.remove()


def test_out_of_memory_is_told(api):
    """Situations 88, 89."""
    sb = api.new(memory="512M")
    sb.ok("x = 1")
    cell = sb.run("import resource\nresource.setrlimit(resource.RLIMIT_DATA, (-1, -1))\nb = bytearray(10**9)")
    assert cell["status"] == "oom", cell
    assert cell["oom"]["killed"] is True and cell["oom"]["limit_bytes"] == 512 << 20
    assert cell["oom"]["peak_bytes"] > 300 << 20
    cell = sb.run("'x' in globals()")
    assert cell["state_lost"]["reason"] == "oom"
    sb.remove()


def test_endless_printing(sandbox, daemon, api):
    """Case 1, situation 55: memory of the daemon flat, head and tail returned, the other sandbox responsive."""
    other = api.new()
    other.ok("1")
    sandbox.ok("1")
    before = daemon.rss()
    cell = api.post(f"{sandbox.path}/cells", {"code": "i = 0\nwhile True: print(i, 'x' * 1000); i += 1", "timeout": 5, "detach": True})
    slowest = 0.0
    for _ in range(20):
        t0 = time.monotonic()
        assert other.text("1+1") == "2"
        slowest = max(slowest, time.monotonic() - t0)
        time.sleep(0.1)
    end = list(api.events("GET", f"{sandbox.path}/cells/{cell['id']}/stream"))[-1]["cell"]
    assert end["status"] == "timeout"
    full = api.get(f"{sandbox.path}/cells/{cell['id']}")
    cut = full["truncated"]["stdout"]
    assert cut["kept_head"] + cut["kept_tail"] + cut["dropped"] == cut["bytes"] and cut["bytes"] > 5_000_000
    assert full["stdout"].startswith("0 xxx") and "bytes left out" in full["stdout"]
    assert daemon.rss() - before < 64 << 20
    assert slowest < 2
    other.remove()


def test_one_print_of_200_megabytes(sandbox, daemon):
    """Case 3."""
    sandbox.ok("1")
    before = daemon.rss()
    cell = sandbox.run("print('x' * 200_000_000)", timeout=60)
    assert cell["status"] == "ok"
    assert cell["truncated"]["stdout"]["bytes"] == 200_000_001
    assert daemon.rss() - before < 128 << 20


def test_thirty_thousand_flushed_lines(sandbox):
    """Case 2: nothing is lost."""
    cell = sandbox.ok("for i in range(30000): print(i, flush=True)", timeout=60)
    assert cell["stdout"] == "".join(f"{i}\n" for i in range(30000))


@pytest.mark.parametrize("code", [
    "import sys; sys.stdout = None",                    # case 23
    "import sys; sys.stdout.close()",                   # case 24
    "import json; json.dumps = None",                   # case 25
    "import sys, io; sys.stdout = io.StringIO()",       # case 26
], ids=["none", "closed", "json", "stringio"])
def test_a_broken_kernel_comes_back(sandbox, code):
    cell = sandbox.run(code, timeout=3)
    assert cell["status"] in ("ok", "error", "timeout", "died")
    for _ in range(2):
        cell = sandbox.run("print('hello')", timeout=5)
    assert cell["status"] == "ok" and cell["stdout"] == "hello\n"


def test_foreign_bytes(sandbox):
    """Cases 20, 22."""
    cell = sandbox.run("print('a\\udc80b')")
    assert cell["status"] in ("ok", "error")
    assert sandbox.run('"a\\udc80b"')["status"] in ("ok", "error")
    cell = sandbox.ok("import os; os.write(1, b'\\xff\\n'); None")
    assert cell["stdout"] == "\ufffd\n"
    assert sandbox.ok("print('next')")["stdout"] == "next\n"
    assert sandbox.text("float('nan'), float('inf')") == "(nan, inf)"


def test_output_of_children_is_whole_and_in_its_cell(sandbox):
    """1.9: fd 1 of children, large bursts."""
    cell = sandbox.ok("import subprocess; subprocess.run('seq 100000', shell=True); print('end')", timeout=60)
    assert cell["stdout"] == "".join(f"{i}\n" for i in range(1, 100001)) + "end\n"
    cell = sandbox.ok("import ctypes; ctypes.PyDLL(None).printf(b'1' * 100000); ctypes.PyDLL(None).fflush(None)")
    assert cell["stdout"].count("1") == 100000


def test_deep_recursion_is_quick_and_bounded(sandbox):
    """Case 27."""
    t0 = time.monotonic()
    cell = sandbox.run("def f(): return f()\nf()", timeout=30)
    assert cell["error"]["name"] == "RecursionError"
    assert time.monotonic() - t0 < 10 and len("".join(cell["error"]["traceback"])) < 100_000


def test_fork_does_not_leave_a_second_kernel(sandbox):
    """Case 6: and a restart leaves nothing of it."""
    sandbox.run("import os\npid = os.fork()", timeout=10)
    sandbox.api.post(f"{sandbox.path}/contexts/default/restart")
    sandbox.ok("1")
    assert sandbox.kernel_count() == 1


def test_files_run_out(sandbox):
    """Case 13."""
    cell = sandbox.run("fs = [open('/dev/null') for _ in range(10**6)]", timeout=20)
    assert cell["status"] in ("error", "timeout", "died")
    sandbox.run("fs = None", timeout=10)
    assert sandbox.run("1+1", timeout=10)["status"] == "ok"


def test_asyncio_run_gets_a_hint(sandbox):
    """Case 16."""
    cell = sandbox.run("import asyncio\nasync def f(): pass\nasyncio.run(f())")
    assert cell["status"] == "error" and "await" in cell["error"]["value"] + "".join(cell["error"]["traceback"])


def test_user_module_names_do_no_harm(sandbox):
    """Case 35: a random.py beside the code."""
    sandbox.ok("open('/workspace/random.py', 'w').write('raise SystemExit'); None")
    sandbox.api.post(f"{sandbox.path}/contexts/default/restart")
    assert sandbox.text("1+1") == "2"
