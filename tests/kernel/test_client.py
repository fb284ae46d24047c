"""What the client and coppice_kernel promise beyond the hard cases."""

import json
import time
from pathlib import Path

import pytest

TABLE = "application/vnd.coppice.table+json"


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * 4096


@pytest.mark.parametrize("stock", [False, True], ids=["tuned", "stock"])
def test_first_cells_lose_nothing(start, stock):
    for _ in range(5):
        kernel = start(stock=stock)
        cell = kernel.run("print('first')")
        assert cell.text() == "first\n" and cell.status == "ok" and not cell.done["output_incomplete"]
        kernel.close()


def test_taken_over_in_the_middle_of_a_cell(kernel):
    cell = kernel.start("import time\nfor i in range(8): print(i, flush=True); time.sleep(0.2)\n'end'")
    kernel.settle(0.5)
    kernel.ready = None
    kernel.send(op="reopen")
    kernel.until(lambda: kernel.ready, 5)
    kernel.finish(cell)
    assert cell.status == "ok" and cell.result["text/plain"] == "'end'" and "7\n" in cell.text()
    assert kernel.run("i").result["text/plain"] == "7"


def test_taken_over_after_a_poke_that_waits(kernel):
    cell = kernel.start("import time\ntime.sleep(1.5)\n5")
    kernel.settle(0.3)
    kernel.send(op="poke")
    kernel.settle(0.1)
    kernel.ready = None
    kernel.send(op="reopen")
    kernel.until(lambda: kernel.ready, 5)
    kernel.finish(cell)
    assert cell.status == "ok" and cell.result["text/plain"] == "5"


def test_taken_over_when_idle(kernel):
    kernel.run("x = 41")
    kernel.ready = None
    kernel.send(op="reopen")
    kernel.until(lambda: kernel.ready, 5)
    assert kernel.run("x + 1").result["text/plain"] == "42"


def test_a_greeting_is_the_first_request_and_the_only_question(kernel):
    count = kernel.run("x = 41").done["execution_count"]
    greeting = kernel.finish(kernel.reopen("x += 1", idle=True))
    kernel.until(lambda: kernel.ready, 10)
    assert greeting.status == "ok" and kernel.ready["language"] is None
    cell = kernel.run("x")
    assert cell.result["text/plain"] == "42" and cell.done["execution_count"] == count + 1


def test_a_client_that_met_the_kernel_before_it_is_opened(kernel):
    kernel.run("x = 41")
    greeting = kernel.finish(kernel.reopen("x += 1", idle=True, met=True))
    kernel.until(lambda: kernel.ready, 10)
    cell = kernel.run("print('out'); x")
    assert greeting.status == "ok" and cell.text() == "out\n" and cell.result["text/plain"] == "42"
    kernel.reopen(met=True)
    kernel.until(lambda: kernel.ready, 10)
    assert kernel.ready["language"] == "python" and kernel.run("x").result["text/plain"] == "42"


def test_a_greeting_that_fails_says_so(kernel):
    kernel.run("x = 41")
    greeting = kernel.finish(kernel.reopen("1 / 0", idle=True))
    kernel.until(lambda: kernel.ready, 10)
    assert greeting.status == "error" and greeting.done["ename"] == "ZeroDivisionError"
    assert kernel.run("x").result["text/plain"] == "41"


@pytest.mark.parametrize("idle", [False, True])
def test_a_greeting_waits_for_a_busy_kernel(kernel, idle):
    """Also when the kernel is busier than was thought: it is ready, and the greeting comes first when it has time."""
    go = Path(kernel.dir, "go")
    inside = f"{kernel.dir_inside}/go"
    kernel.start(f"import os, time\nwhile not os.path.exists({inside!r}): time.sleep(0.01)\nx = 41")
    kernel.settle(0.3)
    kernel.send(op="abandon")
    greeting = kernel.reopen("x += 1", idle=idle)
    kernel.until(lambda: kernel.ready, 20)
    assert greeting.done is None
    go.touch()
    kernel.finish(greeting)
    assert greeting.status == "ok" and kernel.run("x").result["text/plain"] == "42"


