"""What differs between two states, and taking from one: files, variables, and what must not happen on the way."""

from __future__ import annotations

import json
import os

import pytest
from cli import Cli
from client import ApiError, wait_for


DAEMON = "states_daemon"
POLICY = {"checkpoints": "off"}


def diff(api, a, b, **query):
    name = lambda ref: ref if isinstance(ref, str) else ref.id  # noqa: E731
    return api.get("/api/diff", a=name(a), b=name(b), **query)


def files(reply):
    """{path: sign}"""
    return {c["path"]: {"added": "+", "changed": "~", "removed": "-"}[c["change"]] for c in reply["files"]["changes"]}


def variables(reply):
    assert "unavailable" not in reply["variables"], reply["variables"]
    return {c["name"]: {"added": "+", "changed": "~", "removed": "-"}[c["change"]] for c in reply["variables"]["changes"]}


def folders(daemon):
    return set(os.listdir(daemon.home / "sandboxes"))


# -- what is told --------------------------------------------------------------------------------------------------------

SETUP = """
import datetime, decimal, numpy as np, pandas as pd, collections
number, text, nothing, blob = 41, 'ü' * 10, None, b'\\0\\xff'
words = {f'w{i}' for i in range(100)}
table = {'b': [1, 2.5, (None, True)], 'a': {'x', 'y'}, 3: frozenset(['p', 'q', 'r'])}
plain = list(range(5000))
frame = pd.DataFrame({'n': [1, 2, 3], 's': ['x', None, 'z'], 't': pd.date_range('2020', periods=3)})
column = pd.Series(['u', 'v', 'u'], dtype='category')
array = np.arange(12.0).reshape(3, 4)
slanted = array.T[::2]
objects = np.array([{'k'}, None, 'x'], dtype=object)
moment, price = datetime.datetime(2020, 1, 2), decimal.Decimal('1.10')
generator = np.random.default_rng(7)
counter = collections.Counter('abracadabra')
def double(n, by=2):
    '''Not the text but the code counts.'''
    return {n * by, 'a', 'b'}
class Model:
    kinds = {'linear', 'tree', 'forest'}
    def __init__(self): self.weights, self.tags = np.ones(3), {'a', 'b', 'c'}
    def fit(self): return self.weights.sum()
model = Model()
loop = [1]; loop.append(loop)
_hidden = 1
"""
NAMES = {"number", "text", "nothing", "blob", "words", "table", "plain", "frame", "column", "array", "slanted", "objects", "moment",
         "price", "generator", "counter", "double", "Model", "model", "loop"}


def test_equal_values_of_other_processes_are_equal(make, api):
    """Other kernels, other seeds of hash: no set, dict, object or function may look different."""
    one, two = make(), make()
    one.ok(SETUP)
    two.ok("\n\n# other lines\n" + SETUP)
    assert one.text("hash('x')") != two.text("hash('x')")
    reply = diff(api, one, two, files="0")
    assert variables(reply) == {} and reply["variables"]["unsure"] == [], reply["variables"]
    assert reply["variables"]["same"] == len(NAMES) and "files" not in reply

    two.ok("number += 1; words.add('more'); table['a'].add('z'); plain[4000] = -1; frame.loc[1, 's'] = 'y'; array[2, 2] = 0\n"
           "objects[0].add('l'); generator.random(); model.tags.add('d'); loop[0] = 2; column = column.iloc[::-1]\n"
           "def double(n, by=3): return {n * by, 'a', 'b'}\n"
           "import threading; new, lock = [3], threading.Lock(); del text, np; nothing = 'now'")
    one.ok("import threading; lock = threading.Lock()")
    reply = diff(api, one, two, files="0")
    changed = {"number", "words", "table", "plain", "frame", "array", "slanted", "objects", "generator", "model", "loop", "column",
               "double", "nothing"}
    assert variables(reply) == {**dict.fromkeys(changed, "~"), "new": "+", "text": "-"}
    assert [u["name"] for u in reply["variables"]["unsure"]] == ["lock"], "same type, and nothing to compare"
    told = {c["name"]: c for c in reply["variables"]["changes"]}
    assert told["frame"]["a"]["type"] == "pandas.core.frame.DataFrame" and told["frame"]["a"]["shape"] == [3, 3]
    assert told["array"]["b"]["shape"] == [3, 4] and told["array"]["b"]["size"] == 96
    assert (told["number"]["a"]["preview"], told["number"]["b"]["preview"]) == ("41", "42")
    assert told["new"]["b"]["shape"] == [1] and "a" not in told["new"]


