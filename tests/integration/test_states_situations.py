"""Rows of the list of situations that broke other code interpreters, about pause, resume, clock, entropy and forks; the number is
in each test's name."""

from __future__ import annotations

import json
import threading
import time

import pytest

from client import ApiError, wait_for
from conftest import remove
from test_states import nodes_on_disk, remove_snapshots


DAEMON = "states_daemon"


@pytest.fixture(scope="module")
def shared(api):
    """One for all tests that leave it awake and whole."""
    sandbox = api.new(name="situations")
    yield sandbox
    remove(sandbox)


def test_1_3_7_thirty_rounds(states_daemon, shared):
    """Every round a file and a variable, nothing of any round is lost; the daemon is killed with -9 in one of them."""
    shared.ok("kept = {}; import os; pid = os.getpid(); os.makedirs('/workspace/rounds')")
    first = shared.info()["contexts"][0]["kernel_pid"]
    for n in range(30):
        shared.ok(f"kept[{n}] = 'v{n}'; open('/workspace/rounds/f{n}', 'w').write('content {n}')")
        shared.suspend()
        if n == 10:
            states_daemon.kill()
            states_daemon.start()
        if n % 3:
            assert shared.resume()["memoryRestored"] is True
    assert shared.text("kept == {n: f'v{n}' for n in range(30)}, pid == os.getpid()") == "(True, True)"
    assert shared.text("[open(f'/workspace/rounds/f{n}').read() for n in range(30)] == [f'content {n}' for n in range(30)]") == "True"
    assert shared.text("len(os.listdir('/workspace/rounds'))") == "30"
    assert shared.info()["contexts"][0]["kernel_pid"] == first


def test_what_sleeps_costs_no_descriptor(states_daemon, make):
    """The daemon has none of a sandbox that sleeps, and no more after some wakes and undos than before."""
    sandbox = make()
    for n in range(5):
        sandbox.ok(f"x = {n}")
        sandbox.suspend()
        wait_for(lambda: not any(sandbox.id in name or "/trash/" in name for name in states_daemon.open_files()))
        sandbox.resume()
        sandbox.ok("x = -1")
        if n == 1:
            awake = len(states_daemon.open_files())
        sandbox.undo()
        assert sandbox.text("x") == str(n)
    # Each of seven wakes since then would have left one; clients and kernels come and go.
    wait_for(lambda: len(states_daemon.open_files()) < awake + 5)


def test_wakes_with_checkpoints_in_between(make):
    """An image is the parent of the next, whatever was written since; a state that its own reader refuses is no state."""
    sandbox = make()
    sandbox.ok("kept = {}; import os; pid = os.getpid()")
    for n in range(25):
        sandbox.ok(f"kept[{n}] = 'v{n}'; open('/workspace/f{n}', 'w').write('content {n}')")
        sandbox.suspend()
        if n % 3:
            assert sandbox.resume()["memoryRestored"] is True
        assert sandbox.text(f"kept == {{n: f'v{{n}}' for n in range({n + 1})}}, pid == os.getpid()") == "(True, True)"


def test_files_in_memory(make):
    """Named shared memory, locks by which new processes find it, and sockets and files in /run: with the memory, in every state."""
    sandbox = make()
    sandbox.ok("""
import multiprocessing, os, socket
from multiprocessing import shared_memory
spawn = multiprocessing.get_context("spawn")
lock, memory = spawn.Lock(), shared_memory.SharedMemory("kept", create=True, size=3 << 20)
memory.buf[-1] = 41
server = socket.socket(socket.AF_UNIX)
server.bind("/run/lock/server.sock"); server.listen()
open("/run/lock/server.pid", "w").write("17")
""")
    check = """
memory.buf[-1] += 1
again = shared_memory.SharedMemory("kept")
client = socket.socket(socket.AF_UNIX); client.connect("/run/lock/server.sock"); client.close(); server.accept()[0].close()
seen = again.buf[-1], open("/run/lock/server.pid").read(), os.path.exists("/dev/shm/sem." + lock._semlock.name[1:])
again.close()
"""
    sandbox.ok(check)
    assert sandbox.text("seen") == "(42, '17', True)"
    sandbox.suspend()
    assert sandbox.resume()["memoryRestored"] is True
    sandbox.ok(check)
    assert sandbox.text("seen") == "(43, '17', True)"
    sandbox.ok("os.unlink('/run/lock/server.pid'); memory.buf[-1] = 7")
    sandbox.undo(1)
    sandbox.ok(check)
    assert sandbox.text("seen") == "(44, '17', True)"


