"""Output capture that loses nothing, delays nothing and keeps the order of stdout and stderr.

Stock ipykernel gives each stream a buffer of its own, published by a timer or a flush; each flush waits for another
thread.  What arrives on file descriptors 1 and 2 is read 1000 bytes at a time, decoded piece by piece, and often published
after the cell is over.

Here both streams append to one queue, in which neighbours of the same stream and parent are one segment.  A flush closes
what is there as a batch and puts a drain into the IOPub thread's event queue, through which every message of the kernel
passes: so the batch is published before whatever is sent afterwards (the result, `idle`), without waiting, and what is
written later comes later.  A drain sends pieces of at most CHUNK characters.  A flush with nothing pending costs nothing.

File descriptors 1 and 2 lead to a pipe of 1 MiB, read by a thread in large pieces with one incremental decoder.  At the
end of a cell the kernel's own flush first waits until that pipe is empty.

The IOPub socket is told to hold back instead of dropping (install_backpressure), and a writer waits while more than
BACKLOG characters are pending: so a cell that prints without end runs at the reader's speed, in constant memory.

A KeyboardInterrupt in the middle of a print costs at most that print: sending is left to the other thread.  A forked child
has no IOPub thread; it uses the stock way.
"""

import asyncio
import codecs
import collections
import fcntl
import os
import re
import select
import struct
import sys
import termios
import threading
import time
from os import getpid
from threading import get_ident
from time import perf_counter

from ipykernel import iostream

Stock = iostream.OutStream
MAIN = threading.main_thread().ident

CHUNK = 64 * 1024  # characters: at most 256 KiB of UTF-8
BACKLOG = 4 * 1024 * 1024  # characters
SEND_BACKLOG = 200  # messages that libzmq holds for a slow reader
PIPE_SIZE = 1024 * 1024
READ_SIZE = 64 * 1024
FLUSH_WAIT = 0.05  # seconds for the capture pipe to become empty
FLUSH_STEP = 0.0005
QUIET = 0.0005  # after so long without a print, another process may have written meanwhile
SURROGATES = re.compile("[\ud800-\udfff]")

_needed = ("_watch_pipe_fd", "_setup_stream_redirects", "_is_master_process", "flush", "write", "set_parent")
for _name in _needed:
    if not callable(getattr(Stock, _name, None)):
        raise ImportError(f"ipykernel.iostream.OutStream has no {_name}")


def _make_bytes_waiting():
    """How many bytes lie in a pipe.  fcntl.ioctl gives the GIL away, which costs a cell half a millisecond when the IOPub
    thread wants it; a call through PyDLL does not."""
    try:
        from ctypes import PyDLL, byref, c_int, c_ulong, c_void_p

        ioctl = PyDLL(None).ioctl
        ioctl.argtypes = (c_int, c_ulong, c_void_p)
        request = c_ulong(termios.FIONREAD)
    except Exception:

        def bytes_waiting(fd):
            try:
                return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
            except OSError:
                return 0

        return bytes_waiting

    def bytes_waiting(fd):
        number = c_int(0)
        return number.value if ioctl(fd, request, byref(number)) == 0 else 0

    return bytes_waiting


_bytes_waiting = _make_bytes_waiting()


class _Direct:
    """Stands in for a socket within the IOPub thread: sends at once instead of putting it at the end of the queue."""

    def __init__(self, pub_thread):
        self.send_multipart = pub_thread._really_send


