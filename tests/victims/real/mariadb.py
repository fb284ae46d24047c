# mariadb: a server of many threads, a session in an open transaction, one that waits for its lock, a temporary table.  Its own asynchronous
# I/O is off, as it is in a sandbox, where it has to do without (src/sandbox/seccomp-rules.c).
# victim: needs=mariadbd,mariadb,mariadb-install-db
# victim: timeout=90
# victim: flavours=unfrozen,kill,twice,tracked
import os
import pwd
import subprocess
import sys
import time

here = os.getcwd()
user = pwd.getpwnam("nobody")
os.chmod(".", 0o777)
os.makedirs("data", exist_ok=True)
os.chown("data", user.pw_uid, user.pw_gid)
CLIENT = ["mariadb", "--no-defaults", "--socket", here + "/sock", "-u", "root", "-N", "-B", "--unbuffered"]


def as_user():
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


subprocess.run(["mariadb-install-db", "--no-defaults", "--datadir=" + here + "/data", "--auth-root-authentication-method=normal",
                "--innodb-use-native-aio=0"], check=True, stdout=open("install-log", "w"), stderr=subprocess.STDOUT, preexec_fn=as_user)
server = subprocess.Popen(["mariadbd", "--no-defaults", "--datadir=" + here + "/data", "--socket=" + here + "/sock", "--skip-networking",
                           "--innodb-use-native-aio=0", "--innodb-flush-log-at-trx-commit=2", "--pid-file=" + here + "/pid"],
                          preexec_fn=as_user, stdout=open("server-log", "w"), stderr=subprocess.STDOUT)


class Session:
    def __init__(self):
        self.process = subprocess.Popen(CLIENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self("create database if not exists d; use d")

    def send(self, sql):
        self.process.stdin.write(sql + "; select 'done';\n")
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


for _ in range(300):
    if subprocess.run([*CLIENT, "-e", "select 1"], capture_output=True).returncode == 0:
        break
    time.sleep(0.05)
main, waiter = Session(), Session()
main("create table t (i int primary key, v char(32)) engine=innodb")
main("insert into t select seq, md5(seq) from seq_1_to_20000")
main("create temporary table private select 5 as x")
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
assert main("select count(*), count(distinct v) from t") == "20000\t20000"
fresh = subprocess.run([*CLIENT, "d", "-e", "select sum(i) from t; check table t"], capture_output=True, text=True)
assert fresh.stdout.split() == ["200010000", "d.t", "check", "status", "OK"], fresh
subprocess.run([*CLIENT, "-e", "shutdown"], check=True, stdout=subprocess.DEVNULL)
assert server.wait() == 0
print("PASS", flush=True)
