# postgres: its processes, SysV and shared memory, a session in an open transaction, one that waits for a lock, prepared data.
# victim: needs=/usr/lib/postgresql
# victim: timeout=90
# victim: flavours=unfrozen,kill,twice
import glob
import os
import pwd
import subprocess
import sys
import time

home = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
os.environ["PATH"] = home + ":" + os.environ["PATH"]
os.environ.update(PGHOST=os.getcwd(), PGPORT="5499", PGUSER="postgres", PGDATABASE="postgres")
os.chmod(".", 0o777)
names = {p.pw_name: p for p in pwd.getpwall()}
user = names.get("postgres") or names["nobody"]


def as_user():
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


os.makedirs("data", exist_ok=True)
os.chown("data", user.pw_uid, user.pw_gid)
subprocess.run(["initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions"], check=True,
               stdout=subprocess.DEVNULL, preexec_fn=as_user)
server = subprocess.Popen(["postgres", "-D", "data", "-k", os.getcwd(), "-p", "5499", "-h", "127.0.0.1", "-F"], preexec_fn=as_user,
                          stdout=open("server-log", "w"), stderr=subprocess.STDOUT)


class Session:
    def __init__(self):
        self.process = subprocess.Popen(["psql", "-XqAt"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def send(self, sql):
        self.process.stdin.write(sql + ";\n\\echo done\n")
        self.process.stdin.flush()

    def result(self):
        lines = []
        for line in self.process.stdout:
            if line == "done\n":
                return "".join(lines).strip()
            lines.append(line)
        sys.exit("FAIL: psql has ended: " + "".join(lines))

    def __call__(self, sql):
        self.send(sql)
        return self.result()


for _ in range(300):
    if subprocess.run(["psql", "-XqAtc", "select 1"], capture_output=True).returncode == 0:
        break
    time.sleep(0.05)
main, waiter = Session(), Session()
main("create table t as select i, md5(i::text) as v from generate_series(1, 20000) i")
main("create temp table private as select 5 as x")
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
assert main("select count(*), count(distinct v) from t") == "20000|20000"
main("checkpoint")
fresh = subprocess.run(["psql", "-XqAt", "-h", "127.0.0.1", "-c", "select sum(i) from t"], capture_output=True, text=True)
assert fresh.stdout.strip() == "200010000", fresh
subprocess.run(["pg_ctl", "-D", "data", "-m", "fast", "stop"], check=True, stdout=subprocess.DEVNULL, preexec_fn=as_user)
server.wait()
print("PASS", flush=True)