class _Queue:
    """What both streams of one kernel have written and nobody has published yet."""

    def __init__(self, pub_thread):
        self.pub_thread = pub_thread
        self.direct = _Direct(pub_thread)
        # A signal handler may print in the middle of a print: the lock must let its own thread in again.
        self.lock = threading.RLock()
        self.segments = []  # (stream, parent header, [text, …]): neighbours differ in stream or parent
        self.batches = collections.deque()  # segments that a flush has closed, each with a drain in the IOPub thread's queue
        self.pending = 0  # characters in segments
        self.unsent = 0  # characters in segments and batches
        self.armed = False  # a drain will come by the timer
        self.timer = None  # of the IOPub thread's loop
        self.captured = False  # something came by a descriptor since the last flush of the kernel
        self.last_write = 0.0
        self.streams = []

    def add(self, stream, parent, text):
        with self.lock:
            last = self.segments[-1] if self.segments else None
            if last is not None and last[0] is stream and last[1] is parent:
                last[2].append(text)
            else:
                self.segments.append((stream, parent, [text]))
            self.pending += len(text)
            self.unsent += len(text)
            full = self.pending >= CHUNK
            arm = not full and not self.armed
            self.armed = self.armed or arm
        if full:
            self.push()
            if self.unsent > BACKLOG:
                self._hold_back()
        elif arm:
            self.pub_thread.schedule(self._start_timer)

    def push(self):
        """Has everything written so far, and nothing written later, published before what is sent from now on."""
        with self.lock:
            if not self.segments:
                return
            self.batches.append(self.segments)
            self.segments, self.pending = [], 0
        self.pub_thread.schedule(self.drain)

    def _start_timer(self):
        self.timer = self.pub_thread.io_loop.call_later(Stock.flush_interval, self._on_timer)

    def _on_timer(self):
        self.timer = None
        self.armed = False
        self.push()  # at the end of the thread's queue: a message that waits there may be older than the text

    def _stop_timer(self):
        """A kernel with nothing to say sleeps, and is not woken for nothing."""
        with self.lock:
            if self.timer is None or self.segments:
                return
            self.armed = False
        self.pub_thread.io_loop.remove_timeout(self.timer)
        self.timer = None

    def _hold_back(self):
        thread = self.pub_thread.thread
        if thread.ident == get_ident():
            return
        while self.unsent > BACKLOG // 2 and thread.is_alive():
            self.push()
            time.sleep(0.001)

    def drain(self):
        """In the IOPub thread: publishes the oldest batch."""
        if not self.batches:
            return
        segments = self.batches.popleft()
        for stream, parent, texts in segments:
            text = "".join(texts)
            texts.clear()
            length = len(text)
            for start in range(0, length, CHUNK):
                self._send(stream, parent, text if length <= CHUNK else text[start : start + CHUNK])
                with self.lock:
                    self.unsent -= min(CHUNK, length - start)
        self._stop_timer()

    def _send(self, stream, parent, text):
        if not text.isascii():
            # A surrogate cannot be sent as UTF-8; Session would drop the message.
            text = SURROGATES.sub("\ufffd", text)
        try:
            session = stream.session
            # The check guards sockets against forks; this thread does not exist in a fork.
            session.pid = getpid()
            message = session.msg("stream", {"name": stream.name, "text": text}, parent=parent)
            session.send(self.direct, message, ident=stream.topic)
        except Exception as error:
            _log(stream, f"coppice_kernel: output lost: {error!r}\n")


def _log(stream, text):
    fd = getattr(stream, "_original_stdstream_copy", None)
    if fd is not None:
        try:
            os.write(fd, text.encode("utf-8", "replace"))
        except OSError:
            pass


def _queue_of(pub_thread):
    queue = getattr(pub_thread, "_coppice_queue", None)
    if queue is None:
        queue = pub_thread._coppice_queue = _Queue(pub_thread)
    return queue