def test_files_with_whiteouts_folders_that_were_replaced_and_texts(make, api):
    source = make()
    source.exec("mkdir -p /workspace/a/b /workspace/c && cd /workspace && echo 1 > a/x && echo 2 > a/b/y && echo 3 > c/z && "
                "seq 20 > text && head -c 100000 /dev/urandom > binary && ln -s text link && touch -d 2020-01-01 old && "
                "sudo rm /etc/fstab; sudo rm -rf /usr/share/python3/debpython")
    node = source.snapshot()
    assert files(diff(api, source, node["id"], variables="0")) == {}
    child = source.fork()[0]
    try:
        child.exec("cd /workspace && rm -r a && mkdir a && echo n > a/n && rm c/z && sed -i s/7/seven/ text && echo more >> binary && "
                   "ln -sfn binary link && touch old && chmod 600 c && mkdir -p __pycache__ .cache && touch __pycache__/q .cache/q && "
                   "mkfifo pipe && rm -f /home/user/.bashrc && sudo chown root old", user="user")
        wrong = {**files(diff(api, source, child, variables="0", text="1"))}
        w = "/workspace/"
        expected = {w + "a/b": "-", w + "a/b/y": "-", w + "a/n": "+", w + "a/x": "-", w + "c": "~", w + "c/z": "-", w + "text": "~",
                    w + "binary": "~", w + "link": "~", w + "pipe": "+", w + "old": "~", "/home/user/.bashrc": "-"}
        assert wrong == expected
        told = {c["path"]: c for c in diff(api, node["id"], child, variables="0", text="1")["files"]["changes"]}
        assert set(told) == set(expected)
        text = told[w + "text"]
        assert "-7\n+seven\n" in text["diff"] and text["what"] == ["content"] and text["a"]["sha256"] != text["b"]["sha256"]
        assert "diff" not in told[w + "binary"] and told[w + "binary"]["b"]["size"] == 100005
        assert told[w + "c"]["what"] == ["mode"] and told[w + "c"]["b"]["mode"] == "0600"
        assert told[w + "old"]["what"] == ["owner"] and told[w + "link"]["b"]["target"] == "binary"
        # The image's own: what the source took away is there in a fresh one.
        fresh = make(start_kernel=False)
        gone = files(diff(api, fresh, source, variables="0"))
        assert gone["/usr/share/python3/debpython"] == "-" and gone["/workspace/a/b/y"] == "+"
        assert all(sign == "-" for path, sign in gone.items() if path.startswith("/usr/share/python3/debpython"))
        back = files(diff(api, source, fresh, variables="0"))
        assert back == {path: {"+": "-", "-": "+", "~": "~"}[sign] for path, sign in gone.items()}
    finally:
        child.remove()


def test_names_that_are_no_text_and_files_that_are_no_files(make, api):
    sb = make(start_kernel=False)
    node = sb.snapshot(kind="filesystem")
    sb.exec(["python3", "-c", "import os; os.chdir('/workspace'); open(b'\\xff\\n\\x1b[31m', 'w'); os.mkfifo('f'); os.symlink('/etc/shadow', 's')\n"
             "open('big', 'w').truncate(1 << 40); os.mkdir('locked', 0); open('d' * 255, 'w')\n"
             "import socket; socket.socket(socket.AF_UNIX).bind('sock')"])
    told = files(diff(api, node["id"], sb, variables="0", text="1"))
    w = "/workspace/"
    assert told == dict.fromkeys([w + "\ufffd\n\x1b[31m", w + "f", w + "s", w + "big", w + "locked", w + "d" * 255, w + "sock"], "+")
    two = files(diff(api, sb, node["id"], variables="0"))
    assert set(two) == set(told)


