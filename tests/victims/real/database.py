"""What victims that are databases share; no victim itself."""

import os
import pwd
import subprocess
import sys
import time


class User:
    """The first of these users that there is: who owns the data, and as whom the server runs."""

    def __init__(self, *names):
        self.entry = next(pwd.getpwnam(n) for n in names if n in {p.pw_name for p in pwd.getpwall()})

    def own(self, folder):
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, self.entry.pw_uid, self.entry.pw_gid)

    def become(self):
        os.setgroups([])
        os.setgid(self.entry.pw_gid)
        os.setuid(self.entry.pw_uid)


class Session:
    """A client that stays; done: what makes it print a line "done" after the statement before it."""

    def __init__(self, command, done):
        self.done = done
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def send(self, sql):
        self.process.stdin.write(sql + self.done)
        self.process.stdin.flush()

    def result(self):
        lines = []
        for line in self.process.stdout:
            if line == "done\n":
                return "".join(lines).strip()
            lines.append(line)
        sys.exit("FAIL: the client has ended: " + "".join(lines))

    def __call__(self, sql):
        self.send(sql)
        return self.result()


def await_server(command):
    for _ in range(300):
        if subprocess.run(command, capture_output=True).returncode == 0:
            return
        time.sleep(0.05)


def wait_locked(main, waiter):
    """Both change one row of `t`, the second waits for the first's lock; then the freeze comes."""
    main("begin")
    main("update t set v = 'mine' where i = 17")
    waiter.send("update t set v = 'theirs' where i = 17")
    time.sleep(0.3)
    print("READY", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.002)
    assert main("select v from t where i = 17") == "mine"
    assert main("select x from private") == "5"
    main("commit")
    waiter.result()
    assert main("select v from t where i = 17") == "theirs"