class OutStream(Stock):
    """sys.stdout and sys.stderr of a cell."""

    _queue = None
    _fid = None
    _capture_pw = None
    _reading = False
    _watcher = None  # ident of the capturing thread
    _gave_up = None  # the parent for which waiting for the pipe was in vain
    _user_closed = False

    def __init__(self, session, pub_thread, name, *args, **kwargs):
        if isinstance(pub_thread, iostream.IOPubThread) and hasattr(pub_thread, "_really_send"):
            queue = _queue_of(pub_thread)
            queue.streams.append(self)
            self._queue = queue
        super().__init__(session, pub_thread, name, *args, **kwargs)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, string):
        queue = self._queue
        if queue is None or self.pub_thread is None or not isinstance(string, str) or getpid() != self._master_pid:
            return super().write(string)
        if self._user_closed:
            raise ValueError("I/O operation on closed file")
        if self.echo is not None:
            try:
                self.echo.write(string)
            except OSError:
                pass
        if get_ident() == MAIN:
            now = perf_counter()
            if queue.captured or now - queue.last_write > QUIET:
                self._await_capture(FLUSH_WAIT)
            queue.last_write = now
        if string:
            queue.add(self, self.parent_header, string)
        return len(string)

    # -- flushing --------------------------------------------------------------------------------------------------

    def flush(self):
        queue = self._queue
        if queue is None or getpid() != self._master_pid:
            return super().flush()
        if self.pub_thread is None or self.pub_thread.thread is None:
            return None
        by_kernel = sys._getframe(1).f_globals.get("__name__", "").startswith("ipykernel")
        if by_kernel and get_ident() == MAIN:
            parent = self.parent_header
            if self._gave_up is not parent and not self._await_capture(FLUSH_WAIT):
                # Some process writes without end: not again for this cell.
                for stream in queue.streams:
                    stream._gave_up = parent
            queue.captured = False
        if queue.unsent:
            queue.push()
            if not by_kernel and self.pub_thread.thread.ident != get_ident():
                # The user wants it out now: it may be the last thing before a crash.
                sent = threading.Event()
                self.pub_thread.schedule(sent.set)
                sent.wait(self.flush_timeout)
        return None

    def _await_capture(self, limit):
        """Waits until what other processes and C code wrote is in the queue; False when it never ended."""
        end = None
        for stream in self._queue.streams:
            while stream._capture_busy():
                now = perf_counter()
                if end is None:
                    end = now + limit
                if now >= end:
                    return False
                time.sleep(FLUSH_STEP)
        return True

    def _capture_busy(self):
        if self._fid is None or get_ident() == self._watcher:
            return False
        if self._reading:
            return True
        return _bytes_waiting(self._fid) > 0

    # -- capture of descriptors 1 and 2 ------------------------------------------------------------------------------

    def _setup_stream_redirects(self, name):
        fno = {"stdout": 1, "stderr": 2}[name]
        pr, pw = os.pipe()
        try:
            fcntl.fcntl(pw, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_SIZE)
        except OSError:
            pass  # over the user's share of pipe memory
        self._original_stdstream_fd = fno
        self._original_stdstream_copy = os.dup(fno)
        os.dup2(pw, fno)
        self._fid = pr
        self._capture_pw = pw
        self._exc = None
        self.watch_fd_thread = threading.Thread(target=self._watch_pipe_fd, name=f"capture-{name}")
        self.watch_fd_thread.daemon = True
        # Debuggers must leave it alone, as they do ipykernel's own threads.
        self.watch_fd_thread.pydev_do_not_trace = True
        self.watch_fd_thread.is_pydev_daemon_thread = True
        self.watch_fd_thread.start()

    def _watch_pipe_fd(self):
        self._watcher = get_ident()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        poll = select.poll()
        poll.register(self._fid, select.POLLIN)
        while self._should_watch:
            try:
                poll.poll()
                self._reading = True
                if self._queue is not None:
                    self._queue.captured = True
                data = os.read(self._fid, READ_SIZE)
                if not data:
                    break
                text = decoder.decode(data)
                if self._should_watch:
                    self._write_captured(text)
            except MemoryError:
                time.sleep(0.05)
            except OSError:
                break
            except Exception as error:
                _log(self, f"coppice_kernel: capture: {error!r}\n")
            finally:
                self._reading = False

    def _write_captured(self, text):
        # A user's sys.stdout.close() does not concern the descriptor.
        queue = self._queue
        if queue is None:
            super().write(text)
        elif text:
            queue.add(self, self.parent_header, text)
            queue.push()

    def fileno(self):
        """The captured descriptor, so that subprocess.run(..., stdout=sys.stdout) is seen as well."""
        fd = getattr(self, "_original_stdstream_fd", None)
        return super().fileno() if fd is None or self._fid is None else fd

    def repair_descriptor(self):
        """Captures descriptor 1 or 2 again when user code has closed it; True when that was needed."""
        if self._capture_pw is None:
            return False
        try:
            os.fstat(self._original_stdstream_fd)
        except OSError:
            os.dup2(self._capture_pw, self._original_stdstream_fd)
            return True
        return False

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self):
        if sys._getframe(1).f_globals.get("__name__", "").startswith("ipykernel"):
            super().close()
        else:
            # sys.stdout.close() in a cell: later prints of this cell fail as they would anywhere else.
            self._user_closed = True

    @property
    def closed(self):
        return self._user_closed or self.pub_thread is None

    def reopen(self):
        """Undoes a close() by user code; True when there was one."""
        was, self._user_closed = self._user_closed, False
        return was


def install_backpressure(shell):
    """Without this a PUB socket drops what a slow reader has not taken, the end of the cell included."""
    import zmq

    thread = shell.kernel.iopub_thread

    def set_options():
        thread.socket.setsockopt(zmq.XPUB_NODROP, 1)
        thread.socket.setsockopt(zmq.SNDHWM, SEND_BACKLOG)

    thread.schedule(set_options)


def install_rest(shell):
    """A kernel at rest sleeps: ipykernel looks every ten seconds for sockets of threads that have ended.  Here that is done at
    the end of a cell, when there are any."""
    thread = shell.kernel.iopub_thread
    if not hasattr(thread, "_event_pipe_gc_task"):
        return  # one that does not look for them

    def stop():
        if thread._event_pipe_gc_task is not None:
            thread._event_pipe_gc_task.cancel()

    def collect():
        asyncio.ensure_future(thread._event_pipe_gc())

    def at_end(*_):
        if not all(owner.is_alive() for owner in list(thread._event_pipes)):
            thread.schedule(collect)

    thread.schedule(stop)
    shell.events.register("post_run_cell", at_end)


def install_handover(shell):
    """A client that comes back with the routing id of its former self gets the answers meant for it.  By default the newcomer
    is ignored as long as the old connection is not cleared away, which a busy kernel does not do."""
    import zmq
    from ipykernel.kernelapp import IPKernelApp

    app = IPKernelApp.instance()
    for socket in (app.shell_socket, app.stdin_socket):
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
