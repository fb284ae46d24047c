"""The whole life of a session, from an image to its end, as its user sees it."""

from __future__ import annotations

import pytest

from client import Sandbox, wait_for
from test_daemon_death import processes_of
from test_states import nodes_on_disk, remove_snapshots

DAEMON = "states_daemon"
IMAGE = "/api/images/code-interpreter"
INDEX = "/workspace/index/simple/coppice-probe"


@pytest.fixture
def golden(api):
    yield api.post(f"{IMAGE}/warm", {"code": "import pandas as pd, numpy as np, matplotlib.pyplot as plt"}, timeout=300)
    api.delete(f"{IMAGE}/warm")


def install(sb: Sandbox, wheel) -> None:
    """With pip, from an index on the sandbox's own loopback."""
    sb.exec(["mkdir", "-p", INDEX])
    sb.write(f"{INDEX}/{wheel.name}", wheel.read_bytes())
    sb.write(f"{INDEX}/index.html", f'<a href="{wheel.name}">{wheel.name}</a>'.encode())
    index = sb.exec("cd /workspace/index && exec python3 -m http.server 8300 --bind 127.0.0.1", detach=True)
    ready = sb.exec("curl -sS --retry 100 --retry-delay 1 --retry-connrefused http://127.0.0.1:8300/simple/coppice-probe/")
    assert wheel.name in ready["stdout"], ready
    done = sb.ok("%pip install --index-url http://127.0.0.1:8300/simple coppice-probe", timeout=120)
    assert "Successfully installed" in done["stdout"], done
    sb.api.post(f"{sb.path}/commands/{index['id']}/kill", {"signal": "KILL"})


def served(sb: Sandbox) -> str:
    return sb.exec("curl -sS --retry 100 --retry-delay 1 --retry-connrefused http://127.0.0.1:8200/")["stdout"]


def rows(sb: Sandbox) -> list[int]:
    return eval(sb.text("[n for n, in db.execute('select n from t')]"))


def saved(sb: Sandbox, cell) -> None:
    wait_for(lambda: any(n.get("cell_id") == cell["id"] for n in sb.nodes()["nodes"]), 60)


def test_the_whole_life(states_daemon, api, golden, wheel):
    """image -> warm -> golden -> new -> work -> idle -> suspend -> wake -> checkpoint -> risky step -> undo -> fork in two ->
    compare -> keep the winner -> end"""
    before = nodes_on_disk(states_daemon)
    sb = api.new(name="life")
    assert sb.info()["origin"]["golden"] is True
    assert sb.text("import sys; 'pandas' in sys.modules") == "True"
    install(sb, wheel)
    sb.exec("cd /workspace && exec python3 -m http.server 8200 --bind 127.0.0.1", detach=True)
    sb.ok("import os, sqlite3, coppice_probe, pandas as pd; db = sqlite3.connect('/workspace/w.db'); db.execute('pragma journal_mode=wal')\n"
          "db.execute('create table t (n)'); db.execute('insert into t values (1)'); db.commit(); frame = pd.DataFrame({'a': [1, 2, 3]})")
    assert "w.db" in served(sb)
    pid = sb.text("os.getpid()")

    api.call("PATCH", sb.path, {"policy": {"idle_seconds": 1}})
    wait_for(lambda: sb.info()["state"] == "suspended", 60)
    assert not processes_of(sb.id)
    api.call("PATCH", sb.path, {"policy": {"idle_seconds": 0}})
    assert sb.text("os.getpid(), int(frame.a.sum()), coppice_probe.answer()") == f"({pid}, 6, 42)", "woken by the cell"
    assert rows(sb) == [1] and "w.db" in served(sb)

    saved(sb, sb.ok("good = 'before'"))
    sb.ok("db.execute('drop table t'); db.commit(); import shutil; frame = good = None; open('/workspace/mess', 'w').write('x')")
    assert sb.undo()["memoryRestored"] is True
    assert sb.text("good, int(frame.a.sum()), os.path.exists('/workspace/mess')") == "('before', 6, False)"
    assert rows(sb) == [1]

    left, right = sb.fork(count=2)
    for child, score in ((left, 10), (right, 20)):
        child.ok(f"db.execute('insert into t values ({score})'); db.commit(); score = {score}; open('score', 'w').write('{score}')")
    reply = api.get("/api/diff", a=left.id, b=right.id)
    assert [v["name"] for v in reply["variables"]["changes"]] == ["score"]
    assert {f["path"] for f in reply["files"]["changes"]} >= {"/workspace/score"}
    kept = api.post(f"{right.path}/keep", {"drop_siblings": True})
    assert [r["id"] for r in kept["removed"]] == [left.id] and kept["sandbox"]["policy"]["persistent"] is True
    assert rows(right) == [1, 20] and rows(sb) == [1]
    assert "w.db" in served(right), "the web server came along"
    for sandbox in (sb, right):
        sandbox.remove()
    remove_snapshots(api)
    wait_for(lambda: nodes_on_disk(states_daemon) == before, 30)