def test_stock_kernel_taken_over(start):
    kernel = start(stock=True)
    cell = kernel.start("import time\ntime.sleep(1)\nx = 1\nprint('done')")
    kernel.settle(0.3)
    kernel.ready = None
    kernel.send(op="reopen")
    kernel.until(lambda: kernel.ready, 5)
    kernel.finish(cell)
    assert cell.status in ("ok", "no_reply") and cell.text() == "done\n"
    assert kernel.run("x").result["text/plain"] == "1"


def test_a_slow_reader_loses_nothing(start):
    kernel = start(cut=10)
    cell = kernel.start("for i in range(1500): print(str(i).rjust(99_999))")
    kernel.send(op="stall", ms=2000)
    kernel.finish(cell, 60)
    assert cell.length() == 150_000_000 and not cell.done["output_incomplete"]


def test_endless_output_takes_constant_memory(start):
    kernel = start(cut=10)
    cell = kernel.start("while True: print('x' * 1000)")
    kernel.settle(1)
    kernel.send(op="stall", ms=1500)
    kernel.settle(3)
    assert resident(kernel.process.pid) < 100 << 20
    assert kernel.ladder(cell, 3)
    assert cell.length() > 10_000_000


def test_streams_keep_their_order(kernel):
    cell = kernel.run(
        "import sys, os\nfor i in range(50):\n    print('o', i)\n    print('e', i, file=sys.stderr)\n"
        "os.system('echo child; echo bad >&2'); print('last')"
    )
    assert [(o["name"], o["text"]) for o in cell.of_kind("stream")][:99] == [
        pair for i in range(50) for pair in (("stdout", f"o {i}\n"), ("stderr", f"e {i}\n"))
    ][:99]
    assert cell.text().endswith("child\nlast\n") and cell.text("stderr").endswith("bad\n")


def test_output_of_children_stays_in_its_cell(kernel):
    for i in range(60):
        cell = kernel.run(f"import os; os.system('echo {i}');")
        assert cell.text() == f"{i}\n" and not cell.late
    cell = kernel.run("os.system(\"head -c 600000 /dev/zero | tr '\\\\0' x\");")
    assert cell.length() == 600_000 and not cell.late
    cell = kernel.run("import subprocess, sys; subprocess.run(['echo', 'seen'], stdout=sys.stdout);")
    assert cell.text() == "seen\n"


def test_c_code_that_holds_the_gil_while_printing(kernel):
    code = "import ctypes\nlibc = ctypes.PyDLL(None)\nn = libc.printf(b'1' * 100_000); libc.fflush(None);"
    cell = kernel.run(code, timeout=10)
    assert cell.status == "ok" and cell.length() == 100_000


def test_a_writer_without_end_holds_nothing_up(kernel):
    kernel.run("import subprocess\np = subprocess.Popen(['yes'])")
    assert kernel.run("1", timeout=10).status == "ok"
    assert kernel.run("p.kill(); p.wait()", timeout=10).done


def test_displays(kernel):
    cell = kernel.run(
        "from IPython.display import display, clear_output, HTML, JSON\n"
        "h = display('a', display_id=True)\nh.update('b')\nclear_output(wait=True)\n"
        "display(HTML('<b>x</b>'), JSON({'n': 1}))"
    )
    kinds = [o["kind"] for o in cell.outputs]
    assert kinds == ["display", "update_display", "clear", "display", "display"]
    assert cell.outputs[0]["display_id"] == cell.outputs[1]["display_id"]
    assert cell.outputs[2]["wait"] is True
    assert cell.outputs[3]["data"]["text/html"] == "<b>x</b>"
    assert "application/json" in cell.outputs[4]["data"]


def test_help_is_an_output(kernel):
    cell = kernel.run("len?")
    assert "text/plain" in cell.of_kind("display")[0]["data"]


