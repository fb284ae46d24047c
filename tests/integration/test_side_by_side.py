"""Many at once: several clients do what comes to their minds with sandboxes of their own and with each other's copies, and each keeps
account of what memory and files must be.  The order is drawn; a failure names the seed it was drawn from."""

from __future__ import annotations

import os
import random
import re
import threading
import traceback
from dataclasses import dataclass

from client import Sandbox, wait_for
from test_daemon_death import processes_of
from test_states import nodes_on_disk

CLIENTS, STEPS, MOST = 4, 60, 3
AWAKE = {"idle_seconds": 0}


@dataclass
class Branch:
    """A sandbox and what it must hold after each of its cells: the last is the present, the first cannot be undone."""

    sandbox: Sandbox
    values: list[int]

    def cell(self, code: str, value: int) -> str:
        text = self.sandbox.text(code)
        self.values.append(value)
        return text


class Client:
    def __init__(self, api, seed: str):
        self.api, self.draw, self.branches, self.failure = api, random.Random(seed), [], None

    # -- what it may do ----------------------------------------------------------------------------------------------

    def new(self, branch=None):
        sandbox = self.api.new(policy=AWAKE)
        sandbox.ok("v = 0; open('/workspace/v', 'w').write('0')")
        self.branches.append(Branch(sandbox, [0]))

    def fork(self, branch):
        copy = branch.sandbox.fork(policy=AWAKE)[0]
        self.branches.append(Branch(copy, branch.values[-1:]))

    def write(self, branch):
        value = self.draw.randrange(1, 10**6)
        branch.cell(f"v = {value}; open('/workspace/v', 'w').write(str(v))", value)

    def read(self, branch):
        value = branch.values[-1]
        assert branch.cell("v, open('/workspace/v').read()", value) == f"({value}, '{value}')"

    def look(self, branch):
        assert branch.sandbox.exec("cat /workspace/v")["stdout"] == str(branch.values[-1])

    def suspend(self, branch):
        branch.sandbox.suspend()

    def resume(self, branch):
        assert branch.sandbox.resume()["memoryRestored"] is not False

    def undo(self, branch):
        steps = min(self.draw.choice([1, 1, 2]), len(branch.values) - 1)
        if steps:
            branch.sandbox.undo(steps)
            del branch.values[-steps:]

    def snapshot(self, branch):
        node = branch.sandbox.snapshot()
        [copy] = self.api.post(f"/api/snapshots/{node['id']}/sandboxes", {"policy": AWAKE})["sandboxes"]
        copy = Sandbox(self.api, copy["id"])
        self.api.delete(f"/api/snapshots/{node['id']}")
        assert copy.text("v, open('/workspace/v').read()") == f"({branch.values[-1]}, '{branch.values[-1]}')"
        copy.remove()

    def remove(self, branch):
        branch.sandbox.remove()
        self.branches.remove(branch)

    # -- doing it ----------------------------------------------------------------------------------------------------

    STEPS = {write: 8, read: 5, look: 3, suspend: 4, resume: 2, undo: 4, snapshot: 1, fork: 3, new: 1, remove: 1}

    def step(self):
        [what] = self.draw.choices(list(self.STEPS), self.STEPS.values()) if self.branches else [Client.new]
        if not (what in (Client.new, Client.fork) and len(self.branches) >= MOST):
            what(self, self.draw.choice(self.branches) if self.branches else None)

    def run(self):
        try:
            for _ in range(STEPS):
                self.step()
            for branch in self.branches:
                self.read(branch)
        except Exception:  # of any kind: the thread has nobody else to tell
            self.failure = traceback.format_exc()


def left_open(daemon) -> set[str]:
    """Folders of sandboxes, there or removed, in which the daemon has something open."""
    return {match[0] for name in daemon.open_files() if (match := re.search(r"/(sandboxes|trash)/[^/]+", name))}


def test_nobody_gets_what_is_another_s(sparing_daemon):
    seed = os.environ.get("COPPICE_SEED") or str(random.randrange(10**9))
    clients = [Client(sparing_daemon.api, f"{seed}/{n}") for n in range(CLIENTS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [client.failure for client in clients if client.failure]
    assert not failures, f"COPPICE_SEED={seed}\n" + "\n".join(failures)

    ids = [s["id"] for s in sparing_daemon.api.get("/api/sandboxes")["sandboxes"]]
    assert len(ids) == sum(len(client.branches) for client in clients)
    sparing_daemon.api.delete("/api/sandboxes", all="true")
    wait_for(lambda: not any(map(processes_of, ids)), 60)
    wait_for(lambda: not nodes_on_disk(sparing_daemon), 60)
    wait_for(lambda: len(left_open(sparing_daemon)) <= 1, 60)  # the empty one that is kept for the next fork