def test_4_resume_without_a_wait(shared):
    for _ in range(3):
        shared.suspend()
        assert shared.resume()["state"] == "running"


def test_6_the_command_line_leaves_its_settings_alone(make, cli):
    """A client's own default must not become the sandbox's."""
    sandbox = make(ttl_seconds=1800, policy={"idle_seconds": 777})
    before = sandbox.info()
    cli.ok("run", sandbox.id, "1")
    cli.ok("suspend", sandbox.id)
    cli.ok("exec", sandbox.id, "true")
    cli.ok("resume", sandbox.id)
    after = sandbox.info()
    assert after["policy"] == before["policy"] and after["policy"]["idle_seconds"] == 777
    assert (after["ttl_seconds"], after["expires_at"]) == (before["ttl_seconds"], before["expires_at"]) and after["ttl_seconds"] == 1800


def test_8_looking_during_a_resume(api, shared):
    shared.suspend()
    states, stop = set(), threading.Event()

    def look():
        while not stop.is_set():
            states.add(shared.info()["state"])  # raises for a 404

    looker = threading.Thread(target=look)
    looker.start()
    shared.resume()
    stop.set()
    looker.join()
    assert states <= {"suspended", "resuming", "running"}, states


def test_9_no_resume_and_no_body(api, shared):
    shared.suspend()
    assert shared.text("6 * 7") == "42"
    shared.suspend()
    reply = api.raw("POST", f"{shared.path}/resume")
    assert reply.status == 200 and reply.json()["memoryRestored"] is True


def test_12_a_suspend_and_a_request_at_once(api, shared):
    """In whatever order they arrive, the request is answered and what it needs is awake for it."""
    for n in range(12):
        suspending = threading.Thread(target=shared.suspend)
        if n % 2:
            suspending.start()
            time.sleep(n * 0.002)
        answer = []
        asking = threading.Thread(target=lambda answer=answer, n=n: answer.append(shared.text(f"{n}")))
        asking.start()
        if n % 2 == 0:
            time.sleep(n * 0.001)
            suspending.start()
        suspending.join()
        asking.join()
        assert answer == [str(n)]


def test_13_ten_resumes_at_once(shared):
    shared.suspend()
    replies, faults = [], []

    def resume():
        try:
            replies.append(shared.resume())
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=resume) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    assert {r["id"] for r in replies} == {shared.id} and all(r["memoryRestored"] for r in replies)
    assert len({r["resume_ms"] for r in replies}) == 1, "it was woken once"
    assert shared.kernel_count() == 1


def test_15_a_body_in_chunks_is_read(api, shared):
    # An iterator has no length: http.client sends it in chunks.
    body = iter([b'{"kind": ', b'"filesystem"}'])
    reply = api.raw("POST", f"{shared.path}/snapshots", body, {"Content-Type": "application/json"})
    assert reply.status == 201 and reply.json()["kind"] == "files"
    api.delete(f"/api/snapshots/{reply.json()['id']}")
    reply = api.raw("POST", f"{shared.path}/suspend", iter([json.dumps({"keep_memory": False}).encode()]),
                    {"Content-Type": "application/json"})
    assert reply.status == 400 and "keep_memory" in reply.json()["message"], "what is not understood is refused, not passed over"


def test_18_a_detached_command_is_running(api, shared):
    command = shared.exec("sleep 1000", detach=True)
    shared.suspend()
    shared.resume()
    assert api.get(f"{shared.path}/commands/{command['pid']}")["status"] == "running"
    # A process that was woken may still wait for a processor (R) before it sleeps on.
    stat = f"cut -d' ' -f3 /proc/{command['pid']}/stat"
    wait_for(lambda: shared.exec(stat)["stdout"].strip() == "S")
    api.post(f"{shared.path}/commands/{command['pid']}/kill", {"signal": "KILL"})
    wait_for(lambda: api.get(f"{shared.path}/commands/{command['pid']}")["status"] == "killed")


TERMINAL = """
import os, pty, select
def ask(line):
    os.write(fd, line.encode() + b'\\n')
    seen = b''
    while b'=' + b'<' not in seen or not seen.rstrip().endswith(b'>='):
        assert select.select([fd], [], [], 20)[0], seen
        seen += os.read(fd, 4096)
    return seen
pid, fd = pty.fork()
if pid == 0:
    os.execvp('sh', ['sh'])
os.write(fd, b'stty -echo; PS1=; n=0\\n')
"""


