"""Every call of api/openapi.yaml once, with its reply checked (Api.checker does that for all tests; here nothing is left out)."""

from __future__ import annotations

import json

import pytest
from client import Api, ApiError

# Takes minutes and a mirror: tests/image builds for real.
NOT_HERE = {"POST /api/images/build"}
# test_states.py, test_policies.py, test_packs.py, test_diff.py and test_keep_and_gc.py make these.
STATES = ("/suspend", "/resume", "/snapshots", "/snapshots/{node}", "/snapshots/{node}/sandboxes", "/fork", "/undo", "/redo", "/goto", "/nodes", "/warm", "/keep", "/gc", "/pack", "/diff", "/take")


def raw(api, method, path, body=None, headers=None):
    reply = api.raw(method, path, body, headers)
    Api.checker(method, path, None, reply)
    assert reply.status < 400, reply.body
    return reply


def test_every_call(api, image_dir):
    for path in ["health", "info", "doctor", "images"]:
        api.get(f"/api/{path}")
    raw(api, "GET", "/api/openapi.yaml")
    token = api.post("/api/tokens", {"name": "every"})
    api.get("/api/tokens")
    api.delete(f"/api/tokens/{token['id']}")
    image = api.get("/api/images")["images"][0]
    api.get(f"/api/images/{image['name']}")
    second = api.post("/api/images/import", {"source": str(image_dir / "rootfs"), "name": "second"}, timeout=300)
    api.delete(f"/api/images/{second['id']}")

    sb = api.post("/api/sandboxes", {"name": "every", "labels": {"a": "b"}, "metadata": {"n": [1]}, "env": {"X": "1"}, "ttl_seconds": 600,
                                     "memory": "1G", "cpus": 1.5, "pids": 200, "nofile": 1024, "start_kernel": True})
    path = f"/api/sandboxes/{sb['id']}"
    try:
        every_call_of_a_sandbox(api, path)
    finally:
        assert api.delete(path)["ended_reason"] == "removed"
    assert api.get("/api/sandboxes", all="true", limit=5)["sandboxes"]
    raw(api, "GET", "/api/events")
    api.delete("/api/sandboxes", all="true")
    assert {call for call in Api.checker.unseen() if not call.endswith(STATES)} <= NOT_HERE


def every_call_of_a_sandbox(api, path):
    api.get("/api/sandboxes", label="a=b", name="every", state="running")
    assert api.get(path)["usage"]
    api.call("PATCH", path, {"labels": {"c": "d"}, "memory": "900M", "ttl_seconds": 700})
    api.get(f"{path}/kernelspecs")
    api.get(f"{path}/contexts")
    ctx = api.post(f"{path}/contexts", {"language": "python", "cwd": "/tmp", "env": {"A": "b"}, "name": "other"}, timeout=120)
    api.get(f"{path}/contexts/{ctx['id']}")
    api.post(f"{path}/contexts/{ctx['id']}/restart", {}, timeout=120)
    api.post(f"{path}/contexts/{ctx['id']}/interrupt", {})
    api.delete(f"{path}/contexts/{ctx['id']}")

    cell = api.post(f"{path}/cells", {"code": "print(1)\n1/0", "timeout": 60}, timeout=120)
    assert cell["status"] == "error"
    api.get(f"{path}/cells", limit=5, outputs="true")
    api.get(f"{path}/cells/{cell['id']}")
    raw(api, "GET", f"{path}/cells/{cell['id']}/stream")
    cell = api.post(f"{path}/cells", {"code": "input('name? ')", "stdin": "open", "detach": True})
    for event in api.events("GET", f"{path}/cells/{cell['id']}/stream"):
        if event["type"] == "input_request":
            api.post(f"{path}/cells/{cell['id']}/input", {"value": "me"})
    cell = api.post(f"{path}/cells", {"code": "import time; time.sleep(50)", "detach": True})
    api.post(f"{path}/cells/{cell['id']}/interrupt", {})

    assert raw(api, "GET", f"{path}/notebook?context=default&undone=1").json()["nbformat"] == 4
    command = api.post(f"{path}/exec", {"argv": ["sleep", "100"], "detach": True, "cwd": "/tmp", "env": {"A": "b"}})
    api.get(f"{path}/commands")
    api.get(f"{path}/commands/{command['pid']}")
    api.post(f"{path}/commands/{command['id']}/kill", {"signal": "KILL"})
    raw(api, "GET", f"{path}/commands/{command['id']}/stream")

    raw(api, "PUT", f"{path}/files?path=/tmp/e/f.txt&parents=true&mode=0600&sha256=true", b"hello")
    assert raw(api, "GET", f"{path}/files?path=/tmp/e/f.txt").body == b"hello"
    assert raw(api, "GET", f"{path}/files?path=/tmp/e/f.txt", headers={"Range": "bytes=1-2"}).status == 206
    api.call("GET", f"{path}/files/stat?path=/tmp/e/f.txt&sha256=true")
    api.call("GET", f"{path}/files/list?path=/tmp/e&depth=2")
    api.post(f"{path}/files/mkdir", {"path": "/tmp/e/d", "mode": "0750"})
    api.post(f"{path}/files/move", {"from": "/tmp/e/f.txt", "to": "/tmp/e/g.txt"})
    archive = raw(api, "GET", f"{path}/files/tar?path=/tmp/e").body
    raw(api, "PUT", f"{path}/files/tar?path=/tmp/e/d", archive)
    api.call("DELETE", f"{path}/files?path=/tmp/e&recursive=true")
    raw(api, "GET", f"{path}/logs")


def test_a_build_that_cannot_be(api):
    with pytest.raises(ApiError) as caught:
        api.post("/api/images/build", {"recipe": "no-such-recipe"})
    assert caught.value.code in ("image_not_found", "bad_request", "image_build_failed")
    events = [json.loads(line) for line in
              api.raw("POST", "/api/images/build", b'{"recipe":"no-such-recipe"}', {"Accept": "application/x-ndjson"}).body.splitlines()]
    assert events[-1].get("type", "fault") == "fault" and events[-1]["error"] is True