def test_nothing_leaks_into_the_namespace(kernel):
    cell = kernel.run("%who")
    assert cell.text().strip() in ("", "Interactive namespace is empty.")
    assert kernel.run("[n for n in dir() if 'coppice' in n]").result["text/plain"] == "[]"


def test_no_warning_after_a_thousand_results(kernel):
    for i in range(1010):
        cell = kernel.run("1")
        assert cell.outputs[0]["kind"] == "result" and len(cell.outputs) == 1, i


def test_an_object_that_cannot_be_shown(kernel):
    cell = kernel.run("class A:\n    def __repr__(self): 1/0\nA()")
    assert cell.status == "ok" and not cell.error and "ZeroDivisionError" in cell.text("stderr")
    assert "cannot be had" in cell.result["text/plain"]
    cell = kernel.run("class B:\n    def _repr_html_(self): raise KeyError(1)\n    def __repr__(self): return 'fine'\nB()")
    assert cell.status == "ok" and cell.result["text/plain"] == "fine"
    cell = kernel.run("10**5000")
    assert cell.status == "ok" and "set_int_max_str_digits" in cell.text("stderr")


def test_a_printer_of_the_user_is_used(kernel):
    kernel.run("get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: f'<i>{n}</i>')")
    assert kernel.run("5").result == {"text/plain": "5", "text/html": "<i>5</i>"}


def test_tables(kernel, need):
    need("pandas")
    cell = kernel.run(
        "import pandas as pd, numpy as np, datetime as dt\n"
        "pd.DataFrame([[1, 2.5, None, np.inf, pd.NaT, 'x' * 5000, dt.date(2026, 1, 2)],\n"
        "              [2, np.nan, 'é', 1.0, pd.Timestamp('2026-01-02'), [1, {2}], 10**30]],\n"
        "             columns=['a', 'a', 'c', 'd', 'e', 'f', ('g', 1)], index=['r', 7])",
        timeout=60,
    )
    table = cell.result[TABLE]
    assert table["columns"][:3] == ["a", "a", "c"] and table["shape"] == [2, 7] and table["index"] == ["r", 7]
    assert table["rows"][0][:5] == [1, 2.5, None, None, None]
    assert table["rows"][1][:5] == [2, None, "é", 1.0, "2026-01-02T00:00:00"]
    assert len(table["rows"][0][5]) == 1001 and table["rows"][0][6] == "2026-01-02"
    assert table["rows"][1][6] == str(10**30)
    assert "text/html" in cell.result and not table["truncated"]
    json.dumps(table, allow_nan=False)


ODD_TABLES = (
    ("pd.DataFrame()", [0, 0]),
    ("pd.DataFrame(index=range(3))", [3, 0]),
    ("pd.DataFrame(np.zeros((1000, 200)))", [1000, 200]),
    ("pd.Series([1, None], name='s')", [2, 1]),
    ("pd.DataFrame({'x': pd.Categorical(['a', None])})", [2, 1]),
    ("pd.DataFrame({'x': pd.array([1, None], dtype='Int64')})", [2, 1]),
    ("pd.DataFrame({'x': [1, 2]}, index=pd.MultiIndex.from_tuples([(1, 'a'), (2, 'b')]))", [2, 1]),
    ("pd.DataFrame({'x': pd.period_range('2026-01', periods=2, freq='D')})", [2, 1]),
    ("pd.DataFrame({'x': pd.to_timedelta(['1 day', None])})", [2, 1]),
    ("pd.DataFrame({'x': [b'\\xff', 1j]})", [2, 1]),
    ("pd.DataFrame({'x': [object, pd]})", [2, 1]),
)


def test_odd_tables(kernel, need):
    need("pandas")
    kernel.run("import pandas as pd, numpy as np", timeout=60)
    for code, shape in ODD_TABLES:
        cell = kernel.run(code)
        assert cell.status == "ok" and cell.text("stderr") == "", code
        table = cell.result[TABLE]
        assert table["shape"] == shape, code
        assert len(table["rows"]) <= 100 and all(len(row) <= 50 for row in table["rows"])
        assert len(table["columns"]) == min(shape[1], 50) == len(table["dtypes"])