def test_19_a_shell_on_a_terminal(api, make):
    """Someone is at a terminal of the sandbox when it is saved: it sleeps, and its copies have terminals of their own."""
    sandbox = make({"checkpoints": "off"})
    sandbox.ok(TERMINAL)
    code = "n=$((n+1)); echo \"=<$n $(test -t 0 && echo tty)>=\""
    look = f"ask({code!r})[-12:]"
    assert "=<1 tty>=" in sandbox.text(look)
    sandbox.suspend()
    assert sandbox.resume()["memoryRestored"] is True
    assert "=<2 tty>=" in sandbox.text(look)
    (child,) = sandbox.fork()
    try:
        assert "=<3 tty>=" in child.text(look) and "=<3 tty>=" in sandbox.text(look)
    finally:
        child.remove()


def test_20_a_restore_that_fails_says_why_and_keeps_the_state(states_daemon, make):
    """Each kind of damage is named; put right, the same state comes back."""
    sandbox = make({"checkpoints": "off"})
    sandbox.ok("x = 'kept'")
    sandbox.suspend()
    image = states_daemon.home / "nodes" / sandbox.info()["node_id"] / "mem/meta.img"
    whole = image.read_bytes()
    for damaged in (b"", whole[:100], whole[:-8], whole[:64] + bytes([whole[64] ^ 1]) + whole[65:], b"no image" + whole[8:]):
        image.write_bytes(damaged)
        with pytest.raises(ApiError) as error:
            sandbox.resume(require_memory=True)
        assert error.value.code in ("image_damaged", "restore_failed", "unsupported") and "meta.img" in error.value.message, error.value
        assert sandbox.info()["state"] == "suspended"
    image.write_bytes(whole)
    assert sandbox.resume(require_memory=True)["memoryRestored"] is True
    assert sandbox.text("x") == "'kept'"


def test_25_a_program_whose_terminal_is_gone(make):
    sandbox = make({"checkpoints": "off"})
    sandbox.ok("""
import os, pty, signal, time
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.execvp('sh', ['sh', '-c', 'trap "" HUP; n=0; while :; do n=$((n+1)); echo $n > /tmp/alive; sleep 0.1; done'])
time.sleep(0.5)
os.close(fd)
""")
    alive = lambda: sandbox.exec("cat /tmp/alive")["stdout"]  # noqa: E731
    wait_for(alive)
    for _ in range(2):
        sandbox.suspend()
        assert sandbox.resume()["memoryRestored"] is True
        seen = alive()
        wait_for(lambda: alive() not in ("", seen))


def test_files_of_the_image_that_are_removed_while_they_are_open(make):
    """As an update of packages does it.  They lie on a lower layer, where they keep their names: the overlay tells of those."""
    sandbox = make({"checkpoints": "off"})
    sandbox.ok("""
import os, subprocess
lib = os.path.dirname(os.__file__)
names = [lib + '/wsgiref/' + n for n in ('handlers.py', 'headers.py', 'simple_server.py')]
kept, changed, replaced = (open(n, 'rb') for n in names)
was = [open(n, 'rb').read() for n in names]
os.chdir(lib + '/xmlrpc')
folder = os.open('.', os.O_RDONLY)
program = subprocess.Popen(['sleep', '1000'])
subprocess.run(['sudo', 'sh', '-ec', 'echo "# changed" >> $1; cp $2 /tmp/new; mv /tmp/new $2; rm -r $0 $1 $3 $4', *names, os.getcwd(),
                '/usr/bin/sleep'], check=True)
""")
    for _ in range(2):
        sandbox.suspend()
        assert sandbox.resume()["memoryRestored"] is True
        assert sandbox.text("[f.seek(0) or f.read() for f in (kept, changed, replaced)] == "
                            "[was[0], was[1] + b'# changed\\n', was[2]]") == "True"
        assert sandbox.text("os.stat('.').st_ino == os.fstat(folder).st_ino") == "True"
        assert sandbox.text("[os.path.exists(n) for n in (*names, lib + '/xmlrpc')]") == "[False, False, True, False]"
        assert sandbox.text("program.poll(), os.readlink(f'/proc/{program.pid}/exe')") == "(None, '/usr/bin/sleep (deleted)')"


