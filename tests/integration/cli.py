"""Runs build/bin/coppice as a user types it."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path

from client import BUILD

COPPICE = str(BUILD / "bin" / "coppice")


class Cli:
    """`cli("run", "demo", "1 + 1")` runs it against one home (or URL) and returns what it said."""

    def __init__(self, home: Path | None = None, **env: str):
        keep = {k: v for k, v in os.environ.items() if not k.startswith("COPPICE_")}
        self.env = {**keep, **env}
        if home:
            self.env["COPPICE_HOME"] = str(home)

    def __call__(self, *args: str, input: bytes | str | None = None, cwd=None, timeout=120, text=True):
        if isinstance(input, str):
            input = input.encode()
        done = subprocess.run([COPPICE, *map(str, args)], env=self.env, cwd=cwd, timeout=timeout, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              **({"stdin": subprocess.DEVNULL} if input is None else {"input": input}))
        return Done(done, text)

    def ok(self, *args, **kw):
        done = self(*args, **kw)
        assert done.status == 0, done
        return done

    def json(self, *args, **kw):
        return json.loads(self.ok(*args, **kw).out)

    def popen(self, *args, **kw):
        return subprocess.Popen([COPPICE, *map(str, args)], env=self.env, **kw)

    def on_terminal(self, *args, keys: list[tuple[bytes, bytes]] = (), timeout=60) -> tuple[int, str]:
        """Runs it on a terminal of its own; each (WAIT FOR, TYPE) of keys in turn.  Status and all output."""
        pid, fd = pty.fork()
        if pid == 0:
            os.execve(COPPICE, [COPPICE, *map(str, args)], {**self.env, "TERM": "xterm"})
        seen, keys, end = b"", list(keys), time.monotonic() + timeout
        while time.monotonic() < end:
            if keys and keys[0][0] in seen:
                os.write(fd, keys.pop(0)[1])
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    data = os.read(fd, 65536)
                except OSError:  # EIO: the other side is closed
                    break
                if not data:
                    break
                seen += data
        else:
            os.kill(pid, 9)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(fd)
        return status, seen.decode(errors="replace").replace("\r\n", "\n")


class Done:
    def __init__(self, done: subprocess.CompletedProcess, text: bool):
        self.status = done.returncode
        self.out = done.stdout.decode() if text else done.stdout
        self.err = done.stderr.decode(errors="replace")
        self.args = done.args

    def __repr__(self):
        return f"{self.args} -> {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"
