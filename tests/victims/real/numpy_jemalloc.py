# python under jemalloc: numpy arrays that come and go, kept ones checked by their sums, in threads.
# victim: needs=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2
# victim: timeout=40
import os
import sys
import threading
import time

if "jemalloc" not in os.environ.get("LD_PRELOAD", ""):
    os.environ["LD_PRELOAD"] = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    os.environ["PYTHONMALLOC"] = "malloc"
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.argv])

import numpy as np

stop, bad = False, []


def work(seed):
    random = np.random.RandomState(seed)
    kept = {}
    while not stop and not bad:
        i = random.randint(40)
        if i in kept and kept[i][0].sum() != kept[i][1]:
            bad.append("a kept array changed")
        n = random.randint(1, 200_000)
        if np.zeros(n, dtype=np.int64).any():
            bad.append("zeros are not zero")
        a = np.full(n, i + 1, dtype=np.int64)
        kept[i] = (a, int(n) * (i + 1))
        if random.randint(3) == 0:
            kept.pop(random.randint(40), None)


threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for t in threads:
    t.start()
time.sleep(0.3)
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.002)
time.sleep(0.4)
stop = True
for t in threads:
    t.join()
assert not bad, bad
print("PASS", flush=True)
