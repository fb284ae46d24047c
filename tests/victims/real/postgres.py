# postgres: its processes, SysV and shared memory, a session in an open transaction, one that waits for a lock, prepared data.
# victim: needs=/usr/lib/postgresql
# victim: timeout=90
# victim: flavours=unfrozen,kill,twice
import glob
import os
import subprocess

from database import Session, User, await_server, wait_locked

home = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
os.environ["PATH"] = home + ":" + os.environ["PATH"]
os.environ.update(PGHOST=os.getcwd(), PGPORT="5499", PGUSER="postgres", PGDATABASE="postgres")
os.chmod(".", 0o777)
user = User("postgres", "nobody")
user.own("data")
subprocess.run(["initdb", "-D", "data", "-U", "postgres", "-A", "trust", "--no-sync", "--no-instructions"], check=True,
               stdout=subprocess.DEVNULL, preexec_fn=user.become)
server = subprocess.Popen(["postgres", "-D", "data", "-k", os.getcwd(), "-p", "5499", "-h", "127.0.0.1", "-F"], preexec_fn=user.become,
                          stdout=open("server-log", "w"), stderr=subprocess.STDOUT)
await_server(["psql", "-XqAtc", "select 1"])
main, waiter = (Session(["psql", "-XqAt"], ";\n\\echo done\n") for _ in range(2))
main("create table t as select i, md5(i::text) as v from generate_series(1, 20000) i")
main("create temp table private as select 5 as x")
wait_locked(main, waiter)
assert main("select count(*), count(distinct v) from t") == "20000|20000"
main("checkpoint")
fresh = subprocess.run(["psql", "-XqAt", "-h", "127.0.0.1", "-c", "select sum(i) from t"], capture_output=True, text=True)
assert fresh.stdout.strip() == "200010000", fresh
subprocess.run(["pg_ctl", "-D", "data", "-m", "fast", "stop"], check=True, stdout=subprocess.DEVNULL, preexec_fn=user.become)
server.wait()
print("PASS", flush=True)
