"""File operations through the API of a real daemon."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import tarfile
import threading
import time

import pytest
from client import ApiError
from urllib.parse import quote, urlencode


def raises(code, call, *args, **kwargs):
    with pytest.raises(ApiError) as error:
        call(*args, **kwargs)
    assert error.value.code == code, error.value
    assert error.value.message
    return error.value


def stat(sb, path, **query):
    return sb.api.call("GET", f"{sb.path}/files/stat", query={"path": path, **query})


def listing(sb, path, **query):
    return sb.api.call("GET", f"{sb.path}/files/list", query={"path": path, **query})


def remove(sb, path, **query):
    return sb.api.call("DELETE", f"{sb.path}/files", query={"path": path, **query})


def tar_get(sb, path):
    reply = sb.api.raw("GET", f"{sb.path}/files/tar?path={quote(path)}")
    if reply.status >= 400:
        raise ApiError(reply.status, reply.json())
    return reply.body


def tar_put(sb, path, data):
    reply = sb.api.raw("PUT", f"{sb.path}/files/tar?path={quote(path)}", data)
    if reply.status >= 400:
        raise ApiError(reply.status, reply.json())
    return reply.json()


def test_write_read_stat(sandbox):
    data = os.urandom(100_000)
    f = sandbox.write("/workspace/a/b/f.bin", data, parents="true", sha256="true", mode="0640")
    assert (f["type"], f["size"], f["mode"], f["uid"]) == ("file", 100_000, "0640", 1000)
    assert f["sha256"] == hashlib.sha256(data).hexdigest()
    assert sandbox.read("/workspace/a/b/f.bin") == data
    s = stat(sandbox, "/workspace/a/b/f.bin", sha256="true")
    assert s["sha256"] == f["sha256"] and s["path"] == "/workspace/a/b/f.bin"
    assert sandbox.write("/workspace/empty", b"")["size"] == 0
    assert sandbox.read("/workspace/empty") == b""
    assert sandbox.read("/proc/meminfo").startswith(b"MemTotal:")


def test_ranges(shared_sandbox):
    shared_sandbox.write("/workspace/r", b"0123456789")
    def get(spec):
        return shared_sandbox.api.raw("GET", f"{shared_sandbox.path}/files?path=/workspace/r", headers={"Range": spec})
    assert (get("bytes=2-4").status, get("bytes=2-4").body) == (206, b"234")
    assert get("bytes=-3").body == b"789"
    assert get("bytes=8-").body == b"89"
    assert get("bytes=10-").status == 416
    head = shared_sandbox.api.raw("HEAD", f"{shared_sandbox.path}/files?path=/workspace/r")
    assert head.status == 200 and head.headers["content-length"] == "10" and head.body == b""


@pytest.mark.parametrize("path,code", [
    ("/nosuch", "file_not_found"),
    ("/workspace", "file_type"),
    ("/dev/null", "file_type"),
    ("/dev/zero", "file_type"),
    ("/proc/self/fd/3", "file_type"),
    ("/proc/1/environ", "file_access"),
    ("/etc/shadow", "file_access"),
    ("/etc/passwd/x", "file_type"),
])
def test_what_cannot_be_read(shared_sandbox, path, code):
    raises(code, shared_sandbox.read, path)


def test_pipes_and_links_lead_nowhere_and_do_not_hang(sandbox):
    sandbox.exec("cd /workspace; mkfifo p; ln -s /proc/1/root/etc/shadow s; ln -s ../../../../../../etc/hostname h; ln -s loop loop")
    began = time.monotonic()
    raises("file_type", sandbox.read, "/workspace/p")
    raises("file_type", sandbox.write, "/workspace/p", b"x")
    raises("file_access", sandbox.read, "/workspace/s")
    raises("file_type", sandbox.read, "/workspace/loop")
    assert time.monotonic() - began < 5
    with open("/etc/hostname", "rb") as host:
        assert sandbox.read("/workspace/h") != host.read()


def test_lists(sandbox):
    sandbox.exec(r"cd /workspace; mkdir -p d/e; touch d/f d/e/g 'with space' ünï $(printf 'bad\377'); ln -s d l")
    names = {e["name"]: e for e in listing(sandbox, "/workspace")["entries"]}
    assert set(names) == {"d", "with space", "ünï", "bad\ufffd", "l"}
    assert names["l"]["type"] == "symlink" and names["l"]["target"] == "d" and names["d"]["path"] == "/workspace/d"
    deep = {e["name"] for e in listing(sandbox, "/workspace/d", depth=5)["entries"]}
    assert deep == {"e", "f", "e/g"}
    sandbox.exec("mkdir /workspace/many; cd /workspace/many; seq 12000 | xargs touch")
    many = listing(sandbox, "/workspace/many")
    assert len(many["entries"]) == 10000 and many["truncated"]
    many = listing(sandbox, "/workspace/many", limit=20000)
    assert len(many["entries"]) == 12000 and not many["truncated"]
    raises("file_type", listing, sandbox, "/workspace/d/f")
    raises("file_not_found", listing, sandbox, "/nosuch")


def test_mkdir_move_remove(sandbox):
    post, path = sandbox.api.post, sandbox.path
    assert post(f"{path}/files/mkdir", {"path": "/workspace/x/y", "parents": True})["type"] == "directory"
    raises("file_exists", post, f"{path}/files/mkdir", {"path": "/workspace/x/y"})
    sandbox.write("/workspace/x/y/f", b"1")
    sandbox.write("/workspace/g", b"2")
    raises("file_exists", post, f"{path}/files/move", {"from": "/workspace/x/y/f", "to": "/workspace/g"})
    assert post(f"{path}/files/move", {"from": "/workspace/x/y/f", "to": "/workspace/g", "overwrite": True})["path"] == "/workspace/g"
    assert sandbox.read("/workspace/g") == b"1"
    sandbox.write("/workspace/x/h", b"3")
    raises("file_exists", remove, sandbox, "/workspace/x")
    remove(sandbox, "/workspace/x", recursive="true")
    raises("file_not_found", stat, sandbox, "/workspace/x")
    # A folder of the image: overlayfs cannot rename it, so it is copied.
    assert post(f"{path}/files/move", {"from": "/home/user/.config", "to": "/home/user/moved"})["type"] == "directory"
    assert sandbox.exec("test -d ~/moved && test ! -e ~/.config")["exit_code"] == 0


def test_tar_both_ways(sandbox):
    sandbox.exec("mkdir -p /workspace/t/sub; cd /workspace/t; echo data >sub/f; ln -s sub/f l; chmod 755 sub/f")
    data = tar_get(sandbox, "/workspace/t")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert sorted(archive.getnames()) == ["t", "t/l", "t/sub", "t/sub/f"]
        assert archive.extractfile("t/sub/f").read() == b"data\n"
    raises("file_not_found", tar_put, sandbox, "/workspace/back", data)  # the target is the caller's to make
    sandbox.exec("mkdir /workspace/back")
    tar_put(sandbox, "/workspace/back", data)
    assert sandbox.exec("diff -r /workspace/t /workspace/back/t")["exit_code"] == 0
    raises("file_not_found", tar_get, sandbox, "/nosuch")
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as archive:
        entry = tarfile.TarInfo("../evil")
        archive.addfile(entry)
    raises("bad_request", tar_put, sandbox, "/workspace/back", evil.getvalue())
    raises("bad_request", tar_put, sandbox, "/workspace/back", data[:-2048])
    raises("bad_request", tar_put, sandbox, "/workspace/back", b"x" * 4096)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_transfers_need_no_memory(sandbox, daemon, chunked):
    size, piece = 600 << 20, os.urandom(1 << 20)
    before, peak = daemon.rss(), 0
    hash_in = hashlib.sha256()

    def pieces():
        nonlocal peak
        for i in range(size >> 20):
            hash_in.update(piece)
            if i % 50 == 0:
                peak = max(peak, daemon.rss())
            yield piece

    query = urlencode({"path": "/workspace/big", "sha256": "true"})
    headers = {} if chunked else {"Content-Length": str(size)}
    reply = sandbox.api.raw("PUT", f"{sandbox.path}/files?{query}", pieces(), headers)
    assert reply.status == 200, reply.body
    assert reply.json()["size"] == size and reply.json()["sha256"] == hash_in.hexdigest()
    hash_out = hashlib.sha256()
    from client import UnixConnection
    conn = UnixConnection(sandbox.api.socket_path)
    conn.request("GET", f"{sandbox.path}/files?path=/workspace/big")
    answer, i = conn.getresponse(), 0
    while data := answer.read(1 << 20):
        hash_out.update(data)
        i += 1
        if i % 50 == 0:
            peak = max(peak, daemon.rss())
    conn.close()
    assert hash_out.hexdigest() == hash_in.hexdigest()
    assert peak - before < 32 << 20
    remove(sandbox, "/workspace/big")


def test_an_upload_that_breaks_off_replaces_nothing(sandbox):
    sandbox.write("/workspace/f", b"old")
    for headers in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(sandbox.api.socket_path)
            s.sendall(f"PUT {sandbox.path}/files?path=/workspace/f HTTP/1.1\r\nHost: localhost\r\n".encode() + headers)
            time.sleep(0.3)
    time.sleep(0.5)
    assert sandbox.read("/workspace/f") == b"old"
    assert [e["name"] for e in listing(sandbox, "/workspace")["entries"]] == ["f"]


def test_a_slow_reader_holds_nobody_up(sandbox, daemon):
    sandbox.exec("head -c 200000000 /dev/urandom >/workspace/big")
    before = daemon.rss()
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sandbox.api.socket_path)
        s.sendall(f"GET {sandbox.path}/files?path=/workspace/big HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert s.recv(1000)
        time.sleep(1)
        began = time.monotonic()
        assert sandbox.read("/etc/hostname")
        assert time.monotonic() - began < 1
        assert daemon.rss() - before < 16 << 20
    assert sandbox.read("/etc/hostname")


def test_many_at_once(sandbox):
    failures = []

    def work(i):
        try:
            data = os.urandom(50_000)
            for _ in range(5):
                sandbox.write(f"/workspace/f{i}", data)
                if sandbox.read(f"/workspace/f{i}") != data:
                    failures.append(i)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_concurrent_writers_leave_one_whole_file(sandbox):
    contents = [bytes([65 + i]) * 300_000 for i in range(8)]
    threads = [threading.Thread(target=sandbox.write, args=("/workspace/f", c)) for c in contents]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sandbox.read("/workspace/f") in contents


def test_a_killed_worker_is_an_error_not_a_hang(sandbox):
    result = {}

    def upload():
        def slowly():
            for _ in range(40):
                yield b"x" * 1000
                time.sleep(0.05)
        try:
            query = urlencode({"path": "/workspace/f"})
            result["status"] = sandbox.api.raw("PUT", f"{sandbox.path}/files?{query}", slowly()).status
        except OSError as error:
            result["error"] = error

    t = threading.Thread(target=upload)
    t.start()
    time.sleep(0.5)
    sandbox.exec("kill -9 -1", timeout=5)
    t.join(20)
    assert not t.is_alive()
    assert result.get("status", 500) >= 400 or "error" in result
    raises("file_not_found", sandbox.read, "/workspace/f")
