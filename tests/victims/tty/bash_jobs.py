# bash with jobs on a pty: a stopped job, a background job, a variable, history of the line in the making; fg, bg and ^C work.
# victim: timeout=40
import os
import pty
import re
import select
import signal
import time

pid, master = pty.fork()
if pid == 0:
    for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # by who started us in the background, and bash would leave it so
        signal.signal(ignored, signal.SIG_DFL)
    os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {"PS1": "P> ", "PATH": os.environ["PATH"], "TERM": "dumb"})

text = ""


def until(pattern, seconds=15):
    """Reads on until the pattern comes; what came before it is dropped."""
    global text
    end = time.monotonic() + seconds
    while not re.search(pattern, text):
        if time.monotonic() > end:
            raise SystemExit(f"FAIL: no {pattern!r} in {text!r}")
        if select.select([master], [], [], 0.2)[0]:
            text += os.read(master, 4096).decode(errors="replace")
    found = re.search(pattern, text)
    text = text[found.end():]
    return found


def typed(line):
    os.write(master, line.encode())


until("P> ")
typed("sleep 1000\n")
time.sleep(0.2)
typed("\x1a")
until("Stopped")
typed("sleep 2000 &\n")
until(r"\[2\] \d+")
typed("cat > kept &\n")
until(r"\[3\] \d+")
typed("x=remembered; cd /; stty -echoctl\n")
until(r"(?s)stty.*P> ")
typed("echo half-")
until("half-")
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.005)
typed("typed $x $PWD\n")
until("half-typed remembered /")
typed("jobs\n")
until(r"(?s)sleep 1000.*sleep 2000.*P> ")
typed("fg %1\n")
until("sleep 1000")
for _ in range(3000):  # bash says its name before the job has the terminal
    if os.tcgetpgrp(master) != pid:
        break
    time.sleep(0.005)
time.sleep(0.3)
typed("\x03")
until("P> ")
typed("kill %2; wait %2; echo gone $?\n")
until("gone 143")
typed("fg %3\n")
until("cat > kept")
typed("line\n\x04")
until("P> ")
typed("exit 7\n")
status = os.waitpid(pid, 0)[1]
assert os.waitstatus_to_exitcode(status) == 7, status
print("PASS", flush=True)
