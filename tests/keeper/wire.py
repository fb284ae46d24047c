"""Speaks src/sandbox/wire.h to a coppice-keeper.  Standard library of Python 3.11 only.

The numbers are read from the headers, so that they cannot drift.
"""

import array
import functools
import os
import re
import select
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MAGIC = 0x314D5043
ERROR_ERRNO, ERROR_CODE, ERROR_MESSAGE = 0xFF01, 0xFF02, 0xFF03


def _enums(path):
    values = {}
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    for body in re.findall(r"enum \w+ \{(.*?)\}", text, flags=re.S):
        n = 0
        for item in filter(None, (s.strip() for s in body.split(","))):
            name, _, value = (s.strip() for s in item.partition("="))
            n = int(value, 0) if value else n
            values[name] = n
            n += 1
    for name, shift in re.findall(r"#define (COP_\w+)\s+\(1u << (\d+)\)", text):
        values[name] = 1 << int(shift)
    return values


W = _enums(TOP / "src/sandbox/wire.h")
TYPE = {k[9:]: v for k, v in W.items() if k.startswith("COP_WIRE_")}
TAG = {k[8:]: v for k, v in W.items() if k.startswith("COP_TAG_")}
TYPE_NAME = {v: k for k, v in TYPE.items()}
ENTRY = struct.Struct("=64sQIIQQQQQ")
FRAME = struct.Struct("=B3xIQ")


class WireError(Exception):
    def __init__(self, code, message, errnum):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.errnum = code, message, errnum


def encode(kind, ident, fields):
    body, count = b"", 0
    for tag, value in fields:
        if isinstance(value, int):
            value = struct.pack("=Q", value & (1 << 64) - 1)
        elif isinstance(value, str):
            value = os.fsencode(value)
        body += struct.pack("=HHI", TAG[tag], 0, len(value)) + value + b"\0" * (-len(value) % 4)
        count += 1
    return struct.pack("=IHHII", MAGIC, kind, count, ident, 16 + len(body)) + body


class Message:
    def __init__(self, packet):
        magic, self.type, count, self.id, length = struct.unpack_from("=IHHII", packet)
        assert magic == MAGIC and length == len(packet), "malformed packet"
        self.name = TYPE_NAME.get(self.type, str(self.type))
        self.fields, at = [], 16
        for _ in range(count):
            tag, _, n = struct.unpack_from("=HHI", packet, at)
            self.fields.append((tag, packet[at + 8 : at + 8 + n]))
            at += 8 + n + (-n % 4)

    def all(self, tag):
        return [v for t, v in self.fields if t == TAG[tag]]

    def str(self, tag):
        return os.fsdecode(self.all(tag)[0])

    def num(self, tag):
        return struct.unpack("=q", self.all(tag)[0])[0]

    def error(self):
        found = dict(self.fields)
        if ERROR_ERRNO not in found:
            return None
        return WireError(
            found[ERROR_CODE].decode(), found[ERROR_MESSAGE].decode(), struct.unpack("=Q", found[ERROR_ERRNO])[0]
        )


class Client:
    """One connection to a keeper."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(path)
        self.next_id = 1
        self.events = []
        self.replies = {}

    def close(self):
        self.sock.close()

    def send(self, name, *fields, fds=()):
        ident, self.next_id = self.next_id, self.next_id + 1
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([encode(TYPE[name], ident, fields)], extra)
        return ident

    def receive(self, timeout=10):
        """One message into events or replies; False when none came in time."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return False
        packet = self.sock.recv(256 * 1024)
        if not packet:
            raise EOFError("the keeper closed the connection")
        m = Message(packet)
        if m.name == "REPLY":
            self.replies[m.id] = m
        else:
            self.events.append(m)
        return True

    def wait(self, ident, timeout=20):
        deadline = time.monotonic() + timeout
        while ident not in self.replies:
            if not self.receive(max(0, deadline - time.monotonic())):
                raise TimeoutError(f"no reply to {ident}")
        m = self.replies.pop(ident)
        if m.error():
            raise m.error()
        return m

    def call(self, name, *fields, fds=(), timeout=20):
        return self.wait(self.send(name, *fields, fds=fds), timeout)

    def event(self, name, key=None, timeout=20):
        """Takes out the first event of this name (and key), waiting for it."""
        deadline = time.monotonic() + timeout
        while True:
            for i, m in enumerate(self.events):
                if m.name == name and (key is None or m.str("KEY") == key):
                    return self.events.pop(i)
            if not self.receive(max(0, deadline - time.monotonic())):
                raise TimeoutError(f"no event {name} {key}")


