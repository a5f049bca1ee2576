#!/usr/bin/python3
"""Writes the SBOM of a target as CycloneDX 1.5 to standard output:

    packaging/sbom.py TARGET PROGRAM

It lists the crates that cargo builds into the program for the target, with their versions, licences and checksums.
"""

import hashlib
import json
import re
import subprocess
import sys
import tomllib


def main():
    target, program = sys.argv[1:]
    metadata = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]

    def built_in(node):
        """Dependencies that are linked or that build the program; not those of tests."""
        kinds = lambda dep: [kind["kind"] for kind in dep["dep_kinds"]]
        return sorted(dep["pkg"] for dep in nodes[node]["deps"] if set(kinds(dep)) - {"dev"})

    edges, open_nodes = {}, [root]
    while open_nodes:
        node = open_nodes.pop()
        if node not in edges:
            edges[node] = built_in(node)
            open_nodes += edges[node]

    with open("Cargo.lock", "rb") as lock:
        locked = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(lock)["package"]}

    def reference(node):
        package = packages[node]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(node):
        package = packages[node]
        described = {
            "type": "library",
            "bom-ref": reference(node),
            "name": package["name"],
            "version": package["version"],
            "purl": reference(node),
        }
        if package["license"]:
            # `MIT/Apache-2.0` is an old spelling of a choice.
            described["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        checksum = locked.get((package["name"], package["version"]))
        if checksum:
            described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return described

    with open(program, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    own = component(root) | {"type": "application", "hashes": [{"alg": "SHA-256", "content": digest}]}
    others = sorted((node for node in edges if node != root), key=reference)
    json.dump({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own, "properties": [{"name": "cargo:target", "value": target}]},
        "components": [component(node) for node in others],
        "dependencies": [
            {"ref": reference(node), "dependsOn": [reference(dep) for dep in edges[node]]}
            for node in [root, *others]
        ],
    }, sys.stdout, indent=1)
    print()


main()
