"""Saved states as streams: from one home into another, and everything that is refused on the way."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile

import pytest

from cli import Cli
from client import Api, ApiError, Sandbox, UnixConnection, wait_for
from conftest import end_daemon, start_daemon

WORK = """
import os, socket, threading, pandas as pd, numpy as np
frame = pd.DataFrame({"n": np.arange(1000)})
secret = "kept " + "x" * 100_000
deleted = open("gone.txt", "w+"); deleted.write("still here"); deleted.flush(); os.unlink("gone.txt")
listener = socket.socket(socket.AF_UNIX); listener.bind("/tmp/listening"); listener.listen()
os.makedirs("d/e"); open("d/e/f", "w").write("deep"); os.link("d/e/f", "d/second"); os.symlink("/etc/passwd", "d/link")
os.chmod("d/e", 0o750); os.mkfifo("d/fifo"); os.setxattr("d/e/f", "user.mark", b"\\x00value")
with open("sparse", "wb") as f:
    f.seek(200_000_000); f.write(b"end"); f.truncate(300_000_000)
open(b"d/odd \\xff\\n name", "w").write("odd")
os.remove("/usr/share/doc/adduser/copyright") if os.access("/usr/share/doc/adduser", os.W_OK) else None
os.getpid()
"""
CHECK = """
assert frame.n.sum() == 499500 and secret.endswith("x" * 100_000)
deleted.seek(0); assert deleted.read() == "still here"
near = socket.socket(socket.AF_UNIX); near.connect("/tmp/listening"); near.send(b"hi"); assert listener.accept()[0].recv(9) == b"hi"
os.getpid()
"""
FILES = """
import os
st = os.stat("d/second")
assert st.st_ino == os.stat("d/e/f").st_ino and st.st_nlink == 2 and open("d/e/f").read() == "deep"
assert os.readlink("d/link") == "/etc/passwd" and os.stat("d/e").st_mode & 0o777 == 0o750
assert os.getxattr("d/e/f", "user.mark") == b"\\x00value" and open(b"d/odd \\xff\\n name").read() == "odd"
st = os.stat("sparse"); assert st.st_size == 300_000_000 and st.st_blocks < 1000
f = open("sparse", "rb"); f.seek(199_999_999); assert f.read(5) == b"\\0end\\0"
'files'
"""


DAEMON = "states_daemon"


@pytest.fixture(scope="module")
def other(scratch, image_dir):
    """Another machine: a second home with the same image."""
    daemon = start_daemon(scratch / "other", image_dir)
    yield daemon
    end_daemon(daemon)


def pack(api, node) -> bytes:
    reply = api.raw("GET", f"/api/snapshots/{node}/pack")
    assert reply.status == 200 and reply.headers["content-type"] == "application/zstd", reply.body[:300]
    return reply.body


def unpack(api, data: bytes, query="") -> dict:
    reply = api.raw("POST", f"/api/snapshots{query}", data, timeout=300)
    Api.checker("POST", f"/api/snapshots{query}", None, reply)
    value = reply.json()
    if reply.status >= 400:
        raise ApiError(reply.status, value)
    return value


@pytest.fixture(scope="module")
def source(api):
    """A sandbox with a stack of layers: thawed from a node of its own, and changed since."""
    base = api.new(policy={"checkpoints": "off"})
    base.ok("below = 'first'; open('below.txt', 'w').write(below)")
    first = api.post(f"{base.path}/snapshots", {"name": "pack-below"})
    sandbox = api.post("/api/snapshots/pack-below/sandboxes", {"policy": {"checkpoints": "off"}})["sandboxes"][0]
    made = Sandbox(api, sandbox["id"])
    base.remove()
    made.ok(WORK, timeout=60)
    made.exec(["sh", "-c", "i=0; while true; do i=$((i+1)); echo $i > /tmp/ticks; sleep 0.1; done"], detach=True)
    yield made
    made.remove()
    api.delete(f"/api/snapshots/{first['id']}")


@pytest.fixture(scope="module")
def memory_pack(api, source):
    node = api.post(f"{source.path}/snapshots", {"name": "packed"})
    data = pack(api, "packed")
    yield data
    api.delete(f"/api/snapshots/{node['id']}")


@pytest.fixture(scope="module")
def small_pack(api):
    """Of a node of files, small enough to be spoilt often."""
    sandbox = api.new(policy={"checkpoints": "off"}, start_kernel=False)
    sandbox.exec("mkdir -p /workspace/d && echo text > /workspace/d/f && ln -s f /workspace/d/l && ln /workspace/d/f /workspace/h")
    node = api.post(f"{sandbox.path}/snapshots", {"name": "packed-files", "kind": "filesystem"})
    data = pack(api, node["id"])
    sandbox.remove()
    api.delete(f"/api/snapshots/{node['id']}")
    return data


def nodes_on_disk(daemon):
    folder = daemon.home / "nodes"
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture
def unchanged(other):
    """Nothing is left of what the test does to the other home."""
    before = nodes_on_disk(other), other.api.get("/api/snapshots")
    yield
    wait_for(lambda: nodes_on_disk(other) == before[0], 30)
    assert other.api.get("/api/snapshots") == before[1]


# -- round trips -----------------------------------------------------------------------------------------------------------


def test_a_session_goes_on_in_another_home(other, source, memory_pack):
    pid = source.text("os.getpid()")
    node = unpack(other.api, memory_pack)
    assert node["name"] == "packed" and node["kind"] == "memory" and node["reason"] == "unpack" and node["memory_bytes"] > 0
    reply = other.api.post("/api/snapshots/packed/sandboxes", {"name": "moved"})
    assert reply["sandboxes"][0].get("memoryRestored", True) is True, reply
    moved = Sandbox(other.api, reply["sandboxes"][0]["id"])
    assert moved.text(CHECK) == pid
    assert moved.text("below, open('below.txt').read()") == "('first', 'first')"
    assert moved.text(FILES) == "'files'"
    ticks = moved.read("/tmp/ticks")
    wait_for(lambda: moved.read("/tmp/ticks") not in (ticks, b""))
    (ticking,) = other.api.get(f"{moved.path}/commands")["commands"]
    assert ticking["status"] == "running" and ticking["argv"][0] == "sh"
    # Saved, packed and taken up again, it is still the same.
    again = other.api.post(f"{moved.path}/snapshots", {"name": "again"})
    twice = unpack(other.api, pack(other.api, "again"), "?name=twice")
    assert twice["id"] != again["id"] and twice["name"] == "twice"
    copy = Sandbox(other.api, other.api.post("/api/snapshots/twice/sandboxes", {})["sandboxes"][0]["id"])
    assert copy.text(CHECK) == pid and copy.text("below") == "'first'"
    for sandbox in (moved, copy):
        sandbox.remove()
    for name in ("packed", "again", "twice"):
        other.api.delete(f"/api/snapshots/{name}")
    wait_for(lambda: nodes_on_disk(other) == [], 30)


def test_files_alone(other, source, memory_pack):
    node = unpack(other.api, memory_pack, "?files_only=true&name=alone")
    assert node["kind"] == "files" and node["memory_bytes"] == 0
    assert not (other.home / "nodes" / node["id"] / "mem").exists()
    sandbox = Sandbox(other.api, other.api.post("/api/snapshots/alone/sandboxes", {})["sandboxes"][0]["id"])
    assert sandbox.text(FILES) == "'files'"
    assert sandbox.text("open('below.txt').read()") == "'first'"
    sandbox.remove()
    other.api.delete("/api/snapshots/alone")
    wait_for(lambda: nodes_on_disk(other) == [], 30)


def test_a_node_of_files(other, small_pack):
    node = unpack(other.api, small_pack)
    assert node["kind"] == "files" and node["name"] == "packed-files"
    assert unpack(other.api, small_pack).get("name") is None, "its name is taken here"
    with pytest.raises(ApiError) as error:
        unpack(other.api, small_pack, "?name=packed-files")
    assert error.value.code == "name_taken" and len(nodes_on_disk(other)) == 2
    sandbox = other.api.post("/api/snapshots/packed-files/sandboxes", {})["sandboxes"][0]
    assert "id" in sandbox, sandbox
    moved = Sandbox(other.api, sandbox["id"])
    assert moved.read("/workspace/h") == b"text\n"
    moved.remove()
    for node_id in nodes_on_disk(other):
        other.api.delete(f"/api/snapshots/{node_id}")
    wait_for(lambda: nodes_on_disk(other) == [], 30)


def test_what_is_unpacked_survives_a_restart(other, small_pack):
    node = unpack(other.api, small_pack)
    other.kill()
    other.start()
    assert other.api.get(f"/api/snapshots/{node['id']}") == node
    assert nodes_on_disk(other) == [node["id"]]
    other.api.delete(f"/api/snapshots/{node['id']}")


def test_memory_of_a_pack_is_that_of_its_node_alone(api):
    """What an ancestor had and the node has not any more is not in its pack."""
    sandbox = api.new(policy={"checkpoints": "off"})
    sandbox.ok("import os; gone = bytearray(os.urandom(24_000_000))")
    first = api.post(f"{sandbox.path}/snapshots", {"name": "held-much"})
    sandbox.ok("del gone; x = 1")
    second = api.post(f"{sandbox.path}/snapshots", {"name": "holds-little"})
    large, small = len(pack(api, first["id"])), len(pack(api, second["id"]))
    assert large - small > 20_000_000
    sandbox.remove()
    for node in (first, second):
        api.delete(f"/api/snapshots/{node['id']}")


def test_a_node_that_is_packed_stays_until_the_pack_is_read(api, states_daemon):
    sandbox = api.new(policy={"checkpoints": "off"})
    sandbox.ok("import os; data = os.urandom(30_000_000)")
    node = api.post(f"{sandbox.path}/snapshots", {"name": "held"})
    conn = UnixConnection(api.socket_path)
    conn.request("GET", "/api/snapshots/held/pack")
    reply = conn.getresponse()
    begin = reply.read(1000)
    sandbox.remove()
    api.delete("/api/snapshots/held")
    assert node["id"] in nodes_on_disk(states_daemon)
    data = begin + reply.read()
    conn.close()
    wait_for(lambda: node["id"] not in nodes_on_disk(states_daemon), 30)
    assert names_of(data)[-1] == "checksums"


def test_a_reader_that_goes_away_ends_the_packing(api):
    sandbox = api.new(policy={"checkpoints": "off"})
    sandbox.ok("import os; data = os.urandom(60_000_000)")
    node = api.post(f"{sandbox.path}/snapshots", {"name": "left"})
    for _ in range(6):  # more than may run at a time
        conn = UnixConnection(api.socket_path)
        conn.request("GET", f"/api/snapshots/{node['id']}/pack")
        assert conn.getresponse().read(10)
        conn.close()
        wait_for(lambda: not packers(), 30)
    sandbox.remove()
    api.delete(f"/api/snapshots/{node['id']}")


def test_the_daemons_hold_none_of_it(other, api, states_daemon):
    sandbox = api.new(policy={"checkpoints": "off"})
    sandbox.ok("import os; data = os.urandom(200_000_000)", timeout=60)
    node = api.post(f"{sandbox.path}/snapshots", {"name": "large"}, timeout=300)
    here, there = states_daemon.rss(), other.rss()
    data = pack(api, "large")
    assert len(data) > 200_000_000
    unpacked = unpack(other.api, data)
    assert states_daemon.rss() - here < 20 << 20 and other.rss() - there < 20 << 20
    sandbox.remove()
    api.delete(f"/api/snapshots/{node['id']}")
    other.api.delete(f"/api/snapshots/{unpacked['id']}")
    wait_for(lambda: nodes_on_disk(other) == [], 30)


def packers():
    return subprocess.run(["pgrep", "-x", "coppice-pack"], stdout=subprocess.PIPE, text=True).stdout.split()


# -- what is refused -------------------------------------------------------------------------------------------------------


def plain(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout


def packed(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-1cq"], input=data, stdout=subprocess.PIPE, check=True).stdout


def names_of(data: bytes) -> list[str]:
    return tarfile.open(fileobj=io.BytesIO(plain(data))).getnames()


def refused(api, data: bytes, query="") -> ApiError:
    with pytest.raises(ApiError) as error:
        unpack(api, data, query)
    return error.value


def test_cut_anywhere(other, small_pack, unchanged):
    for length in sorted({0, 1, 3, 4, 5, *range(8, len(small_pack) - 1, max(1, len(small_pack) // 60)), len(small_pack) - 1}):
        assert refused(other.api, small_pack[:length]).code == "pack_damaged", length


def test_cut_at_every_border_of_the_archive(other, small_pack, unchanged):
    """Whole frames, so that only the archive itself can tell."""
    archive = plain(small_pack)
    for length in range(0, archive.rindex(b"checksums"), 512):
        assert refused(other.api, packed(archive[:length])).code == "pack_damaged", length


def test_a_flipped_bit_in_the_stream(other, small_pack, unchanged):
    for at in range(20, len(small_pack), max(1, len(small_pack) // 80)):
        spoilt = bytearray(small_pack)
        spoilt[at] ^= 1 << at % 8
        same = subprocess.run(["zstd", "-dcq"], input=spoilt, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if same.returncode == 0:  # some bits of a frame mean nothing, or the same by chance
            assert same.stdout == plain(small_pack)
            continue
        assert refused(other.api, bytes(spoilt)).code in ("pack_damaged", "unsupported", "image_not_found"), at


def test_a_flipped_bit_in_each_member(other, memory_pack, unchanged):
    """The frame is made anew around it: the checksums of the members must tell, and name it."""
    archive = plain(memory_pack)
    tar = tarfile.open(fileobj=io.BytesIO(archive))
    seen = set()
    for member in tar:
        section = member.name if member.name.count("/") < 1 else member.name.rsplit("/", 1)[0] + ("/meta" if "meta" in member.name else "")
        if not member.isfile() or member.size == 0 or not member.name.isprintable() or section in seen or (len(seen) > 10 and member.name != "checksums"):
            continue
        seen.add(section)
        at = member.offset_data + min(member.size, 4096) // 2
        spoilt = bytearray(archive)
        spoilt[at] ^= 4
        error = refused(other.api, packed(bytes(spoilt)))
        assert error.code in ("pack_damaged", "image_not_found", "image_mismatch"), (member.name, error)
        if member.name not in ("manifest.json", "checksums"):
            assert member.name[:60] in error.message, error
    assert {"manifest.json", "keep", "init", "mem/meta", "mem", "checksums"} <= seen


def test_not_a_pack(other, unchanged):
    for data in (b"", b"hello", b"PK\x03\x04" * 100, packed(b""), packed(b"x" * 5000), packed(bytes(10240))):
        assert refused(other.api, data).code == "pack_damaged", data[:10]
    assert "no pack of Coppice" in refused(other.api, b"hello world").message


def test_data_behind_the_end(other, small_pack, unchanged):
    assert "behind its end" in refused(other.api, small_pack + b"x").message
    assert "behind its end" in refused(other.api, small_pack + small_pack).message


def build(members, manifest) -> bytes:
    """A pack made by somebody else: its checksums are left out (they come after everything that is tested here)."""
    out = io.BytesIO()
    tar = tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT)
    text = json.dumps(manifest).encode()
    add(tar, "manifest.json", text)
    for name, kind, content in members:
        add(tar, name, content, kind)
    tar.close()
    return packed(out.getvalue())


def add(tar, name, content, kind=tarfile.REGTYPE, **attributes):
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in attributes.items():
        setattr(info, key, value)
    if kind == tarfile.REGTYPE:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    elif isinstance(content, dict):
        for key, value in content.items():
            setattr(info, key, value)
        tar.addfile(info)
    else:
        info.linkname = content
        tar.addfile(info)


@pytest.fixture(scope="module")
def manifest(small_pack):
    tar = tarfile.open(fileobj=io.BytesIO(plain(small_pack)))
    return json.loads(tar.extractfile("manifest.json").read())


FILE, LINK, SYMLINK, DIR = tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE
EVIL = {
    "above": [("layer/0/../../../evil", FILE, b"x")],
    "absolute": [("/tmp/evil-pack", FILE, b"x")],
    "beside": [("../evil", FILE, b"x")],
    "not a node's": [("evil", FILE, b"x")],
    "a node's row": [("node.json", FILE, b"{}")],
    "a layer too many": [("layer/1/f", FILE, b"x")],
    "an empty part": [("layer/0//f", FILE, b"x")],
    "memory elsewhere": [("mem/../keep", FILE, b"x")],
    "memory of another name": [("mem/other.img", FILE, b"x")],
    "behind a link": [("layer/0/l", SYMLINK, "/tmp"), ("layer/0/l/evil-pack", FILE, b"x")],
    "behind a link in its place": [("layer/0", SYMLINK, "/tmp"), ("layer/0/evil-pack", FILE, b"x")],
    "over a link": [("layer/0/l", SYMLINK, "/tmp/evil-pack"), ("layer/0/l", FILE, b"x")],
    "through a hard link": [("layer/0/l", SYMLINK, "/etc/passwd"), ("layer/0/h", LINK, "layer/0/l/x")],
    "a hard link out": [("layer/0/h", LINK, "/etc/passwd")],
    "a hard link to the manifest": [("layer/0/h", LINK, "manifest.json")],
    "a hard link above": [("layer/0/h", LINK, "layer/0/../../manifest.json")],
    "a hard link to nothing": [("layer/0/h", LINK, "layer/0/none")],
    "a hard link to a folder": [("layer/0/d", DIR, {}), ("layer/0/h", LINK, "layer/0/d")],
    "a device": [("layer/0/d", tarfile.BLKTYPE, {"devmajor": 8})],
    "another device": [("layer/0/d", tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3})],
    "twice": [("layer/0/f", FILE, b"x"), ("layer/0/f", FILE, b"y")],
    "a file of root's host": [("layer/0/f", DIR, {"uid": 70000})],
    "an attribute of the host": [("layer/0/f", DIR, {"pax_headers": {"SCHILY.xattr.trusted.overlay.opaque": "y"}})],
    "the manifest again": [("manifest.json", FILE, b"{}")],
    "deep": [("layer/0/" + "d/" * 500 + "f", FILE, b"x")],
    "a long name": [("layer/0/" + "n" * 300, FILE, b"x")],
}


@pytest.mark.parametrize("members", EVIL.values(), ids=EVIL.keys())
def test_evil_members(other, manifest, members, unchanged):
    error = refused(other.api, build(members, manifest))
    assert error.code == "pack_damaged" and "its end is missing" not in error.message, error
    assert not os.path.exists("/tmp/evil-pack")
    for folder in (other.home, other.home / "nodes", other.home.parent):
        assert not [name for name in os.listdir(folder) if name.startswith("evil")]


def test_a_whole_pack_lacks_only_its_checksums(other, manifest, unchanged):
    """What `build` makes would be taken but for that: the tests above are refused for their own reasons."""
    error = refused(other.api, build([("layer/0/f", FILE, b"x"), ("layer/0/l", SYMLINK, "/etc/passwd"), ("layer/0", DIR, {})], manifest))
    assert error.code == "pack_damaged" and "its end is missing" in error.message


@pytest.mark.parametrize("name, kind, content", [("keep", SYMLINK, "/etc/passwd"), ("init", DIR, {}), ("mem/meta.img", LINK, "keep"), ("ipc", FILE, b"")])
def test_members_of_another_kind(other, memory_pack, name, kind, content, unchanged):
    """Of a node of memory: where a node of files is taken, these are not even looked at."""
    whole = json.loads(tarfile.open(fileobj=io.BytesIO(plain(memory_pack))).extractfile("manifest.json").read())
    assert "another kind" in refused(other.api, build([(name, kind, content)], whole)).message


@pytest.mark.parametrize("change, code, words", [
    ({"coppice_pack": 2}, "unsupported", "format 2"),
    ({"coppice_pack": 0}, "pack_damaged", "no pack"),
    ({"layers": 0}, "pack_damaged", "manifest"),
    ({"layers": 100000}, "pack_damaged", "manifest"),
    ({"image": {"name": "mine", "digest": "sha256:" + "0" * 64}}, "image_not_found", "\"mine\" with digest sha256:0000"),
    ({"image": {}}, "pack_damaged", "image"),
    ({"node": {"kind": "other"}}, "pack_damaged", "manifest"),
])
def test_manifests(other, manifest, change, code, words, unchanged):
    error = refused(other.api, build([], {**manifest, **change}))
    assert error.code == code and words in error.message


def test_memory_of_another_machine(other, memory_pack, unchanged):
    whole = json.loads(tarfile.open(fileobj=io.BytesIO(plain(memory_pack))).extractfile("manifest.json").read())
    host = whole["host"]
    for change, word in (({"kernel": "6.1.0 #1 SMP"}, "kernel_mismatch"), ({"cpu_words": [0xffffffff] * 16}, "cpu_mismatch"),
                         ({"xfeatures": 1}, "cpu_mismatch")):
        error = refused(other.api, build([], {**whole, "host": {**host, **change}}))
        assert error.code == "image_mismatch" and word in error.message and "--files-only" in error.message
        error = refused(other.api, build([], {**whole, "host": {**host, **change}}), "?files_only=true")
        assert "its end is missing" in error.message, "the files of it would be taken"
    error = refused(other.api, build([], {**whole, "host": None}))
    assert error.code == "pack_damaged"


def test_a_sender_that_goes_away(other, memory_pack, unchanged):
    for part in (0, 10, 5000, len(memory_pack) // 2):
        conn = UnixConnection(other.api.socket_path)
        conn.putrequest("POST", "/api/snapshots")
        conn.putheader("Content-Length", str(len(memory_pack)))
        conn.endheaders()
        conn.send(memory_pack[:part])
        conn.close()
    wait_for(lambda: not packers(), 30)


def test_a_daemon_that_dies_in_the_middle_leaves_nothing(other, memory_pack, unchanged):
    conn = UnixConnection(other.api.socket_path)
    conn.putrequest("POST", "/api/snapshots")
    conn.putheader("Content-Length", str(len(memory_pack)))
    conn.endheaders()
    conn.send(memory_pack[:len(memory_pack) // 2])
    wait_for(lambda: nodes_on_disk(other), 30)
    other.kill()
    conn.close()
    wait_for(lambda: not packers(), 30)
    other.start()


def test_unknown_and_wrong_requests(other, unchanged):
    assert other.api.raw("GET", "/api/snapshots/none/pack").json()["code"] == "node_not_found"
    assert other.api.raw("HEAD", "/api/snapshots/none/pack").status == 404
    assert other.api.raw("GET", "/api/snapshots/none/pack?x=1").json()["code"] == "bad_request"
    assert refused(other.api, b"x", "?name=a%20b").code == "bad_request"
    assert refused(other.api, b"x", "?files_only=maybe").code == "bad_request"


# -- as a user types it ----------------------------------------------------------------------------------------------------


def test_verbs(states_daemon, other, tmp_path):
    here, there = Cli(states_daemon.home), Cli(other.home)
    here.ok("new", "--name", "cli-pack")
    here.ok("run", "cli-pack", "x = 41")
    here.ok("snapshot", "cli-pack", "--name", "cli-packed")
    file = tmp_path / "state.tar.zst"
    assert here.ok("pack", "cli-packed", "-o", str(file)).out == ""
    assert os.listdir(tmp_path) == ["state.tar.zst"] and file.stat().st_mode & 0o777 == 0o600
    node = there.ok("unpack", str(file)).out.strip()
    assert there.json("unpack", str(file), "--json", "--files-only", "--name", "cli-files")["kind"] == "files"
    there.ok("new", "--from", node, "--name", "cli-moved")
    assert there.ok("run", "cli-moved", "x + 1").out == "42\n"
    file.write_bytes(file.read_bytes()[:-20])
    broken = there("unpack", str(file))
    assert broken.status == 1 and "cut off" in broken.err and broken.out == ""
    missing = here("pack", "none", "-o", str(tmp_path / "none"))
    assert missing.status == 1 and os.listdir(tmp_path) == ["state.tar.zst"]
    assert here("pack", "cli-packed").status == 2
    assert there("unpack", str(tmp_path / "absent")).status == 1
    there.ok("rm", "cli-moved")
    there.ok("snapshot", "rm", node, "cli-files")
    here.ok("rm", "cli-pack")
    here.ok("snapshot", "rm", "cli-packed")