@functools.cache
def image():
    """Root folder of the image to test with: $COPPICE_TEST_IMAGE, else the one of tools/test-image.sh; None without."""
    path = os.environ.get("COPPICE_TEST_IMAGE")
    if not path:
        made = subprocess.run([TOP / "tools/test-image.sh"], stdout=subprocess.PIPE, text=True, check=False)
        path = made.stdout.strip() if made.returncode == 0 else None
    if not path:
        return None
    root = Path(path) / "rootfs"
    return str(root if root.is_dir() else path)


def read_log(path):
    """{1: stdout, 2: stderr, 'dropped': n, 'frames': [...]} of a command's log."""
    data = Path(path).read_bytes()
    assert data[:4] == b"CLG1" and data[4:8] == b"\0\0\0\0", "bad log header"
    out, at = {1: b"", 2: b"", "dropped": 0, "frames": []}, 8
    while at < len(data):
        stream, n, when = FRAME.unpack_from(data, at)
        body = data[at + 16 : at + 16 + n]
        assert len(body) == n and n <= 65536, "torn frame"
        if stream == 3:
            out["dropped"] = struct.unpack("=Q", body)[0]
        else:
            out[stream] += body
        out["frames"].append((stream, n, when))
        at += 16 + n
    return out


class Keeper:
    """A keeper process with folders of its own; a context manager that leaves nothing behind."""

    number = 0

    def __init__(self, bin_dir, lower=None, base=None, uid_base=None, wrapper=(), **limits):
        Keeper.number += 1
        self.dir = base or tempfile.mkdtemp(prefix="coppice-test-")
        for name in ("rw", "ipc", "logs"):
            os.makedirs(f"{self.dir}/{name}", exist_ok=True)
        os.chmod(f"{self.dir}/ipc", 0o755)
        os.chown(f"{self.dir}/ipc", 1000, 1000)
        self.path = f"{self.dir}/keeper.sock"
        self.name = f"sb_t{os.getpid()}_{Keeper.number}"
        self.lower = lower or [image()]
        self.limits = limits
        self.hostname = None  # else its name
        # Far from where daemons take theirs: other sandboxes of this host would be taken for what this keeper left.
        self.uid_base = uid_base or 1 << 29 | (os.getpid() * 7 + Keeper.number) % 4096 << 16
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind(self.path)
        listening.listen(8)
        os.set_inheritable(listening.fileno(), True)
        self.process = subprocess.Popen(
            [*wrapper, f"{bin_dir}/coppice-keeper", "--socket-fd", str(listening.fileno())],
            pass_fds=[listening.fileno()],
        )
        self.client = Client(self.path)  # also when the keeper has ended by now
        listening.close()

    def start_fields(self):
        fields = [("LOWER", x) for x in self.lower]
        fields += [("UPPER", f"{self.dir}/rw"), ("IPC", f"{self.dir}/ipc"), ("LOGS", f"{self.dir}/logs")]
        hostname = self.name.replace("_", "-") if self.hostname is None else self.hostname
        fields += [("HOSTNAME", hostname), ("UID_BASE", self.uid_base), ("CGROUP", self.name)]
        fields += [("DEFAULT_UID", 1000), ("DEFAULT_GID", 1000)]
        fields += [(k.upper(), v) for k, v in self.limits.items()]
        return fields

    def prepare(self):
        return self.client.call("PREPARE", *[(k, v) for k, v in self.start_fields() if k not in ("LOWER", "HOSTNAME")])

    def start(self):
        return self.client.call("START", *self.start_fields())

    def exec(self, key, argv, user=None, env=(), cwd="/", timeout=0, log_max=None, stdin=None):
        if isinstance(argv, str):
            argv = ["/bin/sh", "-c", argv]
        fields = [("KEY", key), ("CWD", cwd), ("TIMEOUT", timeout)] + [("ARGV", a) for a in argv]
        fields += [("ENV", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")] + [("ENV", e) for e in env]
        fields += [("USER", user)] if user else []
        fields += [("LOG_MAX", log_max)] if log_max is not None else []
        return self.client.call("EXEC", *fields, fds=[stdin] if stdin is not None else [])

    def run(self, key, argv, timeout=30, **kw):
        """EXEC to its end: (status, stdout, stderr)."""
        self.exec(key, argv, **kw)
        e = self.client.event("EVENT_EXIT", key, timeout)
        log = self.log(key)
        return e.num("STATUS"), log[1], log[2]

    def log(self, key):
        return read_log(f"{self.dir}/logs/{key}.log")

    def stop(self, grace=0):
        self.client.call("STOP", ("TIMEOUT", grace))
        self.process.wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            try:
                self.stop()
            except (OSError, EOFError, TimeoutError, WireError):
                pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.client.close()
        subprocess.run(["rm", "-rf", self.dir], check=False)
