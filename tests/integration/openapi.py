"""Checks real traffic against api/openapi.yaml.

`Checker` is what client.Api.checker wants: it looks at every JSON call of every integration test and fails the one that gets
an undescribed status, field or type.  What was seen is counted, so that test_api_schema.py can tell which calls no test made.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]


class Mismatch(AssertionError):
    pass


class Document:
    def __init__(self, path: Path = ROOT / "api/openapi.yaml"):
        self.document = yaml.safe_load(path.read_text())
        self.resolver = jsonschema.RefResolver("", self.document)
        self.validators: dict[str, jsonschema.Draft202012Validator] = {}
        self.routes = []
        for pattern, item in self.document["paths"].items():
            regex = re.compile("^" + re.sub(r"\\{\w+\\}", "[^/]+", re.escape(pattern)) + "$")
            self.routes.append((pattern.count("{"), regex, pattern, item))
        self.routes.sort(key=lambda route: route[0])  # literal segments win

    def resolve(self, node):
        while isinstance(node, dict) and "$ref" in node:
            with self.resolver.resolving(node["$ref"]) as target:
                node = target
        return node

    def find(self, method: str, path: str):
        """(pattern, path item, operation), or None for what is not in the document."""
        path = re.sub("/+", "/", urlsplit(path).path).rstrip("/")
        for _, regex, pattern, item in self.routes:
            if regex.match(path) and method.lower() in item:
                return pattern, item, item[method.lower()]
        return None

    def validate(self, schema, value, where: str) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            self.validators[key] = jsonschema.Draft202012Validator(schema, resolver=self.resolver)
        errors = sorted(self.validators[key].iter_errors(value), key=lambda e: -len(e.absolute_path))
        if errors:
            error = errors[0]
            at = "/".join(str(p) for p in error.absolute_path)
            raise Mismatch(f"{where}: at {at or 'the top'}: {error.message[:500]}")

    def check_event(self, event, name: str = "Event") -> None:
        self.validate({"$ref": f"#/components/schemas/{name}"}, event, f"{name} {event.get('type')}")


class Checker:
    def __init__(self):
        self.document = Document()
        self.seen: dict[tuple[str, str], set[int]] = {}

    def __call__(self, method: str, path: str, data, reply) -> None:
        d = self.document
        found = d.find("GET" if method == "HEAD" else method, path)
        if not found:
            if reply.status not in (401, 404, 405, 400):
                raise Mismatch(f"{method} {path}: {reply.status}, and openapi.yaml has no such call")
            return
        pattern, item, operation = found
        self.seen.setdefault((method, pattern), set()).add(reply.status)
        where = f"{method} {path}: {reply.status}"
        response = operation["responses"].get(str(reply.status))
        if response is None:
            if reply.status < 400:
                raise Mismatch(f"{where} is not described")
            response = operation["responses"]["default"]
        else:
            self.check_request(operation, item, path, data, where)
        if reply.status == 204 or method == "HEAD":
            return
        kind = reply.headers.get("content-type", "").split(";")[0]
        content = d.resolve(response).get("content", {})
        if kind not in content:
            raise Mismatch(f"{where}: content type {kind!r}, described are {sorted(content)}")
        if kind == "application/json":
            d.validate(content[kind]["schema"], reply.json(), where)
        elif kind == "application/x-ndjson":
            for line in reply.body.splitlines():
                d.validate(content[kind]["schema"], json.loads(line), where)

    def check_request(self, operation, item, path: str, data, where: str) -> None:
        """What the server accepted must be what the document allows."""
        d = self.document
        parameters = [d.resolve(p) for p in item.get("parameters", []) + operation.get("parameters", [])]
        names = {p["name"] for p in parameters if p["in"] == "query"}
        for name, _ in parse_qsl(urlsplit(path).query, keep_blank_values=True):
            if name not in names:
                raise Mismatch(f"{where}: query parameter {name} is not described")
        if data is not None and isinstance(data, (dict, list)):
            body = d.resolve(operation.get("requestBody", {}))
            media = body.get("content", {}).get("application/json")
            if media is None:
                raise Mismatch(f"{where}: a JSON body is not described")
            d.validate(media["schema"], data, f"{where}, request")

    def unseen(self) -> list[str]:
        return [
            f"{method.upper()} {pattern}"
            for _, _, pattern, item in self.document.routes
            for method in ("get", "post", "put", "patch", "delete")
            if method in item and not any(s < 400 for s in self.seen.get((method.upper(), pattern), set()))
        ]
