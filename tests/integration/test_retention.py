"""How long things are kept: sandboxes that sleep, snapshots. Days pass in the database, while no daemon runs."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest

from cli import Cli
from client import ApiError, Sandbox, wait_for
from test_states import remove_snapshots

DAY = 86400


PARAMS = {"start_kernel": False}


@pytest.fixture(scope="module")
def daemon(states_daemon):
    return states_daemon


@pytest.fixture(autouse=True)
def no_snapshots(api, make):
    yield
    remove_snapshots(api)


def snap(sandbox, name, **params):
    return sandbox.api.post(f"{sandbox.path}/snapshots", {"name": name, "kind": "filesystem", **params})


def names(api):
    return [node["name"] for node in api.get("/api/snapshots")["snapshots"]]


def events(api, kind, **fields):
    lines = [json.loads(line) for line in api.raw("GET", "/api/events").body.splitlines()]
    return [e for e in lines if e["type"] == kind and all(e.get(k) == v for k, v in fields.items())]


def exists(api, node):
    try:
        return bool(api.get(f"/api/snapshots/{node['id']}"))
    except ApiError as error:
        assert error.code == "node_not_found"
        return False


def while_stopped(daemon, sql, *values):
    daemon.stop()
    with closing(sqlite3.connect(daemon.home / "coppice.db")) as db, db:
        assert db.execute(sql, values).rowcount == 1
    daemon.start()


def at(stamp):
    return datetime.fromisoformat(stamp.replace("Z", "+00:00"))


# -- as many as the policy keeps ---------------------------------------------------------------------------------------------


def test_the_newest_are_kept(daemon, api, make):
    sandbox = make(policy={"snapshot_keep": 2})
    assert sandbox.info()["policy"]["snapshot_keep"] == 2
    nodes = [snap(sandbox, f"keep-{i}") for i in range(4)]
    assert names(api) == ["keep-2", "keep-3"]
    assert [e["name"] for e in events(api, "snapshot.removed", sandbox_id=sandbox.id, reason="snapshot_keep")] == ["keep-0", "keep-1"]
    assert not exists(api, nodes[0]) and exists(api, nodes[3])
    wait_for(lambda: not (daemon.home / "nodes" / nodes[0]["id"]).exists())
    snap(sandbox, "keep-0")  # the name is free again
    assert names(api) == ["keep-3", "keep-0"]


def test_others_are_not_counted(api, make):
    sandbox, other = make(policy={"snapshot_keep": 1}), make()
    snap(other, "of-another")
    for i in range(3):
        snap(sandbox, f"mine-{i}")
    assert names(api) == ["of-another", "mine-2"]


def test_a_change_of_the_policy_acts_at_once(api, make):
    sandbox = make()
    for i in range(3):
        snap(sandbox, f"at-once-{i}")
    assert len(names(api)) == 3
    policy = api.call("PATCH", sandbox.path, {"policy": {"snapshot_keep": 1}})["policy"]
    assert policy["snapshot_keep"] == 1 and names(api) == ["at-once-2"]
    assert api.call("PATCH", sandbox.path, {"policy": {"snapshot_keep": None}})["policy"]["snapshot_keep"] == 0


def test_after_a_restart_it_still_counts(daemon, api, make):
    sandbox = make(policy={"snapshot_keep": 2})
    snap(sandbox, "before-1")
    snap(sandbox, "before-2")
    daemon.kill()
    daemon.start()
    assert sandbox.info()["policy"]["snapshot_keep"] == 2
    snap(sandbox, "after")
    assert names(api) == ["before-2", "after"]


def test_one_that_is_needed_only_loses_its_name(daemon, api, make):
    sandbox = make(policy={"snapshot_keep": 1})
    sandbox.exec("echo old > /workspace/f")
    old = snap(sandbox, "needed")
    child = Sandbox(api, api.post("/api/snapshots/needed/sandboxes", {})["sandboxes"][0]["id"])
    snap(sandbox, "newer")
    snap(sandbox, "newest")
    assert names(api) == ["newest"]
    assert "name" not in api.get(f"/api/snapshots/{old['id']}")
    assert len(events(api, "snapshot.removed", node_id=old["id"])) == 1
    assert child.read("/workspace/f") == b"old\n"
    child.remove()
    snap(sandbox, "last")
    wait_for(lambda: not exists(api, old))


def test_memory_snapshots_count_with_the_state_it_stands_on(api, make):
    sandbox = make(policy={"snapshot_keep": 1, "checkpoints": "off"}, start_kernel=True)
    for i in range(3):
        sandbox.ok(f"x = {i}")
        node = sandbox.snapshot(name=f"memory-{i}")
    assert names(api) == ["memory-2"] and sandbox.text("x") == "2"
    assert [n["id"] for n in sandbox.nodes()["nodes"]] == [node["id"]]


# -- until a time --------------------------------------------------------------------------------------------------------------


def test_an_expired_snapshot_goes(daemon, api, make):
    sandbox = make()
    before = datetime.now(timezone.utc)
    node = snap(sandbox, "short", expires_seconds=1.5)
    assert timedelta(seconds=1) < at(node["expires_at"]) - before < timedelta(seconds=120)
    lasting = snap(sandbox, "lasting")
    assert "expires_at" not in lasting
    wait_for(lambda: not exists(api, node), 60)
    assert [e["name"] for e in events(api, "snapshot.removed", node_id=node["id"], reason="expired")] == ["short"]
    assert names(api) == ["lasting"]
    wait_for(lambda: not (daemon.home / "nodes" / node["id"]).exists())


def test_it_expires_while_no_daemon_runs_and_its_sandbox_is_gone(daemon, api, make):
    sandbox = make()
    node, later = snap(sandbox, "orphan", expires_seconds=7 * DAY), snap(sandbox, "later", expires_seconds=8 * DAY)
    sandbox.remove()
    while_stopped(daemon, "UPDATE nodes SET expires_at = ? WHERE id = ?", int((time.time() - 5) * 1e6), node["id"])
    wait_for(lambda: not exists(api, node), 30)
    assert api.get("/api/snapshots/later")["expires_at"] == later["expires_at"]


def test_an_expired_snapshot_that_is_needed_only_loses_its_name(daemon, api, make):
    sandbox = make(start_kernel=True, policy={"checkpoints": "off"})
    sandbox.ok("x = 41")
    node = sandbox.snapshot(name="head", expires_seconds=7 * DAY)
    while_stopped(daemon, "UPDATE nodes SET expires_at = 1 WHERE id = ?", node["id"])
    wait_for(lambda: "name" not in api.get(f"/api/snapshots/{node['id']}"), 30)
    assert "expires_at" not in api.get(f"/api/snapshots/{node['id']}") and names(api) == []
    sandbox.ok("x = 0")
    sandbox.goto(node["id"])
    assert sandbox.text("x") == "41"


@pytest.mark.parametrize("seconds", [0, -1, "7d", 1e12, True])
def test_times_that_cannot_be(api, make, seconds):
    sandbox = make()
    with pytest.raises(ApiError) as error:
        api.post(f"{sandbox.path}/snapshots", {"name": "never", "expires_seconds": seconds})
    assert error.value.code == "bad_request" and "expires_seconds" in error.value.message and names(api) == []


# -- sandboxes that sleep ------------------------------------------------------------------------------------------------------


def asleep_since(daemon, sandbox, days):
    """Asleep, and last used so long ago."""
    if sandbox.info()["state"] != "suspended":
        sandbox.suspend()
    while_stopped(daemon, "UPDATE sandboxes SET last_activity_at = ? WHERE id = ?", int((time.time() - days * DAY) * 1e6), sandbox.id)


def warned(api, sandbox):
    return events(api, "sandbox.retention_ending", sandbox_id=sandbox.id)


def test_the_end_of_a_long_sleep_is_told_before_it_comes(daemon, api, make):
    sandbox = make()
    asleep_since(daemon, sandbox, 11.9)
    info = sandbox.info()
    left = at(info["retained_until"]) - datetime.now(timezone.utc)
    assert timedelta(days=2) < left < timedelta(days=2.2) and "warning" not in info and not warned(api, sandbox)
    asleep_since(daemon, sandbox, 12.5)
    info = sandbox.info()
    assert info["state"] == "suspended" and info["retained_until"] in info["warning"]
    wait_for(lambda: warned(api, sandbox), 30)
    assert warned(api, sandbox)[0]["retained_until"] == info["retained_until"]
    assert info["retained_until"] in Cli(daemon.home).ok("info", sandbox.id).out
    for _ in range(2):  # not again for the same end
        daemon.kill()
        daemon.start()
        other = make()
        asleep_since(daemon, other, 12.9)
        wait_for(lambda: warned(api, other), 30)
        assert len(warned(api, sandbox)) == 1
    assert sandbox.exec("echo used")["stdout"] == "used\n"
    assert "warning" not in sandbox.info()
    sandbox.suspend()
    assert "warning" not in sandbox.info()
    asleep_since(daemon, sandbox, 13)
    wait_for(lambda: len(warned(api, sandbox)) == 2, 30)
    asleep_since(daemon, sandbox, 14.1)
    wait_for(lambda: sandbox.info()["state"] == "ended", 30)
    assert sandbox.info()["ended_reason"] == "retention"


def test_a_short_retention_is_told_in_its_last_quarter(daemon, api, make):
    sandbox = make(policy={"retention_days": 1})
    asleep_since(daemon, sandbox, 17 / 24)
    assert "warning" not in sandbox.info()
    asleep_since(daemon, sandbox, 19 / 24)
    assert "warning" in sandbox.info()
    # A longer one takes it back at once.
    info = api.call("PATCH", sandbox.path, {"policy": {"retention_days": 30}})
    assert info["policy"]["retention_days"] == 30 and "warning" not in info
    assert at(info["retained_until"]) - datetime.now(timezone.utc) > timedelta(days=29)
    assert sandbox.info()["state"] == "suspended", "asking does not wake it"


def test_new_limits_wake_it(daemon, api, make):
    sandbox = make(name="limits-wake")
    sandbox.suspend()
    assert api.call("PATCH", sandbox.path, {"labels": {"a": "b"}, "name": "still-asleep"})["state"] == "suspended"
    assert api.get("/api/sandboxes/still-asleep")["labels"] == {"a": "b"}
    info = api.call("PATCH", sandbox.path, {"memory": "900M"})
    assert info["state"] == "running" and info["limits"]["memory_bytes"] == 900 << 20


def test_what_is_persistent_stays(daemon, api, make):
    sandbox = make(policy={"persistent": True})
    asleep_since(daemon, sandbox, 400)
    other = make(policy={"retention_days": 1})
    asleep_since(daemon, other, 2)
    wait_for(lambda: other.info()["state"] == "ended", 30)
    info = sandbox.info()
    assert info["state"] == "suspended" and "retained_until" not in info and "warning" not in info and not warned(api, sandbox)


# -- as a user types it --------------------------------------------------------------------------------------------------------


def test_verbs(daemon, api, make):
    cli = Cli(daemon.home)
    cli.ok("new", "--name", "cli-kept", "--no-kernel", "--snapshot-keep", "2", "--retention", "30")
    policy = cli.json("info", "cli-kept", "--json")["policy"]
    assert policy["snapshot_keep"] == 2 and policy["retention_days"] == 30
    for i in range(3):
        cli.ok("snapshot", "cli-kept", "--name", f"cli-kept-{i}", "--kind", "filesystem", "--expires", "7d")
    listed = cli.json("snapshot", "ls", "--json")
    assert [n["name"] for n in listed] == ["cli-kept-1", "cli-kept-2"]
    assert timedelta(days=6.9) < at(listed[0]["expires_at"]) - datetime.now(timezone.utc) < timedelta(days=7)
    table = cli.ok("snapshot", "ls").out
    assert "EXPIRES" in table and listed[0]["expires_at"] in table
    assert cli("snapshot", "cli-kept", "--expires", "soon").status == 2
    cli.ok("rm", "cli-kept")