# -- states of every kind ------------------------------------------------------------------------------------------------------


def test_a_sleeping_sandbox_sleeps_on(make, api):
    sb = make(name="diff-sleeper")
    sb.ok("x = 1")
    node = sb.snapshot(name="diff-before")
    sb.ok("x = 2; open('/workspace/f', 'w').write('f')")
    sb.suspend()
    before = sb.nodes()
    reply = diff(api, "diff-before", "diff-sleeper")
    assert variables(reply) == {"x": "~"} and files(reply) == {"/workspace/f": "+"}
    assert reply["a"]["name"] == "diff-before" and reply["a"]["node_id"] == node["id"]
    assert sb.info()["state"] == "suspended" and sb.nodes() == before
    assert reply["b"]["node_id"] == before["head"]
    other = make()
    other.ok("x = 0")
    api.post(f"{other.path}/take", {"from": "diff-sleeper", "variables": ["x"], "files": ["/workspace/f"]})
    assert other.text("x, open('/workspace/f').read()") == "(2, 'f')"
    assert sb.info()["state"] == "suspended" and sb.nodes() == before
    # and one that sleeps is woken when it is the target
    api.post(f"{sb.path}/take", {"from": other.id, "variables": ["x"]})
    assert sb.info()["state"] == "running" and sb.text("x") == "2"
    api.delete("/api/snapshots/diff-before")


def test_reading_leaves_no_trace(make, api, states_daemon):
    sb = make()
    sb.ok("x = [1]\nclass Noisy:\n    def __reduce_ex__(self, protocol):\n        global seen\n        seen = 1\n        open('/workspace/trace', 'w')\n"
          "        return (int, ())\nnoisy = Noisy()")
    events = lambda: api.raw("GET", "/api/events").body.count(b"\n")  # noqa: E731
    cells, seen = api.get(f"{sb.path}/cells")["cells"], events()
    listed, there = api.get("/api/sandboxes", all="1"), folders(states_daemon)
    for _ in range(4):
        diff(api, sb, sb)
    assert api.get("/api/sandboxes", all="1")["sandboxes"][-1]["id"] == listed["sandboxes"][-1]["id"]
    assert [s["id"] for s in api.get("/api/sandboxes", all="1")["sandboxes"]] == [s["id"] for s in listed["sandboxes"]]
    assert api.get(f"{sb.path}/cells")["cells"] == cells
    assert api.raw("GET", f"{sb.path}/files?path=/workspace/trace").status == 404
    cell = sb.ok("'seen' in globals(), In[-1][:5], len(Out)")
    assert cell["results"][0]["data"]["text/plain"] == "(False, \"'seen\", 0)" and cell["execution_count"] == 2
    # nodes come and go; of those of the same instant one is left
    nodes = sb.nodes()["nodes"]
    assert [n["reason"] for n in nodes] == ["fork"], nodes
    assert events() - seen <= 8 + 1, "a node each time, nothing of copies"
    wait_for(lambda: folders(states_daemon) == there)
    assert sb.nodes()["head"] == nodes[0]["id"]


@pytest.mark.parametrize("checkpoints", ["off", "after_cell"])
def test_a_way_back_is_not_taken_away(make, api, checkpoints):
    sb = make({"checkpoints": checkpoints})
    for x in range(3):
        sb.ok(f"x = {x}")
        assert variables(diff(api, sb, sb)) == {}
    sb.undo()
    assert sb.text("x") == "1"


def test_states_with_merged_layers(make, api, states_daemon):
    """A stack of layers that is deep becomes one in the background: what shows is the same."""
    sb = make(start_kernel=False)
    sb.exec("echo 0 > /workspace/f; echo 0 > /workspace/g; rm -f /etc/fstab")
    first = sb.snapshot(kind="filesystem")
    for x in range(1, 34):
        sb.exec(f"echo {x} > /workspace/f; echo {x} > /workspace/f{x}; rm -f /workspace/f{x - 1}")
        sb.suspend()
    wait_for(lambda: any((states_daemon.home / "nodes").glob("*/flat")), 60)
    reply = diff(api, first["id"], sb, text="1")
    assert files(reply) == {"/workspace/f": "~", "/workspace/f33": "+"}
    assert reply["files"]["changes"][0]["diff"] == "@@ -1 +1 @@\n-0\n+33\n"


