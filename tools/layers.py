#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Check that each folder of src/ (and cmd/) includes only what tools/layers.txt lets it include."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "layers.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')

errors = []


def error(where, text):
    errors.append(f"{where}: {text}")


def read_table():
    """The table as {folder: set of folders}; a row may name only rows above it."""
    allowed = {}
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        where = f"{TABLE.relative_to(ROOT)}:{number}"
        folder, colon, rest = line.partition(":")
        folder, names = folder.strip(), rest.split()
        if not colon or folder in allowed:
            error(where, "expected one 'folder: folders it includes' for each folder")
            continue
        for name in names:
            if name not in allowed:
                error(where, f"'{name}' is not in a row above: '{folder}' would reach up or in a cycle")
        allowed[folder] = set(names) | {folder}
    return allowed


def c_files(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h"))


def includes(path):
    """Yield (line number, quote, name) of each include."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def check_file(path, folder, allowed):
    """Check one file; return the own files that it includes."""
    found = []
    for number, quote, name in includes(path):
        where = f"{path.relative_to(ROOT)}:{number}"
        target = name.split("/")[0] if "/" in name else folder
        if quote == "<":
            if "/" in name and target in allowed and (ROOT / "src" / name).exists():
                error(where, f'<{name}> is ours: include it as "{name}"')
            continue
        if ".." in name.split("/"):
            error(where, f'"{name}": name the folder from src/ on')
            continue
        file = path.parent / name if "/" not in name else ROOT / "src" / name
        if not file.exists() and (ROOT / "include" / name).exists():
            continue
        if target not in allowed or not file.exists():
            error(where, f'"{name}" is not a file of this folder or of a folder in the table')
            continue
        if target not in allowed[folder]:
            error(where, f"'{folder}' may not include '{target}' ({name})")
        elif name.endswith("_priv.h") and target != folder:
            error(where, f"{name} is private to '{target}'")
        found.append(file.resolve())
    return found


def check_cycles(graph):
    """Report each cycle of files (inside one folder: the table rules out the others)."""
    done, path = set(), []

    def visit(file):
        if file in path:
            names = path[path.index(file):] + [file]
            error("cycle", " -> ".join(str(p.relative_to(ROOT)) for p in names))
            return
        if file in done:
            return
        path.append(file)
        for target in graph.get(file, []):
            visit(target)
        path.pop()
        done.add(file)

    for file in graph:
        visit(file)


def main():
    allowed = read_table()
    graph = {}
    for folder in sorted(p for p in (ROOT / "src").iterdir() if p.is_dir()) + [ROOT / "cmd"]:
        files = c_files(folder)
        if folder.name not in allowed:
            if files:
                error(folder.relative_to(ROOT), "folder is not in tools/layers.txt")
            continue
        for path in files:
            graph[path] = check_file(path, folder.name, allowed)
    for path in (ROOT / "src").glob("*.[ch]"):
        error(path.relative_to(ROOT), "belongs in a folder of src/")
    check_cycles(graph)
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
