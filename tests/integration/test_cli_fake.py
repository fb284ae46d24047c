"""The command line against a server that answers as no good daemon would."""

import http.server
import json
import threading

import pytest

from cli import Cli


class Server(http.server.ThreadingHTTPServer):
    """Answers every request with the next of `replies`: (status, body, whether the connection is cut after it)."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.requests = [], []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def will_say(self, status, body, cut=False):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        self.replies.append((status, body.encode() if isinstance(body, str) else body, cut))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers), body))
        status, reply, cut = self.server.replies.pop(0)
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if reply:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(reply), reply))
        if cut:
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


def lines(*events):
    return "".join(json.dumps(e) + "\n" for e in events)


START = {"type": "start", "cell_id": "cell_1", "seq": 1}
END = {"type": "end", "cell": {"id": "cell_1", "status": "ok", "execution_count": 1, "generation": 1}}


@pytest.fixture
def server():
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def cli(server):
    return Cli(COPPICE_URL=f"http://127.0.0.1:{server.server_port}/", COPPICE_TOKEN="secret")


def test_requests_carry_the_token_and_the_format(server, cli):
    server.will_say(200, {"sandboxes": []})
    cli.ok("ls")
    method, path, headers, _ = server.requests[0]
    assert (method, path.split("?")[0]) == ("GET", "/api/sandboxes")
    assert headers["Authorization"] == "Bearer secret" and headers["Accept"] == "application/json"


def test_references_are_encoded(server, cli):
    server.will_say(404, {"error": True, "code": "sandbox_not_found", "message": "no"})
    cli("info", "../a b/ü?x#%")
    assert server.requests[0][1] == "/api/sandboxes/..%2Fa%20b%2F%C3%BC%3Fx%23%25"


def test_the_body_of_a_cell(server, cli):
    server.will_say(200, lines(START, END))
    cli.ok("run", "demo", "x\ty\\ 'ü'", "--timeout", "1.5", "-c", "ctx")
    body = json.loads(server.requests[0][3])
    assert body == {"code": "x\ty\\ 'ü'", "timeout": 1.5, "context": "ctx"}
    assert server.requests[0][2]["Accept"] == "application/x-ndjson"


def test_a_detached_command_has_no_limit_unless_told(server, cli):
    for _ in range(2):
        server.will_say(200, {"pid": 5, "status": "running", "running": True})
    cli.ok("exec", "demo", "-d", "x")
    cli.ok("exec", "demo", "-d", "x", "--timeout", "5")
    assert [json.loads(r[3])["timeout"] for r in server.requests] == [0, 5]


def test_an_error_reply(server, cli):
    server.will_say(507, {"error": True, "code": "disk_full", "message": "no space; delete files", "retryable": False})
    done = cli("new")
    assert done.status == 1 and done.err == "coppice: no space; delete files\n"


@pytest.mark.parametrize("body", ["", "<html>proxy</html>", "[]", "{}", "\xff"])
def test_an_error_without_explanation(server, cli, body):
    server.will_say(502, body)
    done = cli("ls")
    assert done.status == 1 and "502" in done.err


@pytest.mark.parametrize("body", ["", "nonsense", "[1,2", '"text"', "null"])
def test_success_with_a_strange_body(server, cli, body):
    server.will_say(200, body)
    assert cli("ls").status in (0, 1)  # and no crash


def test_a_fault_in_the_stream(server, cli):
    server.will_say(200, lines(START, {"type": "stdout", "text": "a"},
                               {"type": "fault", "code": "unavailable", "message": "the keeper ended", "retryable": True}))
    done = cli("run", "demo", "1")
    assert done.status == 1 and done.out == "a" and "the keeper ended" in done.err
    assert "--attach cell_1" in done.err


@pytest.mark.parametrize("text,cut", [(lines(START), False), (lines(START), True), (lines(START)[:-5], True),
                                      ('{"type":"start"}\n{broken\n', False), ("", False)])
def test_a_stream_that_breaks_off(server, cli, text, cut):
    server.will_say(200, text, cut)
    done = cli("run", "demo", "1")
    assert done.status in (1, 126) and done.err.startswith("coppice: ")


def test_outputs(server, cli):
    server.will_say(200, lines(
        START, {"type": "stdout", "text": "no newline"},
        {"type": "result", "data": {"text/plain": "42", "image/png": "AAAA"}},
        {"type": "display", "data": {"text/html": "<b>only</b>"}},
        {"type": "unknown", "future": True}, {"no": "type"},
        {"type": "late", "text": "straggler"},
        {"type": "truncated", "stream": "stdout", "dropped": 2048},
        {"type": "stderr", "text": "e\x00\u0000\n"}, END))
    done = cli.ok("run", "demo", "1")
    assert done.out == "no newline\n42\n"
    assert "straggler" in done.err and "2.0 KiB" in done.err and "e\0\0\n" in done.err and done.err.endswith("[ok #1]\n")


def test_bytes_of_a_command(server, cli):
    server.will_say(200, lines({"type": "start", "command_id": "cmd_1", "pid": 3},
                               {"type": "stdout", "base64": "/wD+gIE="}, {"type": "stdout", "base64": "!!"},
                               {"type": "end", "command": {"status": "exited", "exit_code": 0}}))
    assert cli("exec", "demo", "x", text=False).out == b"\xff\x00\xfe\x80\x81"


def test_control_characters_in_messages_do_not_reach_the_terminal(server, cli):
    server.will_say(400, {"code": "bad_request", "message": "evil \u001b]0;title\u0007 text"})
    assert "\033" not in cli("ls").err and "\a" not in cli.env


def test_nobody_listens():
    done = Cli(COPPICE_URL="http://127.0.0.1:1")("ls")
    assert done.status == 3 and "no daemon answers" in done.err


def test_many_megabytes_in_one_event(server, cli):
    text = "x" * (8 << 20)
    server.will_say(200, lines(START, {"type": "stdout", "text": text}, END))
    assert cli.ok("run", "demo", "1").out == text


def test_an_export_that_breaks_off_leaves_the_old_file(server, cli, tmp_path):
    file = tmp_path / "session.ipynb"
    file.write_text("old")
    server.will_say(200, '{"cells":[', cut=True)
    done = cli("export", "demo", "-o", file, "--context", "a b", "--undone")
    assert done.status == 1 and "coppice: " in done.err
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]
    assert server.requests[0][1] == "/api/sandboxes/demo/notebook?context=a%20b&undone=1"


def test_a_sibling_that_could_not_be_removed(server, cli):
    server.will_say(200, {"sandbox": {"id": "sb_2"}, "removed": [{"id": "sb_1", "name": "b1", "removed": True},
                                                                 {"id": "sb_3", "removed": False, "code": "internal", "message": "no luck"}]})
    done = cli("keep", "b2", "--drop-siblings")
    assert done.status == 1 and done.out == "sb_2\n"
    assert "removed sb_1 (b1)" in done.err and "sb_3 was not removed: no luck" in done.err
    assert json.loads(server.requests[0][3]) == {"drop_siblings": True}


NOTEBOOK = json.dumps({"nbformat": 4, "nbformat_minor": 2, "metadata": {"kernelspec": {"language": "python"}}, "cells": [
    {"cell_type": "code", "source": source, "metadata": {}} for source in ("first", "second", "third")]})


def test_an_import_whose_sandbox_dies_tells_how_far_it_came(server, cli):
    server.will_say(201, {"id": "sb_9"})
    server.will_say(200, {"id": "cell_1", "status": "ok", "duration_ms": 12.0})
    server.will_say(410, {"error": True, "code": "sandbox_ended", "message": "sandbox sb_9 has ended"})
    done = cli("import", "-", "--json", "--timeout", "2m", "--image", "im", input=NOTEBOOK)
    report = json.loads(done.out)
    assert done.status == 1 and "sandbox sb_9 has ended" in done.err
    assert [c["status"] for c in report["cells"]] == ["ok", "failed", "skipped"]
    assert (report["ok"], report["failed"], report["skipped"], report["sandbox"]["id"]) == (1, 1, 1, "sb_9")
    assert json.loads(server.requests[0][3]) == {"image": "im"}
    assert json.loads(server.requests[1][3]) == {"code": "first", "on_disconnect": "interrupt", "timeout": 120}


def test_an_import_without_a_kernel_for_its_language_removes_its_sandbox(server, cli):
    server.will_say(201, {"id": "sb_9"})
    server.will_say(404, {"error": True, "code": "kernelspec_not_found", "message": "no kernel for r"})
    server.will_say(200, {"id": "sb_9", "state": "ended"})
    done = cli("import", "-", input=NOTEBOOK.replace('"python"', '"R"'))
    assert done.status == 1 and "no kernel for r" in done.err and done.out == ""
    assert [(r[0], r[1]) for r in server.requests[1:]] == [("POST", "/api/sandboxes/sb_9/contexts"), ("DELETE", "/api/sandboxes/sb_9")]


def test_the_report_of_a_collection(server, cli):
    server.will_say(200, {"dry_run": False, "freed_bytes": 4096, "more": True, "items": [
        {"kind": "node", "path": "nodes/nd_a", "reason": "old", "bytes": 4096, "removed": True},
        {"kind": "folder", "path": "nodes/nd_b", "reason": "stray", "bytes": 1, "removed": False}]})
    done = cli.ok("gc")
    assert "nodes/nd_a" in done.out and "nd_b" not in done.out and "1 removed, 4.0 KiB" in done.err and "run it again" in done.err
