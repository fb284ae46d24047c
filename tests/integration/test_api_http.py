"""The API as HTTP: paths, methods, bad input, limits, connections.  The table of bad input of SPECIFICATION.md."""

from __future__ import annotations

import http.client
import json
import socket
import time

import pytest
from client import Api, ApiError, UnixConnection


def error(reply, status, code, text=""):
    """The one error format, checked to the letter."""
    body = reply.json()
    assert reply.status == status, body
    assert set(body) == {"error", "code", "message", "retryable"}
    assert body["error"] is True and isinstance(body["retryable"], bool)
    assert body["code"] == code, body
    assert text in body["message"], body
    assert reply.headers["content-type"] == "application/json"
    return body


def send(api, method, path, body=None, headers=None):
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    return api.raw(method, path, body, headers)


# -- paths and methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/health", "//api//health", "/api/health/", "/api/h%65alth", "http://localhost/api/health"])
def test_ways_to_write_a_path(api, path):
    assert send(api, "GET", path).json()["status"] == "ok"


@pytest.mark.parametrize(
    "method, path, status, code, text",
    [
        ("GET", "/", 404, "route_not_found", "/"),
        ("GET", "/api/nothing", 404, "route_not_found", "/api/nothing"),
        ("GET", "/api/sandboxes/nobody", 404, "sandbox_not_found", "nobody"),
        ("GET", "/api/sandboxes/sb_0000000000", 404, "sandbox_not_found", "sb_0000000000"),
        ("POST", "/api/sandboxes/nobody/cells", 404, "sandbox_not_found", "nobody"),
        ("GET", "/api/sandboxes/{sb}/cells/cell_0000000000", 404, "cell_not_found", "cell_0000000000"),
        ("GET", "/api/sandboxes/{sb}/cells/cell_0000000000/stream", 404, "cell_not_found", "cell_0000000000"),
        ("GET", "/api/sandboxes/{sb}/contexts/ctx_nothing", 404, "context_not_found", "ctx_nothing"),
        ("GET", "/api/sandboxes/{sb}/commands/99999", 404, "command_not_found", "99999"),
        ("GET", "/api/sandboxes/{sb}/files?path=/nothing", 404, "file_not_found", "/nothing"),
        ("GET", "/api/images/nothing", 404, "image_not_found", "nothing"),
        ("DELETE", "/api/tokens/tok_0000000000", 404, "token_not_found", "tok_0000000000"),
        ("PUT", "/api/health", 405, "method_not_allowed", "GET"),
        ("BREW", "/api/health", 405, "method_not_allowed", "BREW"),
        ("DELETE", "/api/sandboxes/{sb}/exec", 405, "method_not_allowed", "POST"),
        ("GET", "/api/%zz", 400, "bad_request", "percent"),
        ("GET", "/api/%00", 400, "bad_request", "NUL"),
        ("GET", "/api/%ff", 400, "bad_request", "UTF-8"),
        ("GET", "/api/sandboxes?colour=red", 400, "bad_request", "colour"),
        ("GET", "/api/sandboxes?limit=many", 400, "bad_request", "limit"),
        ("GET", "/api/sandboxes?all=maybe", 400, "bad_request", "all"),
        ("DELETE", "/api/sandboxes", 400, "bad_request", "all=true"),
    ],
)
def test_what_does_not_exist(api, shared_sandbox, method, path, status, code, text):
    body = {"code": "1"} if path.endswith("/cells") else None
    reply = send(api, method, path.replace("{sb}", shared_sandbox.id), body)
    error(reply, status, code, text)
    if status == 405:
        assert "OPTIONS" in reply.headers["allow"]


