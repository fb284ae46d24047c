"""The verbs of saved states, as a user types them."""

import re
import time

import pytest

from cli import Cli


DAEMON = "states_daemon"


def test_the_session_of_states(cli):
    source = cli.ok("new", "--name", "cli-states").out.strip()
    cli.ok("run", "cli-states", "x = 41")
    assert cli.ok("suspend", "cli-states").out == source + "\n"
    assert "suspended" in cli.ok("ls").out
    back = cli.json("resume", "cli-states", "--json", "--require-memory")
    assert back["memoryRestored"] is True and back["id"] == source
    node = cli.ok("snapshot", "cli-states", "--name", "cli-clean").out.strip()
    assert re.fullmatch(r"nd_[a-z0-9]{10}", node)
    assert "cli-clean" in cli.ok("snapshot", "ls").out
    assert [n["id"] for n in cli.json("snapshot", "ls", "--json")] == [node]
    cli.ok("run", "cli-states", "x = 0")
    assert cli.ok("undo", "cli-states").out == source + "\n"
    assert cli.ok("redo", "cli-states").out == source + "\n"
    assert cli.ok("undo", "cli-states").out == source + "\n"
    assert cli.ok("run", "cli-states", "x").out == "41\n"
    gone = cli("redo", "cli-states")
    assert gone.status == 1 and "a new cell was run since" in gone.err
    cli.ok("goto", "cli-states", "cli-clean")
    tree = cli.ok("log", "cli-states").out
    assert re.search(rf"● {node}  snapshot cli-clean .*◀ head\n", tree) and "suspend" in tree
    assert cli.json("log", "cli-states", "--json")["head"] == node
    copies = cli.ok("fork", "cli-states", "-n", "2", "--name", "cli-kid", "--label", "a=b").out.split()
    assert len(copies) == 2 and cli.ok("run", "cli-kid-2", "x").out == "41\n"
    again = cli("fork", "cli-states", "-n", "2", "--name", "cli-kid")
    assert again.status == 1 and again.err.count("a copy failed") == 2 and again.out == ""
    cli.ok("new", "--from", "cli-clean", "--name", "cli-b1")
    assert cli.ok("run", "cli-b1", "x").out == "41\n"
    cli.ok("rm", "cli-states", "cli-kid-1", "cli-kid-2", "cli-b1")
    assert cli.ok("snapshot", "rm", "cli-clean").out == node + "\n"
    assert cli("snapshot", "rm", "cli-clean").status == 1
    cli.ok("snapshot", "rm", "--force", "cli-clean")


@pytest.mark.parametrize("words", [("undo", "x", "many"), ("redo", "x", "0.5"), ("redo",), ("goto", "x"), ("fork",), ("snapshot", "x", "--kind", "half"), ("suspend",)])
def test_wrong_usage(cli, words):
    assert cli(*words).status == 2


@pytest.mark.parametrize("verb", ["suspend", "resume", "snapshot", "pack", "unpack", "fork", "log", "undo", "redo", "goto"])
def test_help_has_examples(cli, verb):
    assert "examples:\n  coppice " + verb in cli.ok(verb, "--help").out


def test_each_cell_can_be_undone(cli):
    cli.ok("new", "--name", "cli-each", "--checkpoints", "after_cell", "--idle", "2h", "--persistent")
    policy = cli.json("info", "cli-each", "--json")["policy"]
    assert policy["checkpoints"] == "after_cell" and policy["idle_seconds"] == 7200 and policy["persistent"] is True
    for value in range(4):
        cli.ok("run", "cli-each", f"x = {value}")
        time.sleep(1)
    cli.ok("undo", "cli-each")
    cli.ok("undo", "cli-each")
    cli.ok("redo", "cli-each")
    assert cli.ok("run", "cli-each", "x").out == "2\n"
    cli.ok("rm", "cli-each")
    assert cli("new", "--checkpoints", "sometimes").status == 1
