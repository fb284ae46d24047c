# mariadb: a server of many threads, a session in an open transaction, one that waits for its lock, a temporary table.  Its own asynchronous
# I/O is off, as it is in a sandbox, where it has to do without (src/sandbox/seccomp-rules.c).
# victim: needs=mariadbd,mariadb,mariadb-install-db
# victim: timeout=90
# victim: flavours=unfrozen,kill,twice,tracked
import os
import subprocess

from database import Session, User, await_server, wait_locked

here = os.getcwd()
user = User("nobody")
os.chmod(".", 0o777)
user.own("data")
CLIENT = ["mariadb", "--no-defaults", "--socket", here + "/sock", "-u", "root", "-N", "-B", "--unbuffered"]
subprocess.run(["mariadb-install-db", "--no-defaults", "--datadir=" + here + "/data", "--auth-root-authentication-method=normal",
                "--innodb-use-native-aio=0"], check=True, stdout=open("install-log", "w"), stderr=subprocess.STDOUT, preexec_fn=user.become)
server = subprocess.Popen(["mariadbd", "--no-defaults", "--datadir=" + here + "/data", "--socket=" + here + "/sock", "--skip-networking",
                           "--innodb-use-native-aio=0", "--innodb-flush-log-at-trx-commit=2", "--pid-file=" + here + "/pid"],
                          preexec_fn=user.become, stdout=open("server-log", "w"), stderr=subprocess.STDOUT)
await_server([*CLIENT, "-e", "select 1"])
main, waiter = (Session(CLIENT, "; select 'done';\n") for _ in range(2))
for session in (main, waiter):
    session("create database if not exists d; use d")
main("create table t (i int primary key, v char(32)) engine=innodb")
main("insert into t select seq, md5(seq) from seq_1_to_20000")
main("create temporary table private select 5 as x")
wait_locked(main, waiter)
assert main("select count(*), count(distinct v) from t") == "20000\t20000"
fresh = subprocess.run([*CLIENT, "d", "-e", "select sum(i) from t; check table t"], capture_output=True, text=True)
assert fresh.stdout.split() == ["200010000", "d.t", "check", "status", "OK"], fresh
subprocess.run([*CLIENT, "-e", "shutdown"], check=True, stdout=subprocess.DEVNULL)
assert server.wait() == 0
print("PASS", flush=True)
