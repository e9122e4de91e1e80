#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Check the sizes of functions and files under src/ and cmd/; exceptions are in tools/house.allow.

Not a C parser: it counts on the layout that .clang-format enforces, where only the body of a
function opens with '{' in column 0, and it ends with the next '}' in column 0.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ALLOW = ROOT / "tools" / "house.allow"
FUNCTION_LINES = 60  # from '{' to '}', both counted
FUNCTION_PARAMS = 5
FILE_LINES = 800

# Comments and literals, whose brackets and commas must not be counted.
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def blank(match):
    """Keep the lines and take the text away."""
    return "\n" * match[0].count("\n") or " "


def split_signature(text):
    """(name, parameter count) of the declarator of a function definition."""
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", text, flags=re.DOTALL)
    match = re.search(r"(\w+)\s*\(", text)
    if not match:
        return None
    depth, commas, end = 1, 0, match.end()
    while end < len(text) and depth:
        char = text[end]
        depth += (char in "([{") - (char in ")]}")
        commas += char == "," and depth == 1
        end += 1
    params = text[match.end():end - 1].strip()
    return match[1], 0 if params in ("", "void") else commas + 1


def functions(lines):
    """Yield (name, lines, parameters) of each function definition."""
    opened = None
    for index, line in enumerate(lines):
        if opened is None and line.startswith("{"):
            opened = index
        elif opened is not None and line.startswith("}"):
            start = opened
            while start and lines[start - 1].strip() and lines[start - 1][0] not in "#}" \
                    and not lines[start - 1].rstrip().endswith(";"):
                start -= 1
            signature = split_signature("\n".join(lines[start:opened]))
            if signature:
                yield signature[0], index - opened + 1, signature[1]
            opened = None


def measure():
    """{(where, kind): (size, limit)} of everything that is measured."""
    sizes = {}

    def note(where, kind, size, limit):
        known = sizes.get((where, kind), (0, limit))[0]
        sizes[where, kind] = max(size, known), limit

    for folder in ("src", "cmd"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            name = str(path.relative_to(ROOT))
            text = path.read_text()
            note(name, "lines", text.count("\n"), FILE_LINES)
            for function, length, params in functions(NOISE.sub(blank, text).split("\n")):
                note(f"{name}:{function}", "lines", length, FUNCTION_LINES)
                note(f"{name}:{function}", "params", params, FUNCTION_PARAMS)
    return sizes


def read_allow(errors):
    """{(where, kind): limit} of the listed exceptions."""
    allow = {}
    for number, line in enumerate(ALLOW.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\S+)\s+(lines|params)=(\d+)\s*(.*)", line.strip())
        if not match:
            errors.append(f"tools/house.allow:{number}: not 'path[:function]  kind=limit  reason'")
        elif not match[4]:
            errors.append(f"tools/house.allow:{number}: no reason given")
        else:
            allow[match[1], match[2]] = int(match[3])
    return allow


def main():
    errors = []
    allow = read_allow(errors)
    sizes = measure()
    for (where, kind), (size, limit) in sizes.items():
        if size > allow.get((where, kind), limit):
            errors.append(f"{where}: {size} {kind}, {allow.get((where, kind), limit)} at most")
    for where, kind in allow:
        size, limit = sizes.get((where, kind), (0, 0))
        if size <= limit:
            errors.append(f"tools/house.allow: {where} {kind}: no longer needed")
    for line in errors:
        print(line, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
