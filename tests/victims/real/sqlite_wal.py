# sqlite in WAL mode with an open transaction, a reader in an older snapshot, in two processes (shared memory, POSIX locks).
# victim: timeout=40
# victim: flavours=unfrozen,kill,twice,tracked
import os
import sqlite3
import time

for old in ("db", "db-wal", "db-shm"):
    if os.path.exists(old):
        os.unlink(old)
db = sqlite3.connect("db", isolation_level=None)
assert db.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
db.execute("create table t (id integer primary key, v text)")
db.executemany("insert into t (v) values (?)", [("row %d" % i,) for i in range(5000)])

r, w = os.pipe()
pid = os.fork()
if pid == 0:
    reader = sqlite3.connect("db", isolation_level=None)
    reader.execute("begin")
    n = reader.execute("select count(*) from t").fetchone()[0]
    os.write(w, b"r")
    while not os.path.exists("go"):
        time.sleep(0.002)
    same = reader.execute("select count(*) from t").fetchone()[0] == n
    busy = sqlite3.connect("db", timeout=0.1, isolation_level=None)
    try:
        busy.execute("begin immediate")
        locked = False
    except sqlite3.OperationalError:
        locked = True
    reader.execute("commit")
    os.write(w, b"d")
    os._exit(0 if same and locked else 1 + same + 2 * locked)

os.read(r, 1)
db.execute("begin immediate")
db.executemany("insert into t (v) values (?)", [("new %d" % i,) for i in range(3000)])
db.execute("update t set v = 'changed' where id % 10 = 0")
print("READY", flush=True)
os.read(r, 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert status == 0, f"the reader's check {status}"
db.execute("commit")
other = sqlite3.connect("db")
assert other.execute("select count(*) from t").fetchone()[0] == 8000
assert other.execute("select count(*) from t where v = 'changed'").fetchone()[0] == 800
assert other.execute("pragma integrity_check").fetchone()[0] == "ok"
assert db.execute("pragma wal_checkpoint(truncate)").fetchone()[0] == 0
print("PASS", flush=True)