def test_what_has_no_variables_says_so(make, api, cli):
    sb = make(name="diff-busy")
    sb.ok("x = 1; open('/workspace/f', 'w').write('f')")
    filesystem = sb.snapshot(kind="filesystem")
    reply = diff(api, filesystem["id"], sb)
    assert "files alone" in reply["variables"]["unavailable"] and files(reply) == {}
    done = cli("diff", filesystem["id"], "diff-busy", "-v")
    assert done.status == 1 and "files alone" in done.err
    assert cli("diff", filesystem["id"], "diff-busy").status == 0
    cell = api.post(f"{sb.path}/cells", {"code": "import time; time.sleep(600)", "detach": True, "timeout": 900})
    wait_for(lambda: api.get(f"{sb.path}/cells/{cell['id']}")["status"] == "running")
    reply = diff(api, filesystem["id"], sb)
    assert "files alone" in reply["variables"]["unavailable"]
    assert "a cell is running" in diff(api, sb, sb)["variables"]["unavailable"]
    other = make(start_kernel=False)
    with pytest.raises(ApiError) as caught:
        api.post(f"{other.path}/take", {"from": sb.id, "variables": ["x"]})
    assert caught.value.code == "invalid_state" and "a cell is running" in caught.value.message
    assert variables(diff(api, other, other)) == {}, "no kernel has run: no variables"
    assert "no context" in diff(api, other, other, context="nope")["variables"]["unavailable"]


@pytest.mark.parametrize("query,code", [({"a": "no-such", "b": "no-such"}, "node_not_found"), ({"a": "x"}, "bad_request"),
                                        ({"a": "x", "b": "y", "files": "0", "variables": "0"}, "bad_request"),
                                        ({"a": "x", "b": "y", "text": "perhaps"}, "bad_request"), ({"a": "x", "b": "y", "c": "z"}, "bad_request")])
def test_wrong_questions(api, query, code):
    with pytest.raises(ApiError) as caught:
        api.get("/api/diff", **query)
    assert caught.value.code == code


def test_one_that_has_ended_is_told_as_that(make, api):
    sb, other = make(name="diff-gone"), make(start_kernel=False)
    sb.remove()
    with pytest.raises(ApiError) as caught:
        diff(api, "diff-gone", other)
    assert caught.value.code == "sandbox_ended"


# -- hostile ones ----------------------------------------------------------------------------------------------------------------

LIARS = {
    "silent": "get_ipython().display_pub.publish = lambda *a, **k: None",
    "wrong": "get_ipython().display_pub.publish = lambda data, *a, **k: real({'application/vnd.coppice.inside+json': {'variables': "
             "[{'name': 5}, {'name': 'x', 'type': ['y'], 'shape': [-1, 'a'], 'size': 1e300, 'digest': 'z' * 100000, 'note': {}}, 7, None], "
             "'modules': 'many'}, 'text/plain': ''})",
    "list": "get_ipython().display_pub.publish = lambda data, *a, **k: real({'application/vnd.coppice.inside+json': [1], 'text/plain': ''})",
    "exit": "class Exit:\n    def __reduce_ex__(self, p): import os; os._exit(3)\nexits = Exit()",
    "raise": "class Raise:\n    def __reduce_ex__(self, p): raise SystemExit\nraises = Raise()",
    "names": "globals()['no identifier\\n\\x1b[31m' + 'x' * 5000] = 1; globals()['\\ud800'] = 2; globals()[5] = 3",
    "shape": "class Shape:\n    shape = (1,) * 1000\n    def __len__(self): return -5\n    def __sizeof__(self): return 1 << 62\nshape = Shape()",
    "getattr": "class Any:\n    def __getattr__(self, name): return self\n    def __call__(self, *a, **k): return self\nany_ = Any()",
    "class": "class Meta(type):\n    def __getattribute__(self, name): raise ValueError\nclass Odd(metaclass=Meta): pass\nodd = Odd()",
    "builtins": "import builtins; builtins.sorted = builtins.isinstance = builtins.type = None",
}


