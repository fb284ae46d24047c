"""Golden states: what an image's new sandboxes begin with, and what they must not notice of it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess

import pytest

from cli import Cli
from client import BUILD, ApiError, wait_for
from test_states import damage_memory, nodes_on_disk

IMAGE = "/api/images/code-interpreter"
DATA_SLACK = 256 << 20


POLICY = {"checkpoints": "off"}


@pytest.fixture(scope="module")
def daemon(states_daemon):
    yield states_daemon
    if states_daemon.api.get(IMAGE)["golden"]:
        states_daemon.api.delete(f"{IMAGE}/warm")


@pytest.fixture
def golden(api):
    """The standard golden state, made when there is none."""
    image = api.get(IMAGE)
    if not image["golden"] or "importlib" not in image["golden"]["code"]:
        image = api.post(f"{IMAGE}/warm", {}, timeout=300)
    return image["golden"]


@pytest.fixture
def new(make):
    return make


def evaluate(sb, expression):
    return json.loads(sb.ok(f"import json; print(json.dumps(({expression})))")["stdout"])


def is_golden(sb):
    return sb.info().get("origin", {}).get("golden", False)


def log_of(sb):
    lines = sb.api.raw("GET", f"{sb.path}/logs").body.splitlines()
    return {entry["type"]: entry for entry in map(json.loads, lines)}


def test_a_new_sandbox_begins_with_it(golden, new, api):
    sb = new(name="begins")
    first = sb.ok("import sys; [m in sys.modules for m in ('numpy', 'pandas', 'matplotlib.pyplot')], sorted(set(globals()) & "
                  "{'numpy', 'np', 'pandas', 'matplotlib', 'name', 'importlib'}), len(In), Out, __import__('os').uname().nodename")
    assert first["results"][0]["data"]["text/plain"] == "([True, True, True], [], 2, {}, 'begins')"
    assert (first["execution_count"], first["generation"]) == (1, 1)
    assert first["memory"]["kept"] is True and "state_lost" not in first
    info = sb.info()
    assert info["origin"]["node_id"] == golden["node_id"] and info["origin"]["golden"] is True
    assert info["generation"] == 1 and info["labels"] == {} and info["env"] == {}
    assert [c["id"] for c in info["contexts"]] == ["default"]
    assert [c["id"] for c in api.get(f"{sb.path}/cells")["cells"]] == [first["id"]], "the warm-up is not in its history"
    assert json.loads(sb.read("/run/coppice/generation"))["sandbox_id"] == sb.id
    assert log_of(sb)["sandbox.started"]["golden_node"] == golden["node_id"]


def test_it_knows_what_a_first_cell_writes(daemon, golden):
    assert golden["memory_bytes"] > 50 << 20
    image = subprocess.run([BUILD / "bin/coppice-freeze", "inspect", "--image", daemon.home / "nodes" / golden["node_id"] / "mem"],
                           check=True, stdout=subprocess.PIPE, text=True).stdout
    assert int(re.search(r"^  hot +(\d+)$", image, re.M)[1]) > 100, image


def test_plots_and_counting_go_on_as_usual(golden, new):
    sb = new()
    shown = sb.ok("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()")
    assert "image/png" in str(shown["results"])
    assert sb.ok("6 * 7")["execution_count"] == 2 and sb.text("_2, In[1][:6]") == "(42, 'import')"


ODD = "grüße 😀 \"quoted\" 'single' back\\slash\nline %s {x}"


def test_environment_and_limits_are_its_own(golden, new):
    sb = new(env={"ODD": ODD, "EMPTY": ""}, memory=512 << 20, cpus=0.5, pids=100)
    assert is_golden(sb)
    assert evaluate(sb, "__import__('os').environ['ODD'], __import__('os').environ['EMPTY']") == [ODD, ""]
    assert sb.exec(["sh", "-c", "printf %s \"$ODD\""])["stdout"] == ODD
    soft = "__import__('resource').getrlimit(__import__('resource').RLIMIT_DATA)[0]"
    assert evaluate(sb, soft) == (512 << 20) + DATA_SLACK
    refused = sb.run("big = bytearray(900 << 20)")
    assert refused["error"]["name"] == "MemoryError" and refused["memory"]["kept"] is True
    limits = sb.info()["limits"]
    assert (limits["memory_bytes"], limits["cpus"], limits["pids"]) == (512 << 20, 0.5, 100)
    larger = new(memory=3 << 30)
    assert is_golden(larger) and evaluate(larger, soft) == (3 << 30) + DATA_SLACK


def test_each_has_random_numbers_of_its_own(golden, new):
    draw = "__import__('random').random(), __import__('numpy').random.rand(), __import__('os').urandom(8).hex()"
    drawn = [evaluate(new(), draw) for _ in range(3)]
    for values in zip(*drawn):
        assert len(set(values)) == 3, drawn


@pytest.mark.parametrize("params, why", [
    ({"golden": False}, "golden"), ({"start_kernel": False}, "start_kernel"), ({"nofile": 512}, "nofile"),
    ({"env": {"PYTHONHASHSEED": "0"}}, "env"), ({"memory": 48 << 20, "start_kernel": True}, "memory")])
def test_what_it_cannot_be_it_boots_as(golden, new, params, why):
    sb = new(**params)
    assert "origin" not in sb.info() and log_of(sb)["sandbox.started"]["not_golden"] == why
    if why != "memory":
        assert sb.text("'pandas' in __import__('sys').modules") == "False"


def test_undo_goes_back_to_it_in_the_same_environment(golden, new):
    sb = new(env={"TOKEN": "secret"})
    drawn = evaluate(sb, "__import__('random').random()")
    back = sb.undo()
    assert back["memoryRestored"] is True
    assert sb.text("'json' in globals()") == "False"
    assert evaluate(sb, "__import__('os').environ['TOKEN']") == "secret"
    assert evaluate(sb, "__import__('random').random()") != drawn, "other sandboxes are thawed from the same numbers"


def test_it_sleeps_and_wakes(golden, new):
    sb = new(env={"TOKEN": "a"})
    sb.ok("import os, random; os.environ['TOKEN'] = 'b'; random.seed(5); x = 41")
    sb.suspend()
    assert sb.resume()["memoryRestored"] is True
    expected = __import__("random").Random(5).random()
    assert evaluate(sb, "[x, os.environ['TOKEN'], random.random()]") == [41, "b", expected], "its memory is its own by now"
    copy = sb.fork()[0]
    assert copy.text("x") == "41" and copy.info()["origin"].get("golden") is None
    copy.remove()


def test_what_cannot_be_thawed_boots(daemon, api, golden, new):
    damage_memory(daemon, golden["node_id"])
    sb = new(env={"TOKEN": "a"})
    first = sb.ok("__import__('os').environ['TOKEN']")
    assert (first["results"][0]["data"]["text/plain"], first["execution_count"], first["generation"]) == ("'a'", 1, 1)
    assert "state_lost" not in first and "origin" not in sb.info()
    failed = log_of(sb)["golden.failed"]
    assert failed["node_id"] == golden["node_id"] and failed["message"]
    sb.suspend()
    assert sb.resume()["memoryRestored"] is True
    api.delete(f"{IMAGE}/warm")


def test_the_old_state_stays_as_long_as_somebody_needs_it(daemon, api, golden, new):
    sb = new()
    sb.ok("x = 41")
    again = api.post(f"{IMAGE}/warm", {"code": "answer = 42"}, timeout=300)["golden"]
    assert again["code"] == "answer = 42" and again["memory_bytes"] > 0 and again["node_id"] != golden["node_id"]
    assert new().text("answer") == "42"
    assert golden["node_id"] in nodes_on_disk(daemon)
    with pytest.raises(ApiError) as caught:
        api.delete(f"/api/snapshots/{again['node_id']}")
    assert caught.value.code == "in_use"
    sb.suspend()
    assert sb.text("x") == "41" and sb.text("'pandas' in __import__('sys').modules") == "True"
    sb.remove()
    wait_for(lambda: golden["node_id"] not in nodes_on_disk(daemon))
    assert again["node_id"] in nodes_on_disk(daemon), "nobody runs from it, but the image names it"
    daemon.kill()
    daemon.start()
    assert api.get(IMAGE)["golden"] == again
    assert new().text("answer") == "42"


def test_progress_and_faults(daemon, api, golden, new):
    before = {s["id"] for s in api.get("/api/sandboxes")["sandboxes"]}
    events = [e for e in api.events("POST", f"{IMAGE}/warm", {"code": "import sys; print('x')"}, timeout=300)]
    assert [e.get("stage") for e in events if e["type"] == "progress"] == ["start", "run", "save"]
    assert events[-1]["type"] == "end" and events[-1]["image"]["golden"]["code"] == "import sys; print('x')"
    kept = api.get(IMAGE)["golden"]
    for body, code, words in [({"code": "1 / 0"}, "image_build_failed", "ZeroDivisionError: division by zero"),
                              ({"code": "while True: pass", "timeout": 0.5}, "image_build_failed", "timeout"),
                              ({"code": "x" * 70000}, "payload_too_large", "64 KiB"), ({"code": "a\0b"}, "bad_request", "NUL"),
                              ({"what": 1}, "bad_request", "what")]:
        with pytest.raises(ApiError) as caught:
            api.post(f"{IMAGE}/warm", body, timeout=120)
        assert caught.value.code == code and words in str(caught.value), caught.value
    with pytest.raises(ApiError) as caught:
        api.post("/api/images/none/warm", {})
    assert caught.value.code == "image_not_found"
    assert api.get(IMAGE)["golden"] == kept
    wait_for(lambda: {s["id"] for s in api.get("/api/sandboxes")["sandboxes"]} <= before)


@pytest.mark.parametrize("until", ["start", "run", "save"])
def test_a_caller_that_goes_away_stops_it(daemon, api, golden, until):
    before = nodes_on_disk(daemon)
    body = json.dumps({"code": "import time; time.sleep(0.3)"}).encode()
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(api.socket_path)
        s.sendall(b"POST " + f"{IMAGE}/warm".encode() + b" HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n"
                  b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        seen = b""
        while f'"{until}"'.encode() not in seen:
            chunk = s.recv(65536)
            assert chunk, seen
            seen += chunk
    wait_for(lambda: not api.get("/api/sandboxes")["sandboxes"], 60)
    after = api.get(IMAGE)["golden"]
    if after == golden:  # it was stopped before the node was there
        wait_for(lambda: nodes_on_disk(daemon) == before)
    else:
        assert until == "save"
        wait_for(lambda: nodes_on_disk(daemon) == [after["node_id"]])


def test_it_goes_with_its_image(daemon, api, golden, image_dir):
    other = api.post("/api/images/import", {"source": str(image_dir / "rootfs"), "name": "golden-other"}, timeout=300)
    path = "/api/images/golden-other"
    first = api.post(f"{path}/warm", {"code": "where = 'first'"}, timeout=300)["golden"]
    sb = api.new(image="golden-other")
    assert sb.text("where") == "'first'"
    newer = api.post("/api/images/import", {"source": str(image_dir / "rootfs"), "name": "golden-other"}, timeout=300)
    assert newer["golden"] is None and newer["id"] != other["id"]
    fresh = api.new(image="golden-other")
    assert fresh.run("where")["error"]["name"] == "NameError"
    sb.suspend()
    assert sb.text("where") == "'first'", "what stands on the old image goes on"
    sb.snapshot(name="of-the-old-image")
    sb.remove()
    fresh.remove()
    branch = api.new(**{"from": "of-the-old-image"})
    assert branch.text("where") == "'first'", "and so does what is saved, as often as wanted"
    branch.remove()
    assert other["id"] in [i["id"] for i in api.get("/api/images")["images"]]
    api.delete("/api/snapshots/of-the-old-image")
    wait_for(lambda: first["node_id"] not in nodes_on_disk(daemon))
    assert other["id"] not in [i["id"] for i in api.get("/api/images")["images"]]
    second = api.post(f"{path}/warm", {"code": "where = 'second'"}, timeout=300)["golden"]
    assert api.get(path)["sandboxes"] == 0, "its own state does not keep it"
    api.delete(path)
    wait_for(lambda: second["node_id"] not in nodes_on_disk(daemon))


def test_the_verb(daemon, golden):
    cli = Cli(daemon.home)
    made = cli.json("image", "warm", "code-interpreter", "--run", "made_by = 'cli'", "--json", "--quiet")
    assert made["golden"]["code"] == "made_by = 'cli'"
    cli.ok("new", "--name", "golden-cli")
    assert cli.ok("run", "golden-cli", "made_by").out == "'cli'\n"
    assert "golden" in cli.ok("info", "golden-cli").out
    cli.ok("new", "--name", "golden-cold", "--cold")
    assert "NameError" in cli("run", "golden-cold", "made_by").err
    listed = cli.ok("image", "ls").out.splitlines()
    assert "GOLDEN" in listed[0] and "MiB" in listed[1]
    cli.ok("image", "warm", "--remove", "code-interpreter")
    assert json.loads(cli.ok("image", "show", "code-interpreter").out)["golden"] is None
    assert cli("image", "warm", "--remove", "code-interpreter").status == 1
    assert cli("image", "warm", "code-interpreter", "--run", "1", "-f", "x").status == 2
    cli.ok("rm", "golden-cli", "golden-cold")
    assert nodes_on_disk(daemon) == []
