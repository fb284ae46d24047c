"""Export to notebooks and import of them: what Jupyter's own nbformat accepts, and what of a session is in it."""

from __future__ import annotations

import json
import warnings
from urllib.parse import urlencode

import nbformat
import pytest

from cli import Cli
from client import ApiError, Sandbox, wait_for


DAEMON = "states_daemon"
POLICY = {"checkpoints": "off"}  # the only states are those that a test asks for


@pytest.fixture
def sb(make):
    return make()


def check(text: str | bytes):
    """Strictly valid as it stands: nbformat repairs nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nbformat.validate(json.loads(text))
    return nbformat.reads(text if isinstance(text, str) else text.decode(), as_version=4)


def export(sb: Sandbox, **query):
    path = f"{sb.path}/notebook?{urlencode(query)}"
    reply = sb.api.raw("GET", path)
    sb.api.checker("GET", path, None, reply)
    if reply.status >= 400:
        raise ApiError(reply.status, reply.json())
    return check(reply.body)


def sources(notebook) -> list[str]:
    return [cell.source for cell in notebook.cells]


OUTPUTS = """
import sys
from IPython.display import HTML, JSON, clear_output, display
print("one"); print("two"); sys.stderr.write("warned"); print("three")
display(HTML("<b>bold</b>"), metadata={"isolated": True})
display({"application/vnd.test+json": {"a": [1, None, "x"]}, "application/x-own": "text", "text/plain": "p"}, raw=True)
6 * 7
"""


def test_every_kind_of_output(sb):
    cell = sb.ok(OUTPUTS)
    sb.run("def f(): 1/0\nf()")
    sb.ok("print('gone'); clear_output(); print('left')")
    notebook = export(sb)
    first, failed, cleared = notebook.cells
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert first.source == OUTPUTS and first.execution_count == cell["execution_count"] and first.id == cell["id"]
    kinds = [(o.output_type, o.get("name")) for o in first.outputs]
    assert [k for k in kinds if k[0] != "stream"] == [("display_data", None), ("display_data", None), ("execute_result", None)]
    text = {name: "".join(o.text for o in first.outputs if o.get("name") == name) for name in ("stdout", "stderr")}
    assert text == {"stdout": "one\ntwo\nthree\n", "stderr": "warned"}
    html, raw, result = [o for o in first.outputs if o.output_type != "stream"]
    assert html.data["text/html"] == "<b>bold</b>" and html.metadata == {"isolated": True}
    assert raw.data["application/vnd.test+json"] == {"a": [1, None, "x"]} and raw.data["application/x-own"] == "text"
    assert result.data["text/plain"] == "42" and result.execution_count == cell["execution_count"]
    error = failed.outputs[-1]
    assert (error.output_type, error.ename, error.evalue) == ("error", "ZeroDivisionError", "division by zero")
    assert len(error.traceback) > 1 and failed.metadata.coppice.status == "error"
    assert [o.text for o in cleared.outputs] == ["left\n"]
    about = first.metadata.coppice
    assert about.cell_id == cell["id"] and about.sandbox_id == sb.id and about.status == "ok"
    assert about.generation == cell["generation"] and about.started_at <= about.ended_at and about.duration_ms >= 0
    assert notebook.metadata.kernelspec.name == "python3" and notebook.metadata.language_info.name == "python"
    own = notebook.metadata.coppice
    assert own.sandbox_id == sb.id and own.image == "code-interpreter" and own.context_id == "default" and own.exported_at


def test_displays_are_as_they_were_in_the_end(sb):
    """As in Jupyter: an update of a later cell changes the display where it stands."""
    sb.ok("h = display('first', display_id='d'); e = display('other', display_id='e')")
    sb.ok("h.update('second'); print('mine')")
    sb.ok("h.update('third')")
    sb.ok("e = display('again', display_id='d')")
    sb.ok("from IPython.display import update_display; update_display('lost', display_id='nowhere')")
    shown = [[o.get("text") or o.data["text/plain"] for o in cell.outputs] for cell in export(sb).cells]
    assert shown == [["'third'", "'other'"], ["mine\n"], [], ["'again'"], ["'lost'"]]


def test_a_time_limit_and_a_death_are_told(sb):
    sb.run("import time; time.sleep(60)", timeout=0.5)
    sb.run("import os; os._exit(3)")
    sb.ok("1")
    late, died, last = export(sb).cells
    assert late.metadata.coppice.status == "timeout" and died.metadata.coppice.status == "died"
    assert last.metadata.coppice.generation > late.metadata.coppice.generation and last.metadata.coppice.state_lost


def test_what_was_undone_is_left_out(sb):
    sb.ok("a = 1")
    first = sb.snapshot()["id"]
    sb.ok("b = 2")
    sb.undo()
    assert sources(export(sb)) == ["a = 1"]
    sb.api.post(f"{sb.path}/redo", {})
    assert sources(export(sb)) == ["a = 1", "b = 2"]
    sb.undo()
    sb.ok("c = 3")
    branch = sb.snapshot()["id"]
    sb.ok("d = 4")
    assert sources(export(sb)) == ["a = 1", "c = 3", "d = 4"]
    everything = export(sb, undone="1")
    assert sources(everything) == ["a = 1", "b = 2", "c = 3", "d = 4"]
    assert [bool(c.metadata.coppice.get("undone")) for c in everything.cells] == [False, True, False, False]
    nodes = {c.source: c.metadata.coppice.get("node_id") for c in everything.cells}
    assert nodes["a = 1"] == first and nodes["c = 3"] == branch and nodes["d = 4"] is None and nodes["b = 2"] not in (first, None)
    sb.goto(nodes["b = 2"])  # a third way: what was undone is the session again
    assert sources(export(sb)) == ["a = 1", "b = 2"]
    sb.goto(branch)
    sb.ok("e = 5")
    assert sources(export(sb)) == ["a = 1", "c = 3", "e = 5"]
    assert sb.text("a + c + e") == "9"
    assert len(export(sb, undone="true").cells) == 6


def test_what_was_undone_stays_so_when_the_daemon_dies(sb, states_daemon):
    sb.ok("a = 1")
    sb.snapshot()
    sb.ok("b = 2")
    sb.undo()
    sb.ok("c = 3")
    states_daemon.kill()
    states_daemon.start()
    assert sources(export(sb)) == ["a = 1", "c = 3"]
    sb.suspend()
    states_daemon.kill()
    states_daemon.start()
    assert sources(export(sb)) == ["a = 1", "c = 3"]
    (child,) = sb.fork()
    child.ok("d = a + c")
    assert sources(export(child)) == ["a = 1", "c = 3", "d = a + c"]
    child.remove()


def test_a_session_that_sleeps_is_not_woken_and_one_that_ended_is_still_there(api):
    sb = api.new(name="nb-ttl")
    sb.ok("x = 'kept'")
    sb.suspend()
    assert sources(export(sb)) == ["x = 'kept'"]
    assert sb.info()["state"] == "suspended"
    sb.api.call("PATCH", sb.path, {"ttl_seconds": 1})
    wait_for(lambda: sb.info()["state"] == "ended", 30)
    notebook = export(sb)
    assert sources(notebook) == ["x = 'kept'"] and notebook.metadata.coppice.name == "nb-ttl"
    sb.remove()

    def refused():
        try:
            return export(sb) and None
        except ApiError as error:
            return error

    assert wait_for(refused).code == "sandbox_ended"


def test_a_copy_begins_with_the_session_it_was_forked_from(sb, api):
    sb.ok("x = 1")
    (child,) = sb.fork()
    sb.ok("x = 100")
    child.ok("x += 1")
    (grandchild,) = child.fork()
    child.ok("x = 200")
    grandchild.ok("y = x")
    assert sources(export(grandchild)) == ["x = 1", "x += 1", "y = x"] and grandchild.text("y") == "2"
    assert sources(export(sb)) == ["x = 1", "x = 100"]
    assert export(grandchild).cells[0].metadata.coppice.sandbox_id == sb.id
    child.remove()
    wait_for(lambda: sources(export(grandchild)) == ["x = 1", "y = x", "y"])
    assert export(grandchild).metadata.coppice.missing_cells_of == [child.id]
    grandchild.remove()


def test_contexts(sb, api):
    api.post(f"{sb.path}/contexts", {"name": "second"}, timeout=120)
    sb.ok("here = 1")
    sb.ok("there = 2", context="second")
    assert sources(export(sb)) == ["here = 1"] and sources(export(sb, context="second")) == ["there = 2"]
    context = next(c for c in sb.info()["contexts"] if c.get("name") == "second")
    api.delete(f"{sb.path}/contexts/{context['id']}")
    assert sources(export(sb, context=context["id"])) == ["there = 2"], "its cells outlive it"
    with pytest.raises(ApiError) as caught:
        export(sb, context="third")
    assert caught.value.code == "context_not_found"


def test_many_cells_and_large_ones(sb):
    sb.ok("print('y' * 300000)")
    for n in range(300):
        sb.ok(f"n = {n}")
    notebook = export(sb)
    assert [c.source for c in notebook.cells[1:]] == [f"n = {n}" for n in range(300)]
    assert notebook.cells[0].outputs[0].text == "y" * 300000 + "\n"


def test_cells_that_have_not_ended(sb, api):
    running = api.post(f"{sb.path}/cells", {"code": "import time; time.sleep(100)", "detach": True})
    wait_for(lambda: api.get(f"{sb.path}/cells/{running['id']}")["status"] == "running")
    api.post(f"{sb.path}/cells", {"code": "'waits'", "detach": True})
    first, second = export(sb).cells
    assert (first.metadata.coppice.status, second.metadata.coppice.status) == ("running", "queued")
    assert first.outputs == [] and second.execution_count is None


# -- the command line ------------------------------------------------------------------------------------------------------

def test_round_trip(cli, tmp_path):
    source = cli.ok("new", "--name", "trip").out.strip()
    for code in ("import math", "x = [n ** 2 for n in range(5)]", "def area(r): return math.pi * r * r", "%cd /tmp", "!echo shell",
                 "s = 'grüße \\U0001f600'", "y = sum(x)\ny"):
        cli.ok("run", "trip", code)
    cli.ok("suspend", "trip")
    file = tmp_path / "trip.ipynb"
    cli.ok("export", "trip", "-o", file)
    assert [p.name for p in tmp_path.iterdir()] == ["trip.ipynb"]
    piped = cli.ok("export", "trip").out
    assert check(piped).cells == check(file.read_text()).cells == check(cli.ok("export", "trip", "-o", "-").out).cells
    assert cli.json("info", "trip", "--json")["state"] == "suspended"
    done = cli.ok("import", file, "--name", "trip-2")
    copy = done.out.strip()
    assert copy != source and copy.startswith("sb_")
    assert "[7/7] ok" in done.err and "7 cells ok, 0 failed, 0 left out" in done.err
    for name in ("trip", "trip-2"):
        assert cli.ok("run", name, "print(x, y, s, round(area(2), 3), __import__('os').getcwd())").out == \
            "[0, 1, 4, 9, 16] 30 grüße \U0001f600 12.566 /tmp\n"
    again = cli.ok("export", "trip-2").out
    assert sources(check(again))[:7] == sources(check(piped))
    third = cli.json("import", "-", "--json", input=piped)
    assert third["ok"] == 7 and [c["status"] for c in third["cells"]] == ["ok"] * 7
    cli.ok("rm", "trip", "trip-2", third["sandbox"]["id"])


def notebook_of(*cells, **changes) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **changes})


def code(source, **metadata):
    return {"cell_type": "code", "id": "a", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


def test_import_of_failing_cells(cli, tmp_path):
    file = tmp_path / "fails.ipynb"
    file.write_text(notebook_of({"cell_type": "markdown", "id": "m", "metadata": {}, "source": "# text"}, code(["a = 1\n", "b = 2"]),
                                code("  \n"), code("1/0", tags=["raises-exception"]), code("raise KeyError('k')"), code("c = a + b")))
    done = cli("import", file, "--json")
    report = json.loads(done.out)
    assert done.status == 1 and (report["ok"], report["failed"], report["skipped"]) == (3, 1, 0)
    assert [(c["number"], c["status"]) for c in report["cells"]] == [(2, "ok"), (4, "error"), (5, "error"), (6, "ok")]
    assert report["cells"][2]["error"] == {"name": "KeyError", "value": "'k'"} and "KeyError: 'k'" in done.err
    assert cli.ok("run", report["sandbox"]["id"], "c").out == "3\n"
    stopped = cli("import", file, "--stop-on-error")
    assert stopped.status == 1 and "2 cells ok, 1 failed, 1 left out" in stopped.err
    slow = tmp_path / "slow.ipynb"
    slow.write_text(notebook_of(code("import time; time.sleep(60)")))
    limited = cli("import", slow, "--timeout", "500ms")
    assert limited.status == 1 and "timeout" in limited.err
    cli.ok("rm", report["sandbox"]["id"], stopped.out.strip(), limited.out.strip())


@pytest.mark.parametrize("text, says", [
    ("not json", "is no notebook"), ("[]", "does not say its"), ("{}", "does not say its"), ('{"nbformat": "4"}', "does not say its"),
    ('{"nbformat": 3, "worksheets": []}', "older than 4"), ('{"nbformat": 5, "cells": []}', "newer than 4"),
    ('{"nbformat": 4}', 'no "cells"'), (notebook_of(), "no code cells"), (notebook_of(code(" ")), "no code cells"),
    (notebook_of({"cell_type": "markdown", "metadata": {}, "source": "x"}), "no code cells"), (notebook_of(1, code(7)), 'cell 2 has no readable'),
    (notebook_of(code(["x", 1])), "no readable"), (notebook_of(code("x\0y")), "cell 1 contains a NUL"),
    (notebook_of(code("x" * (16 * 2**20 + 1))), "over the limit of 16 MiB"),
    (notebook_of(code("x"), metadata={"language_info": {"name": "cobol"}}), "cobol"),
], ids=lambda value: value[:20])
def test_bad_files_leave_nothing_behind(cli, api, tmp_path, text, says):
    file = tmp_path / "bad.ipynb"
    file.write_text(text)
    before = {s["id"] for s in api.get("/api/sandboxes")["sandboxes"]}
    done = cli("import", file)
    assert done.status == 1 and says in done.err and done.out == "", done
    assert {s["id"] for s in api.get("/api/sandboxes")["sandboxes"]} == before


def test_what_cannot_be_exported(cli, sb, tmp_path):
    kept = tmp_path / "kept.ipynb"
    kept.write_text("before")
    assert cli("export", "nobody", "-o", kept).status == 1
    assert cli("export", sb.id, "-c", "nothing", "-o", kept).status == 1
    assert kept.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["kept.ipynb"]
    assert cli("export", sb.id, "-o", tmp_path / "missing" / "x.ipynb").status == 1
    assert cli("import", tmp_path / "missing.ipynb").status == 1
    assert cli("export").status == 2 and cli("import").status == 2