@pytest.mark.parametrize("lie", LIARS)
def test_a_liar_harms_nobody(make, api, states_daemon, lie):
    honest, liar = make(), make()
    honest.ok("x = 1")
    there = folders(states_daemon)
    liar.run("x = 2; real = get_ipython().display_pub.publish\n" + LIARS[lie])
    reply = diff(api, honest, liar)  # which is checked against the schema
    assert files(reply) == {}
    assert "unavailable" in reply["variables"] or "changes" in reply["variables"]
    if lie in ("silent", "list", "exit"):
        assert liar.id in reply["variables"]["unavailable"]
    if lie in ("shape", "getattr", "class", "names"):
        assert variables(reply)["x"] == "~"
    try:
        api.post(f"{honest.path}/take", {"from": liar.id, "variables": ["x"]})
    except ApiError as error:
        assert error.code in ("unavailable", "not_picklable", "variable_not_found"), error
    assert honest.text("x") in ("1", "2")
    wait_for(lambda: folders(states_daemon) == there)


def test_a_pickle_runs_in_the_target_only(make, api):
    """Its code is that of the source: it can do in the target what a cell can, and nothing in the source or outside."""
    source, target = make(), make()
    source.ok("class Bomb:\n    def __reduce__(self): return (exec, ('open(\"/workspace/boom\", \"w\").write(\"x\")',))\nbomb, fine = Bomb(), 1")
    api.post(f"{target.path}/take", {"from": source.id, "variables": ["bomb", "fine"]})
    assert target.read("/workspace/boom") == b"x" and target.text("fine, bomb") == "(1, None)"
    assert api.raw("GET", f"{source.path}/files?path=/workspace/boom").status == 404


# -- taking ------------------------------------------------------------------------------------------------------------------------


def test_take_files_and_variables(make, api):
    source, target = make(), make(name="take-target")
    source.ok("import pandas as pd, numpy as np\nframe = pd.DataFrame({'a': [1, 2]}); shared = [frame]; big = np.arange(2_000_000)\n"
              "import os; os.makedirs('/workspace/data/deep'); open('/workspace/data/deep/f', 'w').write('from source')\n"
              "open('/workspace/one', 'wb').write(bytes(range(256)) * 5000); os.chmod('/workspace/one', 0o640); os.symlink('f', '/workspace/data/deep/l')")
    target.ok("frame = 'old'; import os; os.makedirs('/workspace/data'); open('/workspace/data/kept', 'w').write('kept')")
    count = target.ok("1")["execution_count"]
    before = api.get(f"{source.path}/cells")["cells"]
    reply = api.post(f"{target.path}/take", {"from": source.id, "files": ["/workspace/data", "/workspace/one"], "variables": ["frame", "shared", "big"]})
    assert [v["name"] for v in reply["variables"]] == ["frame", "shared", "big"] and reply["variables"][1]["type"] == "list"
    assert reply["bytes"] > 16_000_000 and reply["timings"]["total_ms"] > 0
    cell = target.ok("frame.a.sum(), shared[0] is frame, int(big.sum()), '_' in dir() and [n for n in dir() if 'coppice' in n]")
    assert cell["results"][0]["data"]["text/plain"].replace("np.int64(3)", "3") == "(3, True, 1999999000000, [])"
    assert cell["execution_count"] == count + 1
    assert target.read("/workspace/data/deep/l") == b"from source" and target.read("/workspace/data/kept") == b"kept"
    assert target.read("/workspace/one") == bytes(range(256)) * 5000
    assert target.exec("ls -A /tmp; stat -c %a /workspace/one")["stdout"] == "640\n"
    assert source.exec("ls -A /tmp")["stdout"] == "" and api.get(f"{source.path}/cells")["cells"] == before
    # undo takes it back: it counts as a cell
    assert api.get(f"{target.path}/cells")["cells"][-2]["code"].startswith("# coppice: take frame, shared, big\n")
    # from a node that is older than what it is now, of itself
    node = source.snapshot()
    source.ok("frame = None")
    api.post(f"{source.path}/take", {"from": node["id"], "variables": ["frame"]})
    assert source.text("len(frame)") == "2"
    # files alone, of one that runs: no node is made for that
    nodes = source.nodes()
    api.post(f"{target.path}/take", {"from": source.id, "files": ["/workspace/one"]})
    api.post(f"{target.path}/take", {"from": node["id"], "files": ["/workspace/one"]})
    assert source.nodes() == nodes


