#!/usr/bin/env python3
"""Checks that api/openapi.yaml says what the server does.

- ErrorCode is the list of src/base/err.def
- its paths and methods are the routes of src/server/api-*.c, no more and no fewer
- every $ref leads somewhere, schemas are valid, examples fit their schemas
- the fields that a handler takes are the properties of the request body, and query parameters likewise, by name over the file
Prints one line for each fault; status 1 when there is any.
"""

import re
import sys
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("get", "post", "put", "patch", "delete")
faults = []


def fault(text):
    faults.append(text)


def routes_of_server():
    """{(METHOD, pattern)} and {function: text} per source file."""
    routes = set()
    for path in sorted((ROOT / "src/server").glob("api-*.c")):
        text = path.read_text()
        table = text[text.rindex("const struct cop_route cop_api_") :]
        for method, pattern in re.findall(r'\{"([A-Z]+)",\s*"([^"]+)"', table):
            if (method, pattern) in routes:
                fault(f"{path.name}: {method} {pattern} stands twice")
            routes.add((method, pattern))
    return routes


def words_of_server():
    """Every name in the lists of allowed fields and query parameters."""
    words = set()
    for path in sorted((ROOT / "src/server").glob("api-*.c")):
        for body in re.findall(r"\*const (?:fields|names)\[\] = \{(.*?)\};", path.read_text(), re.S):
            words |= set(re.findall(r'"([a-z0-9_]+)"', body))
    return words


def resolve(document, node):
    while isinstance(node, dict) and "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def check_refs(document, node, where):
    if isinstance(node, dict):
        ref = node.get("$ref")
        if ref is not None:
            try:
                resolve(document, node)
            except (KeyError, TypeError):
                fault(f"{where}: {ref} leads nowhere")
        for key, value in node.items():
            check_refs(document, value, f"{where}/{key}")
    elif isinstance(node, list):
        for i, value in enumerate(node):
            check_refs(document, value, f"{where}/{i}")


def check_example(document, media, where):
    resolver = jsonschema.RefResolver("", document)
    examples = [media["example"]] if "example" in media else []
    examples += [e["value"] for e in media.get("examples", {}).values()]
    validator = jsonschema.Draft202012Validator(media.get("schema", {}), resolver=resolver)
    for example in examples:
        for error in validator.iter_errors(example):
            fault(f"{where}: the example does not fit: {error.message}")


def check_operation(document, path, method, item, ids, words):
    operation = item[method]
    where = f"{method.upper()} {path}"
    if operation.get("operationId") in ids:
        fault(f"{where}: operationId {operation.get('operationId')} is missing or taken")
    ids.add(operation.get("operationId"))
    if not operation.get("summary"):
        fault(f"{where}: no summary")
    parameters = [resolve(document, p) for p in item.get("parameters", []) + operation.get("parameters", [])]
    if {p["name"] for p in parameters if p["in"] == "path"} != set(re.findall(r"\{(\w+)\}", path)):
        fault(f"{where}: path parameters do not fit the path")
    words |= {p["name"] for p in parameters if p["in"] == "query"}
    body = resolve(document, operation.get("requestBody", {}))
    for kind, media in body.get("content", {}).items():
        check_example(document, media, where)
        if kind == "application/json":
            words |= set(resolve(document, media["schema"]).get("properties", {}))
    if "default" not in operation["responses"]:
        fault(f"{where}: errors are not described")
    for status, response in operation["responses"].items():
        for media in resolve(document, response).get("content", {}).values():
            check_example(document, media, f"{where} {status}")


def main():
    document = yaml.safe_load((ROOT / "api/openapi.yaml").read_text())
    check_refs(document, document, "")
    if faults:
        return
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
        except jsonschema.SchemaError as error:
            fault(f"schema {name}: {error.message}")

    codes = re.findall(r"^X\((\w+),", (ROOT / "src/base/err.def").read_text(), re.M)
    documented = schemas["ErrorCode"]["enum"]
    for code in sorted(set(codes) ^ set(documented)):
        fault(f"error code {code}: only in {'err.def' if code in codes else 'openapi.yaml'}")

    routes = routes_of_server()
    ids, words = set(), set()
    described = set()
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                described.add((method.upper(), path))
                check_operation(document, path, method, item, ids, words)
    for method, path in sorted(routes ^ described):
        fault(f"{method} {path}: only in {'the server' if (method, path) in routes else 'openapi.yaml'}")
    taken = words_of_server()
    for word in sorted(taken ^ words):
        fault(f"field or parameter {word}: only in {'the server' if word in taken else 'openapi.yaml'}")
    print(f"{len(routes)} routes, {len(codes)} error codes, {len(schemas)} schemas")


main()
for line in faults:
    print(line)
sys.exit(1 if faults else 0)