def test_options_and_head(api, shared_sandbox):
    reply = send(api, "OPTIONS", f"{shared_sandbox.path}/files")
    assert reply.status == 204 and set(reply.headers["allow"].split(", ")) == {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"}
    shared_sandbox.write("/tmp/head", b"12345")
    reply = send(api, "HEAD", f"{shared_sandbox.path}/files?path=/tmp/head")
    assert reply.status == 200 and reply.headers["content-length"] == "5" and reply.body == b""
    assert send(api, "HEAD", "/api/sandboxes").status == 200
    assert send(api, "HEAD", "/api/events").status == 200
    assert send(api, "HEAD", f"{shared_sandbox.path}/files?path=/nothing").status == 404


# -- bodies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, body, text",
    [
        ("/api/sandboxes", b"{", "line 1"),
        ("/api/sandboxes", b"[]", "object"),
        ("/api/sandboxes", b'{"name":"a"}{"name":"b"}', "line 1"),
        ("/api/sandboxes", b'{"name":"a","name":"b"}', "duplicate"),
        ("/api/sandboxes", b'{"cpus":NaN}', "line 1"),
        ("/api/sandboxes", b'{"cpus":1e999}', "line 1"),
        ("/api/sandboxes", b"\x00", "line 1"),
        ("/api/sandboxes", b"[" * 100000, "depth"),
        ("/api/sandboxes", {"nmae": "x"}, '"nmae"'),
        ("/api/sandboxes", {"name": 7}, '"name"'),
        ("/api/sandboxes", {"name": ""}, '"name"'),
        ("/api/sandboxes", {"name": "a/b"}, '"name"'),
        ("/api/sandboxes", {"name": ".."}, '"name"'),
        ("/api/sandboxes", {"name": "sb_0123456789"}, '"name"'),
        ("/api/sandboxes", {"name": "x" * 64}, '"name"'),
        ("/api/sandboxes", {"name": "sandbox\n"}, '"name"'),
        ("/api/sandboxes", {"name": "\u00fcber"}, '"name"'),
        ("/api/sandboxes", {"memory": "a lot"}, '"memory"'),
        ("/api/sandboxes", {"memory": 5}, '"memory"'),
        ("/api/sandboxes", {"memory": -1}, '"memory"'),
        ("/api/sandboxes", {"memory": 1.5}, '"memory"'),
        ("/api/sandboxes", {"cpus": "two"}, '"cpus"'),
        ("/api/sandboxes", {"pids": 2.5}, '"pids"'),
        ("/api/sandboxes", {"ttl_seconds": -5}, '"ttl_seconds"'),
        ("/api/sandboxes", {"labels": {"a": 1}}, "labels"),
        ("/api/sandboxes", {"labels": []}, '"labels"'),
        ("/api/sandboxes", {"env": {"A=B": "c"}}, '"env"'),
        ("{sb}/cells", {}, '"code"'),
        ("{sb}/cells", {"code": 1}, '"code"'),
        ("{sb}/cells", {"code": "1", "timeout": "long"}, '"timeout"'),
        ("{sb}/cells", {"code": "1", "timeout": 0}, '"timeout"'),
        ("{sb}/cells", {"code": "1", "timeout": 86401}, '"timeout"'),
        ("{sb}/cells", {"code": "1", "context": 5}, '"context"'),
        ("{sb}/cells", {"code": "1", "stdin": True}, '"stdin"'),
        ("{sb}/cells", b'{"code":"print(1)\\u0000"}', '"code"'),
        ("{sb}/cells", b'{"code":"\\ud83d"}', "surrogate"),
        ("{sb}/cells", b'{"code":"\xff\xfe"}', "UTF-8"),
        ("{sb}/exec", {"command": ["ls"]}, '"command"'),
        ("{sb}/exec", {"argv": "ls"}, '"argv"'),
        ("{sb}/exec", {"argv": []}, '"argv"'),
        ("{sb}/exec", {"command": "ls", "argv": ["ls"]}, "not both"),
        ("{sb}/exec", {"command": "cat", "stdin_base64": "?"}, '"stdin_base64"'),
        ("{sb}/contexts", {"env": {"A": None}}, "env.A"),
    ],
)
def test_bad_bodies(api, shared_sandbox, path, body, text):
    error(send(api, "POST", path.replace("{sb}", shared_sandbox.path), body), 400, "bad_request", text)


def test_an_image_that_does_not_exist(api):
    error(send(api, "POST", "/api/sandboxes", {"image": "nothing"}), 404, "image_not_found", "nothing")


def test_null_is_the_same_as_absent(api, shared_sandbox):
    cell = api.post(f"{shared_sandbox.path}/cells", {"code": "6 * 7", "timeout": None, "context": None, "stdin": None, "detach": None})
    assert cell["status"] == "ok"


def test_empty_body_where_nothing_is_needed(api):
    sb = api.call("POST", "/api/sandboxes")
    try:
        assert send(api, "POST", f"/api/sandboxes/{sb['id']}/contexts/default/interrupt").status == 200
    finally:
        api.delete(f"/api/sandboxes/{sb['id']}")


def test_nan_in_a_result_is_valid_json(shared_sandbox):
    cell = shared_sandbox.ok("from IPython.display import display, JSON\nimport math\ndisplay(JSON({'a': float('nan')}))\nfloat('nan')")
    json.dumps(cell, allow_nan=False)


def test_output_that_is_no_utf8(shared_sandbox):
    cell = shared_sandbox.ok("import os\n_ = os.write(1, b'a\\xffb\\n')")
    assert cell["stdout"].startswith("a") and "\ufffd" in cell["stdout"]


def test_a_cell_of_5_mb_works(shared_sandbox):
    cell = shared_sandbox.run("x = '" + "y" * 5_000_000 + "'\nlen(x)")
    assert cell["status"] == "ok" and cell["results"][0]["data"]["text/plain"] == "5000000"


