"""A small client of the native API for tests: HTTP over the Unix socket, standard library only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import quote, urlencode

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COPPICE_BUILD", ROOT / "build")).resolve()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None = 120):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class ApiError(Exception):
    def __init__(self, status: int, body: dict):
        super().__init__(f"{status} {body.get('code')}: {body.get('message')}")
        self.status = status
        self.code = body.get("code")
        self.message = body.get("message")
        self.retryable = body.get("retryable")
        self.body = body


class Response:
    def __init__(self, status: int, headers: dict, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Api:
    """Every call opens a connection of its own unless `keep` is used, so tests cannot disturb each other."""

    checker = None  # set by conftest: checks traffic against api/openapi.yaml

    def __init__(self, socket_path: str):
        self.socket_path = str(socket_path)

    def raw(self, method, path, body=None, headers=None, timeout=120) -> Response:
        conn = UnixConnection(self.socket_path, timeout)
        try:
            conn.request(method, path, body=body, headers=headers or {})
            reply = conn.getresponse()
            return Response(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            conn.close()

    def call(self, method, path, data=None, query=None, timeout=120):
        """JSON in, JSON out; an error reply raises ApiError."""
        if query:
            path += "?" + urlencode(query)
        body = None if data is None else json.dumps(data).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        reply = self.raw(method, path, body, headers, timeout)
        value = reply.json() if reply.body else None
        if Api.checker:
            Api.checker(method, path, data, reply)
        if reply.status >= 400:
            raise ApiError(reply.status, value or {})
        return value

    def get(self, path, /, **query):
        return self.call("GET", path, query=query)

    def post(self, path, data=None, timeout=120):
        return self.call("POST", path, data, timeout=timeout)

    def delete(self, path, /, **query):
        return self.call("DELETE", path, query=query)

    def events(self, method, path, data=None, accept="application/x-ndjson", timeout=120):
        """Yields the events of a stream as they come."""
        conn = UnixConnection(self.socket_path, timeout)
        try:
            body = None if data is None else json.dumps(data).encode()
            conn.request(method, path, body=body, headers={"Accept": accept, "Content-Type": "application/json"})
            reply = conn.getresponse()
            if reply.status >= 400:
                raise ApiError(reply.status, json.loads(reply.read()))
            for line in reply:
                line = line.decode().rstrip("\n")
                if accept == "text/event-stream":
                    line = line[6:] if line.startswith("data: ") else ""
                if not line:
                    continue
                event = json.loads(line)
                if Api.checker and ("/cells" in path or "/exec" in path or "/commands" in path):
                    Api.checker.document.check_event(event)
                yield event
        finally:
            conn.close()

    # -- shorthand ---------------------------------------------------------------------------------------------------

    def new(self, **params) -> Sandbox:
        return Sandbox(self, self.post("/api/sandboxes", params)["id"])


class Sandbox:
    def __init__(self, api: Api, id: str):
        self.api, self.id = api, id
        self.path = f"/api/sandboxes/{id}"

    def info(self):
        return self.api.get(self.path)

    def run(self, code: str, **params):
        """Runs a cell and returns it; does not raise for a cell that failed."""
        limit = params.get("timeout", 30)
        return self.api.post(f"{self.path}/cells", {"code": code, **params}, timeout=limit + 60)

    def ok(self, code: str, **params):
        cell = self.run(code, **params)
        assert cell["status"] == "ok", cell
        return cell

    def text(self, code: str, **params) -> str:
        """text/plain of the cell's main result."""
        cell = self.ok(code, **params)
        return next(r["data"]["text/plain"] for r in cell["results"] if r["main"])

    def stream(self, code: str, **params):
        return self.api.events("POST", f"{self.path}/cells", {"code": code, **params})

    def exec(self, command, **params):
        what = {"argv": command} if isinstance(command, list) else {"command": command}
        return self.api.post(f"{self.path}/exec", {**what, **params}, timeout=params.get("timeout", 30) + 60)

    def kernel_count(self) -> int:
        """Processes of Python kernels, whatever module has started them."""
        return int(self.exec("pgrep -fc -- [-]-IPKernelApp")["stdout"])

    def read(self, path: str) -> bytes:
        reply = self.api.raw("GET", f"{self.path}/files?path={quote(path)}")
        if reply.status >= 400:
            raise ApiError(reply.status, reply.json())
        return reply.body

    def write(self, path: str, data: bytes, **query):
        query = urlencode({"path": path, **query})
        reply = self.api.raw("PUT", f"{self.path}/files?{query}", data)
        if reply.status >= 400:
            raise ApiError(reply.status, reply.json())
        return reply.json()

    def remove(self):
        return self.api.delete(self.path)

    # -- states ------------------------------------------------------------------------------------------------------

    def suspend(self):
        return self.api.post(f"{self.path}/suspend")

    def resume(self, cold: bool = False, **params):
        """Wakes it; fails when memory was not kept, unless that is expected."""
        reply = self.api.post(f"{self.path}/resume", params or None)
        assert reply["memoryRestored"] is not False or cold, (reply.get("resumeReason"), reply.get("resumeMessage"))
        return reply

    def snapshot(self, **params):
        return self.api.post(f"{self.path}/snapshots", params)

    def fork(self, **params) -> list[Sandbox]:
        """Live copies; fails when one of them failed."""
        children = self.api.post(f"{self.path}/fork", params)["sandboxes"]
        assert all("id" in c for c in children), children
        return [Sandbox(self.api, c["id"]) for c in children]

    def undo(self, steps: int = 1):
        return self.api.post(f"{self.path}/undo", {"steps": steps})

    def goto(self, node: str):
        return self.api.post(f"{self.path}/goto", {"node": node})

    def nodes(self):
        return self.api.get(f"{self.path}/nodes")


class Daemon:
    """A coppiced of the build tree with a home of its own."""

    def __init__(self, home: Path, *args: str):
        self.home, self.args = Path(home), args
        self.spare = False  # an empty sandbox kept for the next fork would be in the way of who counts what is there
        self.wrapper: list[str] = []  # a program that runs the daemon: on a host that lacks something
        self.socket = self.home / "coppice.sock"
        self.api = Api(str(self.socket))
        self.process: subprocess.Popen | None = None
        self.env: dict[str, str] = {}  # added to ours
        self.log = self.home.parent / (self.home.name + ".log")

    def start(self) -> Daemon:
        ready_r, ready_w = os.pipe()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, str(BUILD / "bin" / "coppiced"), "--home", str(self.home), "--ready-fd", str(ready_w),
                 *([] if self.spare else ["--no-spare"]), *self.args],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[ready_w], start_new_session=True,
                env={**os.environ, **self.env})
        os.close(ready_w)
        with os.fdopen(ready_r, "rb") as ready:
            line = ready.readline()
        if not line:
            raise RuntimeError(f"coppiced did not start: {self.log.read_text()[-2000:]}")
        return self

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)

    def open_files(self) -> list[str]:
        """What the daemon's descriptors are, by name."""
        found = []
        for fd in os.listdir(f"/proc/{self.process.pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{self.process.pid}/fd/{fd}"))
            except FileNotFoundError:
                continue  # closed meanwhile
        return found

    def rss(self) -> int:
        """Resident bytes of the daemon."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")


def wait_for(what, seconds: float = 10, step: float = 0.05):
    """Calls `what` until it gives something true; fails after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(step)
