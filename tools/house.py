"""The rooms of the package and how they import each other: ``python tools/house.py [--check | --write]``.

The layers are those of ``[tool.importlinter]`` in pyproject.toml. Every import counts, also those inside functions
and those for type checkers alone. Ends with 1 where a room imports a room above it, or where modules import each
other in a circle. ``--write`` puts what each room imports into docs/architecture.md, ``--check`` compares it; files and
lines are only printed, since every change moves them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp
from generated import write_or_check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "sglang_hydra"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- tools/house.py -->", "<!-- end -->"

Graph = Mapping[str, frozenset[str]]


def layers() -> list[str]:
    """The rooms in layers, the lowest first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (item for item in settings["contracts"] if item["type"] == "layers")
    return list(reversed(contract["layers"]))


def imports() -> dict[str, frozenset[str]]:
    """For each module the modules of this package that it imports, those for type checkers included."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in sorted(graph.modules)}


def room_of(module: str) -> str:
    """The room that a module stands in: ``facts`` for ``sglang_hydra.facts.gpu``; the package itself for its root."""
    return module.split(".")[1] if "." in module else PACKAGE


def upward(graph: Graph, order: Sequence[str]) -> list[tuple[str, str]]:
    """Each import of a room that stands above its own in ``order``; the modules at the root stand above every
    room. The package itself is left out: it imports its public names when they are used."""
    rank = {room: place for place, room in enumerate(order)}
    top = len(order)
    return [
        (module, other)
        for module, imported in graph.items()
        for other in sorted(imported)
        if PACKAGE not in (module, other) and rank.get(room_of(other), top) > rank.get(room_of(module), top)
    ]


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import each other in a circle, the largest first (Tarjan's algorithm)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph.get(module, ()):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                found.append(group)

    sys.setrecursionlimit(10_000)
    for module in graph:
        if module not in number:
            visit(module)
    return sorted(found, key=len, reverse=True)


def imported_rooms(graph: Graph, order: Sequence[str]) -> dict[str, list[str]]:
    """For each room, the highest first, the rooms that it imports."""
    found: dict[str, list[str]] = {}
    for room in [*reversed(order), PACKAGE]:
        names = {room_of(other) for module in graph if room_of(module) == room for other in graph[module]}
        found[room] = sorted(names - {room}, key=lambda name: order.index(name) if name in order else len(order))
    return found


def table_of_imports(rooms: Mapping[str, Sequence[str]]) -> str:
    """The table of docs/architecture.md."""
    lines = [f"{'room':14}imports", *(f"{room:14}{' '.join(used)}".rstrip() for room, used in rooms.items())]
    return "\n".join(lines)


def report(graph: Graph, order: Sequence[str], rooms: Mapping[str, Sequence[str]]) -> tuple[str, bool]:
    """The table of rooms with their files and lines and the findings below it, and whether there are none."""
    lines, all_files, all_lines = [f"{'room':14}{'files':>6}{'lines':>8}  imports"], 0, 0
    for room, used in rooms.items():
        files = _files(room)
        count = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
        all_files, all_lines = all_files + len(files), all_lines + count
        lines.append(f"{room:14}{len(files):6}{count:8}  {' '.join(used)}".rstrip())
    back, rings = upward(graph, order), circles(graph)
    lines += [f"{'all':14}{all_files:6}{all_lines:8}", ""]
    lines += [f"upward imports: {len(back)}", *(f"  {module} -> {other}" for module, other in back)]
    lines += [f"import circles: {len(rings)}", *(f"  {' '.join(ring)}" for ring in rings)]
    return "\n".join(lines), not back and not rings


def _files(room: str) -> list[Path]:
    folder = ROOT / PACKAGE
    return sorted(folder.glob("*.py") if room == PACKAGE else (folder / room).rglob("*.py"))


def main(arguments: Sequence[str]) -> int:
    graph, order = imports(), layers()
    rooms = imported_rooms(graph, order)
    table, good = report(graph, order, rooms)
    print(table)
    if arguments:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        fresh = f"{before}{BEGIN}\n```text\n{table_of_imports(rooms)}\n```\n{END}{rest.split(END)[1]}"
        return write_or_check(PAGE, fresh, arguments) or int(not good)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