def test_a_cell_of_100_mb_gets_a_clear_413(api, shared_sandbox):
    body = json.dumps({"code": "x = '" + "y" * 100_000_000 + "'"}).encode()
    error(api.raw("POST", f"{shared_sandbox.path}/cells", body), 413, "payload_too_large", "limit")


def test_a_413_without_a_length_too(api, shared_sandbox):
    def pieces():
        yield b'{"code":"'
        for _ in range(100):
            yield b"y" * 1_000_000

    conn = UnixConnection(api.socket_path)
    try:
        try:
            conn.request("POST", f"{shared_sandbox.path}/cells", body=pieces(), encode_chunked=True,
                         headers={"Transfer-Encoding": "chunked"})
        except BrokenPipeError:
            pass
        reply = conn.getresponse()
        assert reply.status == 413 and json.loads(reply.read())["code"] == "payload_too_large"
    finally:
        conn.close()


def test_a_large_body_to_nowhere_is_answered(api):
    error(api.raw("POST", "/api/nothing", b"x" * 50_000_000), 404, "route_not_found")


def test_form_type_of_curl_is_fine(api, shared_sandbox):
    reply = send(api, "POST", f"{shared_sandbox.path}/cells", {"code": "1"}, {"Content-Type": "application/x-www-form-urlencoded"})
    assert reply.status == 200


# -- connections ---------------------------------------------------------------------------------------------------


def test_one_connection_for_many_calls(api, shared_sandbox):
    conn = UnixConnection(api.socket_path)
    try:
        sockets = set()
        for i in range(20):
            conn.request("POST", f"{shared_sandbox.path}/cells", json.dumps({"code": str(i)}).encode())
            sockets.add(conn.sock.fileno())
            assert json.loads(conn.getresponse().read())["status"] == "ok"
            conn.request("GET", "/api/nothing")
            assert conn.getresponse().read()
        assert len(sockets) == 1
    finally:
        conn.close()


def test_requests_in_one_packet(api):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(api.socket_path)
        s.sendall(b"GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n" * 5 + b"GET /api/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200 OK") == 6


@pytest.mark.parametrize("text", [b"GET\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/3.0\r\n\r\n",
                                  b"POST /api/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                                  b"GET /api/health HTTP/1.1\r\nX: " + b"a" * 500_000 + b"\r\n\r\n"])
def test_what_is_not_http(api, text):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(0.5)
        s.connect(api.socket_path)
        try:
            s.sendall(text)
            while s.recv(65536):
                pass
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass
    assert api.get("/api/health")["status"] == "ok"


def test_idle_connections_are_told_their_limit(api):
    held = []
    try:
        for _ in range(1024):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(10)
            s.connect(api.socket_path)
            held.append(s)
        deadline = time.monotonic() + 10
        while True:  # all of them must have been accepted first
            reply = api.raw("GET", "/api/health")
            if reply.status == 503 or time.monotonic() > deadline:
                break
        assert error(reply, 503, "unavailable", "1024")["retryable"] is True
    finally:
        for s in held:
            s.close()
    deadline = time.monotonic() + 10
    while api.raw("GET", "/api/health").status != 200:
        assert time.monotonic() < deadline


def test_disconnect_of_a_waiting_client_leaves_the_cell_running(api, sandbox):
    conn = UnixConnection(api.socket_path)
    conn.request("POST", f"{sandbox.path}/cells", json.dumps({"code": "import time; time.sleep(1); done = 'yes'"}).encode())
    time.sleep(0.3)
    conn.close()
    assert sandbox.text("done") == "'yes'"


def test_disconnect_may_interrupt(api, sandbox):
    sandbox.ok("1")
    conn = UnixConnection(api.socket_path)
    conn.request("POST", f"{sandbox.path}/cells",
                 json.dumps({"code": "import time; time.sleep(60)", "timeout": 90, "on_disconnect": "interrupt"}).encode())
    time.sleep(0.5)
    start = time.monotonic()
    conn.close()
    sandbox.ok("2")
    assert time.monotonic() - start < 20
    cells = api.get(f"{sandbox.path}/cells")["cells"]
    assert [c["status"] for c in cells][-2] == "interrupted"


def test_half_a_request_does_not_hold_the_daemon(api):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(api.socket_path)
        s.sendall(b"POST /api/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert api.get("/api/health")["status"] == "ok"


def test_api_error_carries_the_parts(api):
    with pytest.raises(ApiError) as caught:
        api.get("/api/sandboxes/nobody")
    assert (caught.value.status, caught.value.code, caught.value.retryable) == (404, "sandbox_not_found", False)
    assert isinstance(api, Api) and http.client.responses[caught.value.status]
