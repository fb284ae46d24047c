"""coppiced as a program: options, its home, one per home, signals, readiness, the two listeners, tokens."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import threading

import pytest
from client import BUILD, Daemon, UnixConnection, wait_for

COPPICED = str(BUILD / "bin" / "coppiced")


@pytest.fixture(scope="module")
def tcp_daemon(scratch):
    daemon = Daemon(scratch / "tcp", "--listen", "127.0.0.1:0", "--allow-host", "ours.example")
    daemon.start()
    yield daemon
    daemon.stop()


def tcp(daemon, method, path, body=None, **headers):
    address = daemon.api.get("/api/info")["api"]["tcp"]
    conn = http.client.HTTPConnection(address, timeout=20)
    try:
        conn.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        reply = conn.getresponse()
        return reply.status, json.loads(reply.read() or b"null"), reply
    finally:
        conn.close()


def test_tcp_needs_a_token(tcp_daemon):
    assert tcp(tcp_daemon, "GET", "/api/health")[0] == 200
    status, body, reply = tcp(tcp_daemon, "GET", "/api/sandboxes")
    assert (status, body["code"]) == (401, "unauthorized") and "coppice token new" in body["message"]
    assert reply.getheader("WWW-Authenticate").startswith("Bearer")
    assert tcp(tcp_daemon, "GET", "/api/sandboxes", Authorization="Bearer wrong")[0] == 401
    assert tcp(tcp_daemon, "GET", "/api/nothing")[0] == 401

    token = tcp_daemon.api.post("/api/tokens", {"name": "t"})
    good = {"Authorization": f"Bearer {token['token']}"}
    assert tcp(tcp_daemon, "GET", "/api/sandboxes", **good)[0] == 200
    assert tcp(tcp_daemon, "GET", "/api/nothing", **good)[1]["code"] == "route_not_found"
    listed = tcp_daemon.api.get("/api/tokens")["tokens"]
    assert [t["id"] for t in listed] == [token["id"]] and "token" not in listed[0]
    tcp_daemon.api.delete(f"/api/tokens/{token['id']}")
    assert tcp(tcp_daemon, "GET", "/api/sandboxes", **good)[0] == 401


def test_a_token_ends(tcp_daemon):
    token = tcp_daemon.api.post("/api/tokens", {"name": "short", "expires_seconds": 0.001})
    wait_for(lambda: tcp(tcp_daemon, "GET", "/api/sandboxes", Authorization=f"Bearer {token['token']}")[0] == 401)


def test_what_only_the_socket_may_do(tcp_daemon):
    token = tcp_daemon.api.post("/api/tokens", {"name": "o"})["token"]
    good = {"Authorization": f"Bearer {token}"}
    for method, path, body in [("GET", "/api/tokens", None), ("POST", "/api/tokens", b'{"name":"x"}'),
                               ("POST", "/api/images/import", b'{"source":"/etc","name":"x"}')]:
        status, reply, _ = tcp(tcp_daemon, method, path, body, **good)
        assert (status, reply["code"]) == (403, "forbidden"), path


@pytest.mark.parametrize("host, status", [("localhost", 200), ("127.0.0.1:99", 200), ("[::1]", 200), ("8000-sb.localhost", 200), ("ours.example", 200),
                                          ("evil.example", 403), ("localhost.evil.example", 403)])
def test_names_that_are_served(tcp_daemon, host, status):
    assert tcp(tcp_daemon, "GET", "/api/health", Host=host)[0] == status


def test_a_large_body_without_a_token_is_refused_at_once(tcp_daemon):
    status, body, _ = tcp(tcp_daemon, "POST", "/api/sandboxes", b"x" * 30_000_000)
    assert (status, body["code"]) == (401, "unauthorized")


def test_socket_and_home_are_private(tcp_daemon):
    assert stat.S_IMODE(os.stat(tcp_daemon.home).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tcp_daemon.socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tcp_daemon.home / "coppice.db").st_mode) & 0o077 == 0
    assert int((tcp_daemon.home / "coppiced.pid").read_text()) == tcp_daemon.process.pid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_on_the_socket_needs_a_token(scratch):
    daemon = Daemon(scratch / "shared", "--socket-group", "--socket", str(scratch / "shared.sock"))
    daemon.api.socket_path = str(scratch / "shared.sock")
    daemon.start()
    try:
        os.chmod(scratch, 0o711)
        os.chmod(scratch / "shared.sock", 0o666)
        token = daemon.api.post("/api/tokens", {"name": "g"})["token"]
        program = (f"curl -s --unix-socket {scratch}/shared.sock http://localhost/api/sandboxes; "
                   f"curl -s --unix-socket {scratch}/shared.sock -H 'Authorization: Bearer {token}' http://localhost/api/sandboxes; "
                   f"curl -s --unix-socket {scratch}/shared.sock -H 'Authorization: Bearer {token}' http://localhost/api/tokens")
        out = subprocess.run(["sh", "-c", program], user=65534, group=65534, extra_groups=[], stdout=subprocess.PIPE, text=True).stdout
        replies = [json.loads(line) for line in out.splitlines()]
        assert replies[0]["code"] == "unauthorized"
        assert replies[1] == {"sandboxes": []}
        assert replies[2]["code"] == "forbidden"
    finally:
        daemon.stop()


def test_one_daemon_for_a_home(tcp_daemon):
    second = subprocess.run([COPPICED, "--home", str(tcp_daemon.home)], stderr=subprocess.PIPE, text=True, timeout=20)
    assert second.returncode == 3
    assert f"pid {tcp_daemon.process.pid}" in second.stderr and str(tcp_daemon.home) in second.stderr
    assert tcp_daemon.api.get("/api/health")["status"] == "ok"


def test_a_port_that_is_taken(tcp_daemon, scratch):
    address = tcp_daemon.api.get("/api/info")["api"]["tcp"]
    second = subprocess.run([COPPICED, "--home", str(scratch / "second"), "--listen", address], stderr=subprocess.PIPE, text=True, timeout=20)
    assert second.returncode == 1 and address in second.stderr
    assert not (scratch / "second" / "coppice.sock").exists()


@pytest.mark.parametrize("args, status, text", [
    (["--wrong"], 2, "--help"), (["extra"], 2, "extra"), (["--listen", "0.0.0.0:0"], 1, "--listen-insecure-any"),
    (["--listen", "nowhere"], 1, "127.0.0.1:8000"), (["--ready-fd", "99"], 2, "99"), (["--socket", "/tmp/" + "x" * 200], 1, "--socket"),
    (["--home", "/proc/nothing"], 1, "/proc/nothing")])
def test_wrong_options(scratch, args, status, text):
    args = args if "--home" in args else ["--home", str(scratch / "wrong"), *args]
    done = subprocess.run([COPPICED, *args], stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == status and text in done.stderr, done.stderr


def test_help_version_routes():
    assert subprocess.run([COPPICED, "--version"], stdout=subprocess.PIPE, text=True).stdout.startswith("coppiced ")
    assert "--listen" in subprocess.run([COPPICED, "--help"], stdout=subprocess.PIPE, text=True).stdout
    assert "POST /api/sandboxes\n" in subprocess.run([COPPICED, "--list-routes"], stdout=subprocess.PIPE, text=True).stdout


def test_signals(scratch):
    daemon = Daemon(scratch / "signals").start()
    waiting = UnixConnection(str(daemon.socket))
    waiting.request("GET", "/api/events?follow=true")
    waiting.getresponse()
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.api.get("/api/health")["status"] == "ok"
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    waiting.close()
    assert not daemon.socket.exists()
    daemon.start()
    daemon.process.send_signal(signal.SIGINT)
    assert daemon.process.wait(20) == 0


def test_a_socket_left_by_a_killed_daemon(scratch):
    daemon = Daemon(scratch / "killed").start()
    daemon.kill()
    assert daemon.socket.exists()
    daemon.start()
    assert daemon.api.get("/api/health")["status"] == "ok"
    daemon.stop()


def test_service_manager_is_told(scratch, monkeypatch):
    path = str(scratch / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        daemon = Daemon(scratch / "notified").start()
        assert "READY=1" in s.recv(1000).decode()
        daemon.stop()
        assert "STOPPING=1" in s.recv(1000).decode()


def test_openapi_is_served(api):
    reply = api.raw("GET", "/api/openapi.yaml")
    assert reply.status == 200 and reply.headers["content-type"] == "application/yaml"
    assert reply.body == (BUILD.parent / "api/openapi.yaml").read_bytes() or reply.body.startswith(b"openapi: 3.1.0")


def test_many_clients_at_once(api, shared_sandbox):
    errors = []

    def work(n):
        conn = UnixConnection(api.socket_path)
        try:
            for i in range(20):
                conn.request("POST", f"{shared_sandbox.path}/exec", json.dumps({"argv": ["echo", f"{n}.{i}"]}).encode())
                if json.loads(conn.getresponse().read())["stdout"] != f"{n}.{i}\n":
                    errors.append((n, i))
        except Exception as e:  # noqa: BLE001
            errors.append((n, repr(e)))
        finally:
            conn.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []
