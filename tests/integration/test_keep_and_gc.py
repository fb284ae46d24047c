"""The winner of a fork, and what nobody needs any more."""

from __future__ import annotations

import os
import subprocess
import threading

import pytest

from cli import Cli
from client import ApiError, Sandbox, wait_for


@pytest.fixture(scope="module")
def api(own_daemon):
    return own_daemon.api


@pytest.fixture(scope="module")
def cli(own_daemon):
    return Cli(own_daemon.home)


@pytest.fixture(autouse=True)
def nothing_left(api, own_daemon):
    yield
    api.delete("/api/sandboxes", all="true")
    for node in api.get("/api/snapshots")["snapshots"]:
        api.delete(f"/api/snapshots/{node['id']}")
    gc(api)


def gc(api, **params):
    return api.post("/api/gc", params)


def usage(daemon, folder: str = "nodes") -> int:
    path = daemon.home / folder
    return int(subprocess.run(["du", "-sB1", path], stdout=subprocess.PIPE, check=True).stdout.split()[0]) if path.exists() else 0


def nodes_on_disk(daemon) -> set[str]:
    folder = daemon.home / "nodes"
    return set(os.listdir(folder)) if folder.exists() else set()


def alive(api) -> dict[str, str]:
    return {s["id"]: s["state"] for s in api.get("/api/sandboxes")["sandboxes"]}


# -- keep ------------------------------------------------------------------------------------------------------------------

def test_keep_makes_it_persistent_and_no_more(api):
    sb = api.new()
    a, b = sb.fork(count=2)
    a.suspend()
    reply = api.post(f"{a.path}/keep", {})
    assert reply["removed"] == [] and reply["sandbox"]["policy"]["persistent"] is True
    assert alive(api) == {sb.id: "running", a.id: "suspended", b.id: "running"}, "what sleeps is not woken"
    assert a.info()["policy"]["persistent"] is True and b.info()["policy"]["persistent"] is False
    api.post(f"{sb.path}/keep", {"drop_siblings": False})
    assert sb.info()["policy"]["persistent"] is True


def test_the_winner_of_a_fork(api):
    sb = api.new()
    sb.ok("x = 'before'; open('f', 'w').write('before')")
    a, b, c = sb.fork(count=3)
    (other,) = sb.fork()
    (grandchild,) = b.fork()
    b.ok("x = 'best'")
    b.suspend()
    c.suspend()
    reply = api.post(f"{b.path}/keep", {"drop_siblings": True})
    assert {(r["id"], r["removed"]) for r in reply["removed"]} == {(a.id, True), (c.id, True)}
    assert reply["sandbox"]["id"] == b.id and reply["sandbox"]["state"] == "suspended"
    assert set(alive(api)) == {sb.id, b.id, other.id, grandchild.id}, "source, other forks and its own copies stay"
    assert alive(api)[b.id] == "suspended"
    assert api.post(f"{b.path}/keep", {"drop_siblings": True})["removed"] == []
    gc(api)
    sb.remove()
    gc(api)
    b.resume(require_memory=True)
    assert b.text("x, open('f').read()") == "('best', 'before')", "nothing that it stands on went"


def test_who_has_no_siblings(api):
    sb = api.new()
    node = sb.snapshot(name="keep-snap")["id"]
    made = [Sandbox(api, api.post("/api/sandboxes", {"from": "keep-snap"})["id"]) for _ in range(2)]
    for one in (sb, made[0]):
        with pytest.raises(ApiError) as caught:
            api.post(f"{one.path}/keep", {"drop_siblings": True})
        assert caught.value.code == "invalid_state" and one.info()["policy"]["persistent"] is False
    assert set(alive(api)) == {sb.id, made[0].id, made[1].id}, "made from a snapshot, not by one fork"
    for ref, body, expected in [("nobody", {}, "sandbox_not_found"), (sb.id, {"drop_siblings": 1}, "bad_request"), (sb.id, {"x": 1}, "bad_request")]:
        with pytest.raises(ApiError) as caught:
            api.post(f"/api/sandboxes/{ref}/keep", body)
        assert caught.value.code == expected
    api.delete(f"/api/snapshots/{node}")


def test_keep_on_the_command_line(cli, api):
    cli.ok("new", "--name", "k-src")
    cli.ok("fork", "k-src", "-n", "3", "--name", "k")
    done = cli.ok("keep", "k-2", "--drop-siblings")
    assert done.out.strip() == cli.json("info", "k-2", "--json")["id"]
    assert "(k-1)" in done.err and "(k-3)" in done.err and "(k-2)" not in done.err
    assert {s.get("name") for s in api.get("/api/sandboxes")["sandboxes"]} == {"k-src", "k-2"}
    assert cli.json("keep", "k-src", "--json")["removed"] == []
    assert cli("keep", "k-src", "--drop-siblings").status == 1