def test_a_large_table_is_quick(kernel, need):
    need("pandas")
    kernel.run("import pandas as pd, numpy as np\nd = pd.DataFrame(np.zeros((1_000_000, 8)))", timeout=60)
    began = time.monotonic()
    assert kernel.run("d").result[TABLE]["shape"] == [1_000_000, 8]
    assert time.monotonic() - began < 3


def test_a_kernel_at_rest_is_not_woken(kernel):
    """None of its threads waits for a time to come, so a sandbox that does nothing can be told to have done nothing."""
    cell = kernel.run("import threading\nt = threading.Thread(target=print, args=('from a thread',)); t.start(); t.join(); print('end')")
    assert cell.text() == "from a thread\nend\n"
    assert kernel.run("'x' * 3").result["text/plain"] == "'xxx'"
    end = time.monotonic() + 10
    while waits := kernel.waits_with_a_limit():
        assert time.monotonic() < end, waits
        time.sleep(0.05)
    assert kernel.run("len(get_ipython().kernel.iopub_thread._event_pipes) <= 3").result["text/plain"] == "True"


def test_lines_of_the_daemon_are_no_cell(kernel):
    """They are run outside of the user's namespace, leave no count, and say why they failed."""
    count = kernel.run("x = 41").done["execution_count"]
    prepare = "# coppice: prepare\nimport os; os.environ['PREPARED'] = 'yes'\n"
    assert kernel.run(prepare, silent=True, no_history=True).status == "ok"
    assert kernel.run("os.environ['PREPARED']").error["ename"] == "NameError"  # os is not the user's
    assert kernel.run("import os; os.environ['PREPARED'], x").result["text/plain"] == "('yes', 41)"
    cell = kernel.run(prepare + "1 / 0\n", silent=True, no_history=True)
    assert cell.status == "error" and cell.done["ename"] == "ZeroDivisionError"
    assert kernel.run(prepare + "print(x)").text() == "41\n"  # a user's cell that looks like them is a cell
    assert kernel.run("x").done["execution_count"] == count + 4


IMMORTAL = """
import gc, sys, weakref, ipykernel.kernelbase as base
function = base.Kernel.execute_request
theirs = [function, function.__code__, function.__globals__, base.Kernel, base]
def mine(): pass
class Mine: pass
"""


def test_what_a_kernel_is_made_of_is_immortal(kernel):
    """From CPython 3.12 on; what the user makes is not, and garbage is collected as ever."""
    kernel.run(IMMORTAL)
    known = kernel.run("sys.version_info >= (3, 12)").result["text/plain"] == "True"
    counts = eval(kernel.run("[sys.getrefcount(o) > 1 << 31 for o in theirs]").result["text/plain"])
    assert counts == [known] * 5
    assert kernel.run("max(map(sys.getrefcount, (mine, mine.__code__, Mine, 'a b' * 3))) < 1000").result["text/plain"] == "True"
    kernel.run("one, other = Mine(), Mine()\none.to, other.to = other, one\nseen = weakref.ref(one)\ndel one, other")
    assert kernel.run("gc.isenabled(), gc.collect() > 0, seen() is None").result["text/plain"] == "(True, True, True)"
    assert kernel.run("gc.get_freeze_count() > 10000").result["text/plain"] == str(known)


def test_many_generations_leak_nothing(start):
    kernel = start()
    before = None
    for i in range(30):
        kernel.ready = None
        kernel.send(op="reopen")
        kernel.until(lambda: kernel.ready, 5)
        if i == 5:
            before = (descriptors(kernel), resident(kernel.process.pid))
    assert descriptors(kernel) <= before[0] + 2
    assert resident(kernel.process.pid) < before[1] + (8 << 20)


def descriptors(kernel):
    import os

    return len(os.listdir(f"/proc/{kernel.process.pid}/fd"))