def test_take_says_why_not(make, api, cli):
    source, target = make(name="take-source"), make(name="take-not")
    source.ok("import threading, os\ndef f(): pass\nclass C: pass\nc, lock, one, deep = C(), threading.Lock(), 1, [[C]]\n"
              "import sys; sys.modules['only_here'] = type(sys)('only_here'); exec('class D: pass', sys.modules['only_here'].__dict__)\n"
              "d = sys.modules['only_here'].D(); huge = bytes(600 << 20)", timeout=60)
    target.ok("one = 0")

    def refused(**what):
        with pytest.raises(ApiError) as caught:
            api.post(f"{target.path}/take", {"from": "take-source", **what})
        return caught.value.code, caught.value.message

    for name in ("f", "C", "c", "deep"):
        code, message = refused(variables=["one", name])
        assert code == "not_picklable" and f'"{name}"' in message and "defined in a cell" in message
    assert refused(variables=["lock"])[0] == "not_picklable"
    assert "a module" in refused(variables=["os"])[1]
    assert refused(variables=["nope"]) == ("variable_not_found", 'take-source has no variable "nope" in context default')
    code, message = refused(variables=["one", "d"])
    assert code == "not_picklable" and "in the target" in message and "only_here" in message
    assert refused(variables=["huge"])[0] == "payload_too_large"
    assert refused(files=["/workspace/nope"])[0] == "file_not_found"
    assert refused(files=["/etc/shadow"])[0] == "file_access"
    for bad in ({}, {"files": []}, {"files": ["relative"]}, {"files": ["/"]}, {"files": ["/a/"]}, {"files": ["/a/.."]}, {"variables": ["a b"]},
                {"variables": ["1a"]}, {"variables": [""]}, {"variables": ["_x"]}, {"variables": ["x\ny"]}, {"variables": ["x"] * 101}):
        assert refused(**bad)[0] == "bad_request", bad
    with pytest.raises(ApiError) as caught:
        api.post(f"{target.path}/take", {"from": "no-such-state", "variables": ["x"]})
    assert caught.value.code == "node_not_found"
    assert target.text("one") == "0", "what was refused has changed nothing"
    assert target.exec("ls -A /tmp")["stdout"] == ""
    assert cli("take", "take-source", "take-not").status == 2


def test_a_target_that_speaks_another_way_of_life(make, api):
    """The kernel of the target is busy: taking waits for its turn, as a cell does."""
    source, target = make(), make()
    source.ok("x = 'taken'")
    api.post(f"{target.path}/cells", {"code": "import time; time.sleep(1); x = 'own'", "detach": True})
    api.post(f"{target.path}/take", {"from": source.id, "variables": ["x"]})
    assert target.text("x") == "'taken'"


def test_contexts(make, api):
    """Variables are those of one context, by id or name."""
    source, target = make(), make()
    context = api.post(f"{source.path}/contexts", {"language": "python", "name": "second"}, timeout=120)
    source.ok("x = 'default'")
    source.ok("x = 'second'; y = 1", context="second")
    assert variables(diff(api, source, source, files="0", context="second")) == {}
    told = diff(api, target, source, files="0", context=context["id"])["variables"]["unavailable"]
    assert target.id in told and "no context" in told
    with pytest.raises(ApiError) as caught:
        api.post(f"{target.path}/take", {"from": source.id, "variables": ["y"], "context": "second"})
    assert caught.value.code == "context_not_found"
    api.post(f"{target.path}/contexts", {"language": "python", "name": "second"}, timeout=120)
    api.post(f"{target.path}/take", {"from": source.id, "variables": ["x"], "context": "second"})
    assert target.text("x", context="second") == "'second'" and target.run("x")["status"] == "error"


