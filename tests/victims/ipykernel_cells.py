# A live ipykernel with pandas and pyplot used, over ipc, and its own client in the same tree: the client's sockets go on.
# victim: timeout=120
import os
import time

from jupyter_client.manager import KernelManager

km = KernelManager(kernel_name="python3")
km.transport = "ipc"
km.ip = "./kernel"
km.start_kernel(extra_arguments=["--HistoryManager.enabled=False"])
kc = km.client()
kc.start_channels()
kc.wait_for_ready(timeout=60)


def cell(code):
    out = []

    def hook(msg):
        kind, content = msg["header"]["msg_type"], msg["content"]
        if kind == "stream":
            out.append(content["text"])
        elif kind in ("execute_result", "display_data"):
            out.append(content["data"].get("text/plain", ""))
        elif kind == "error":
            out.append("ERROR " + content["evalue"])

    reply = kc.execute_interactive(code, timeout=60, output_hook=hook)
    return reply["content"]["status"], "".join(out)


status, text = cell(
    "import pandas as pd, numpy as np\nimport matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
    "df = pd.DataFrame({'a': range(1000), 'b': np.arange(1000) % 7})\nx = 41\nplt.plot([1, 2, 3])\nplt.savefig('p.png')\nprint('ok')"
)
assert status == "ok" and "ok" in text, (status, text)
print("READY", flush=True)
while not os.path.exists("go"):
    time.sleep(0.002)
begin = time.monotonic()
status, text = cell("x += 1\nprint(x, int(df.groupby('b').a.sum().sum()), df.a.mean())")
assert status == "ok" and text.strip() == "42 499500 499.5", (status, text)
took = time.monotonic() - begin
status, text = cell("plt.figure()\nplt.plot([3, 1])\nimport io\nq = io.BytesIO()\nplt.savefig(q)\nlen(q.getvalue()) > 1000")
assert status == "ok" and "True" in text, (status, text)
print(f"PASS first cell {took * 1000:.1f} ms", flush=True)
kc.stop_channels()
km.shutdown_kernel(now=True)