def test_21_after_plots_and_tables(shared):
    shared.ok("import matplotlib.pyplot as plt, pandas as pd; plt.plot([1, 2]); plt.show(); pd.DataFrame({'a': [1]})", timeout=60)
    shared.suspend()
    cell = shared.ok("plt.plot([2, 1]); plt.show(); pd.DataFrame({'b': [2]})")
    assert any("image/png" in r["data"] for r in cell["results"]) and any("text/html" in r["data"] for r in cell["results"])


def test_23_eight_branches_of_one_snapshot_at_once(api, shared):
    shared.ok("branch = 'base'")
    node = shared.snapshot()
    children = api.post(f"/api/snapshots/{node['id']}/sandboxes", {"count": 8})["sandboxes"]
    assert all(c.get("state") == "running" for c in children), children
    pids, faults = [], []

    def use(child, n):
        try:
            path = f"/api/sandboxes/{child['id']}"
            cell = api.post(f"{path}/cells", {"code": f"branch += '-{n}'; branch, os.getpid()", "timeout": 30})
            assert cell["status"] == "ok", cell
            pids.append(cell["results"][0]["data"]["text/plain"])
            api.delete(path)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=[c, n]) for n, c in enumerate(children)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    assert len({p.split(",")[1] for p in pids}) == 1, "the same pid, each in its own namespace"
    assert {p.split("'")[1] for p in pids} == {f"base-{n}" for n in range(8)}
    assert shared.text("branch") == "'base'"


def test_26_27_28_the_clock_is_right_at_once_and_stays_so(shared):
    shared.ok("import time; before = time.time(), time.monotonic()")
    shared.suspend()
    time.sleep(3)
    asked = time.time()
    cell = shared.ok("time.time(), time.monotonic() - before[1]")
    wall, monotonic = json.loads(cell["results"][0]["data"]["text/plain"].replace("(", "[").replace(")", "]"))
    assert asked - 0.5 < wall < time.time() + 0.5
    assert 0 <= monotonic < 60
    time.sleep(3)
    before = time.time()
    date = float(shared.exec("date +%s.%N")["stdout"])
    assert before - 0.5 < date < time.time() + 0.5


def test_31_32_forks_have_their_own_entropy_and_identity(shared):
    shared.ok("import os, uuid, random, socket, secrets; random.seed()")
    children = shared.fork(count=2)
    code = "os.urandom(16).hex(), str(uuid.uuid4()), secrets.token_hex(), socket.gethostname()"
    values = [sandbox.text(code).strip("()").split(", ") for sandbox in (shared, *children)]
    for column in zip(*values):
        assert len(set(column)) == 3, column
    names = [sandbox.exec("hostname")["stdout"].strip() for sandbox in (shared, *children)]
    assert len(set(names)) == 3
    for child in children:
        child.remove()


def test_34_a_snapshot_holds_what_was_there_then(api, shared):
    """What came after it is in no sandbox made from it, nor is what another child did."""
    shared.ok("import os")
    shared.snapshot(name="clean")
    shared.ok("secret = 'hunter2'; open('/workspace/secret', 'w').write(secret); os.environ['TOKEN'] = 'hunter2'")
    first = api.new(**{"from": "clean"})
    first.ok("mine = 'of the first'; open('/workspace/mine', 'w').write(mine)")
    second = api.new(**{"from": "clean"})
    for sandbox in (first, second):
        assert sandbox.text("'secret' in globals(), os.path.exists('/workspace/secret'), os.environ.get('TOKEN')") == "(False, False, None)"
    assert second.text("'mine' in globals(), os.path.exists('/workspace/mine')") == "(False, False)"
    first.remove()
    second.remove()
    api.delete("/api/snapshots/clean")


def test_37_secrets_are_no_fork_s_unless_asked_for(make):
    """Those that were given as environment; what a program holds in its memory is part of the state that was asked for."""
    sandbox = make(env={"TOKEN": "hunter2"})
    sandbox.ok("1")
    (plain,), (told,) = sandbox.fork(), sandbox.fork(env="inherit")
    try:
        assert plain.info()["env"] == {} and plain.exec("echo $TOKEN")["stdout"] == "\n"
        assert told.info()["env"] == {"TOKEN": "hunter2"} and told.exec("echo $TOKEN")["stdout"] == "hunter2\n"
    finally:
        plain.remove()
        told.remove()