# -- the command line --------------------------------------------------------------------------------------------------------------


def test_the_listing(make, cli):
    a, b = make(name="list-a"), make(name="list-b")
    a.ok("x, gone, d = 1, 'text', {}\nopen('/workspace/t', 'w').write('one\\ntwo\\n')")
    b.ok("x, new, d = 2, [1, 2, 3], {'k': 1}\nopen('/workspace/t', 'w').write('one\\n2\\n'); open('/workspace/n', 'w').write('n')")
    out = cli.ok("diff", "list-a", "list-b", "--text").out
    assert out == ("files\n  + /workspace/n  file, 1 B\n  ~ /workspace/t  content: file, 8 B → file, 6 B\n"
                   "      @@ -1,2 +1,2 @@\n       one\n      -two\n      +2\n"
                   "variables\n  ~ d  dict (0) → (1)\n  - gone  str 'text'\n  + new  list (3)\n  ~ x  int 1 → 2\n"), out
    assert cli.ok("diff", "list-a", "list-a", "--files").out == "files: no difference\n"
    assert cli.ok("diff", "list-a", "list-a", "--variables").out == "variables: no difference\n"
    reply = cli.json("diff", "list-a", "list-b", "--json")
    assert reply["timings"]["a"].keys() == {"node_ms", "copy_ms", "read_ms"} and reply["timings"]["files_ms"] > 0
    assert cli.ok("take", "list-b", "list-a", "--var", "new", "--file", "/workspace/n").out == a.id + "\n"
    assert cli.ok("run", "list-a", "new, open('/workspace/n').read()").out == "([1, 2, 3], 'n')\n"
    for verb in ("diff", "take"):
        assert "examples:\n  coppice " + verb in cli.ok(verb, "--help").out
    assert cli("diff", "list-a").status == 2


def test_a_source_that_is_removed_meanwhile_leaves_nothing(make, states_daemon, api):
    import threading
    sb = make()
    sb.ok("x = 1")
    there = folders(states_daemon)
    nodes = set(os.listdir(states_daemon.home / "nodes"))
    sb.ok("class Slow:\n    def __reduce_ex__(self, p):\n        import time; time.sleep(2)\n        return (int, ())\nslow = Slow()")
    sb.suspend()
    replies = []
    thread = threading.Thread(target=lambda: replies.append(diff(api, sb, sb)))
    thread.start()
    wait_for(lambda: len(folders(states_daemon) - there) == 2)
    sb.remove()
    thread.join(60)
    assert variables(replies[0]) == {} and replies[0]["variables"]["same"] == 3
    wait_for(lambda: set(os.listdir(states_daemon.home / "nodes")) <= nodes)
    wait_for(lambda: folders(states_daemon) <= there)


# -- ends ------------------------------------------------------------------------------------------------------------------------------


def test_a_copy_does_not_outlive_the_daemon(make, states_daemon, api):
    sb = make()
    sb.ok("class Slow:\n    def __reduce_ex__(self, p):\n        import time; time.sleep(300)\nslow = Slow()")
    there = folders(states_daemon)
    import threading

    def ask():
        try:
            diff(api, sb, sb, files="0")
        except (ApiError, OSError, json.JSONDecodeError):
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: len(folders(states_daemon) - there) == 2)
    copies = folders(states_daemon) - there
    wait_for(lambda: all((states_daemon.home / "sandboxes" / c / "run/ipc/generation").exists() for c in copies))
    assert not copies & {s["id"] for s in api.get("/api/sandboxes", all="1")["sandboxes"]}
    states_daemon.kill()
    thread.join(30)
    states_daemon.start()
    wait_for(lambda: not copies & folders(states_daemon), 30)
    assert not copies & {s["id"] for s in api.get("/api/sandboxes", all="1")["sandboxes"]}
    assert sb.text("type(slow).__name__") == "'Slow'"
