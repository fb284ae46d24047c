# python + numpy + pandas with BLAS threads and a 40 MB array.
# victim: timeout=60
import hashlib
import os
import time

import numpy as np
import pandas as pd

a = np.arange(5_000_000, dtype=np.float64)
m = np.random.RandomState(7).rand(300, 300)
product = m @ m
df = pd.DataFrame({"k": np.arange(1000) % 7, "v": np.arange(1000.0)})
means = df.groupby("k").v.mean()
digest = hashlib.sha256(a.tobytes()).hexdigest()
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.002)
assert hashlib.sha256(a.tobytes()).hexdigest() == digest
assert np.array_equal(m @ m, product)
assert df.groupby("k").v.mean().equals(means)
a[::4096] += 1
assert a[4096] == 4097 and a[1] == 1
b = np.ones(3_000_000)
assert b.sum() == 3_000_000
print("PASS", flush=True)