def test_61_a_killed_kernel_is_told_and_the_way_back_is_named(make, api):
    sandbox = make()
    first = sandbox.ok("x = 'hours of work'")
    node = wait_for(lambda: next((n for n in sandbox.nodes()["nodes"] if n.get("cell_id") == first["id"]), None), 60)
    died = sandbox.run("import os; os.kill(os.getpid(), 9)")
    assert died["status"] == "died" and died["checkpoint"] == node["id"]
    told = sandbox.ok("1")
    assert told["state_lost"]["reason"] == "died" and told["memory"]["kept"] is False
    assert "state_lost" not in sandbox.ok("2"), "once"
    sandbox.goto(died["checkpoint"])
    assert sandbox.text("x") == "'hours of work'"


COUNTS = {"a cell": lambda s: s.ok("1"), "a command": lambda s: s.exec("true"), "a file that is read": lambda s: s.read("/etc/hostname"),
          "a file that is written": lambda s: s.write("/tmp/f", b"x"), "a snapshot": lambda s: s.api.delete(f"/api/snapshots/{s.snapshot()['id']}"),
          "a new context": lambda s: s.api.post(f"{s.path}/contexts", {}), "a resume": lambda s: s.resume(),
          "a label": lambda s: s.api.call("PATCH", s.path, {"labels": {"a": "b"}})}
COUNTS_NOT = {"its view": lambda s: s.info(), "the list": lambda s: s.api.get("/api/sandboxes"), "its cells": lambda s: s.api.get(f"{s.path}/cells"),
              "its nodes": lambda s: s.nodes(), "its commands": lambda s: s.api.get(f"{s.path}/commands"), "its log": lambda s: s.api.raw("GET", f"{s.path}/logs"),
              "its contexts": lambda s: s.api.get(f"{s.path}/contexts"), "events": lambda s: s.api.raw("GET", "/api/events")}


def test_80_84_what_keeps_it_awake(make):
    """The table of what counts as use.  Coming again and again to look does not."""
    sandbox = make({"checkpoints": "off"})
    sandbox.ok("1")
    last = lambda: sandbox.info()["last_activity_at"]  # noqa: E731
    for what, call in COUNTS.items():
        before = last()
        call(sandbox)
        assert last() > before, what
    before = last()
    for what, call in COUNTS_NOT.items():
        for _ in range(3):
            call(sandbox)
        assert last() == before, what


def test_81_policies_live_as_long_as_their_sandbox(states_daemon, make):
    """Whatever becomes of the client that set them, and of the daemon."""
    policy = {"idle_seconds": 1, "persistent": True, "checkpoints": "before_cell", "on_timeout": "restore", "checkpoint_keep": 7,
              "checkpoint_bytes": 1 << 30, "retention_days": 3, "replay": "pure", "snapshot_keep": 2}
    sandbox = make(policy, ttl_seconds=1)
    assert sandbox.info()["policy"] == policy, "readable at once"
    sandbox.ok("x = 1")
    states_daemon.kill()
    states_daemon.start()
    assert sandbox.info()["policy"] == policy
    wait_for(lambda: sandbox.info()["state"] == "suspended", 60)
    states_daemon.stop()
    states_daemon.start()
    time.sleep(1.5)  # past its ttl, which does not count for what is persistent
    info = sandbox.info()
    assert (info["state"], info["policy"], info["ttl_seconds"]) == ("suspended", policy, 1)
    assert sandbox.text("x") == "1"


def test_88_the_memory_limit_holds_after_a_resume(api):
    sandbox = api.new(memory="512M")
    sandbox.ok("x = bytearray(50 << 20)")
    sandbox.suspend()
    assert sandbox.resume()["limits"]["memory_bytes"] == 512 << 20
    cell = sandbox.run("y = bytearray(b'x' * (900 << 20))", timeout=60)
    assert cell["status"] in ("oom", "error"), cell
    assert cell["oom"]["limit_bytes"] == 512 << 20
    sandbox.remove()


def test_nothing_is_left(states_daemon, api, shared):
    remove_snapshots(api)
    api.delete("/api/sandboxes", all="true")
    wait_for(lambda: nodes_on_disk(states_daemon) == [])
    with pytest.raises(ApiError) as error:
        shared.info() if shared.info()["state"] != "ended" else shared.resume()
    assert error.value.code == "sandbox_ended"
