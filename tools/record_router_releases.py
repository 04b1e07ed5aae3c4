"""Record which sglang-router belongs to which SGLang, and what each router's command line takes.

    python tools/record_router_releases.py --out sglang_hydra/topology/router_releases.json

The package registry says when each release of SGLang and of the router came out: to a release of SGLang belongs the
newest router of that day. Each router's wheel is unpacked into a folder of its own, and its argument parser is asked
by this interpreter, which must be one that the old wheels are made for (Python 3.8 to 3.12 on x86_64 Linux).

Exit code: 0 done, 1 a wheel could not be fetched or asked.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

REGISTRY = "https://pypi.org/pypi"
FIRST_ROUTER = (0, 1, 2)
FIRST_SGLANG = (0, 4)
ASK = """
import argparse, json, sys
sys.path.insert(0, sys.argv[1])
try:
    from sglang_router.router_args import RouterArgs
except ImportError:
    from sglang_router.launch_router import RouterArgs
parser = argparse.ArgumentParser()
RouterArgs.add_cli_args(parser)
kinds = {int: "int", float: "float", str: "str", None: "str"}
print(json.dumps({
    action.option_strings[-1][2:].replace("-", "_"): [
        "switch" if action.nargs == 0 else "list" if action.nargs in ("*", "+") else kinds[action.type],
        sorted(action.choices) if action.choices else None,
    ]
    for action in parser._actions if action.dest != "help"
}))
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Records the releases of sglang-router from the package registry.")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--wheels", type=Path, help="keep the wheels here (a temporary folder)")
    options = parser.parse_args(argv)
    routers = {name: day for name, day in uploads("sglang-router").items() if numbers(name) >= FIRST_ROUTER}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.wheels or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            told = {name: flags_of(name, folder, Path(scratch)) for name in sorted(routers, key=numbers)}
        except (OSError, LookupError, subprocess.SubprocessError) as failure:
            print(f"cannot record: {failure}", file=sys.stderr)
            return 1
    record = {
        "source": f"{REGISTRY}/sglang-router and {REGISTRY}/sglang: upload days; the wheels' own argument parsers",
        "routers": routers,
        "sglang": pairs(routers),
        "flags": ranges(told),
    }
    options.out.write_text(layout(record), encoding="utf-8")
    return 0


def uploads(package: str) -> dict[str, str]:
    """The day on which each release of a package came out, oldest first."""
    with urllib.request.urlopen(f"{REGISTRY}/{package}/json", timeout=60) as answer:
        releases = json.load(answer)["releases"]
    days = {name: min(file["upload_time"] for file in files)[:10] for name, files in releases.items() if files}
    return dict(sorted(days.items(), key=lambda item: (item[1], numbers(item[0]))))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def pairs(routers: dict[str, str]) -> list[list[str]]:
    """For each router the first SGLang that it belongs to; one that was replaced before there was any is left out."""
    found: dict[str, str] = {}
    for version, day in uploads("sglang").items():
        out = [name for name, since in routers.items() if since <= day]
        if numbers(version) >= FIRST_SGLANG and out:
            found.setdefault(out[-1], version)
    return [[version, router] for router, version in found.items()]


def flags_of(release: str, wheels: Path, scratch: Path) -> dict[str, list[Any]]:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, "--dest", str(wheels), f"sglang-router=={release}"], check=True)
    wheel = next(wheels.glob(f"sglang_router-{release}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / release)
    answer = subprocess.run(
        [sys.executable, "-I", "-c", ASK, str(scratch / release)], check=True, capture_output=True, encoding="utf-8"
    )
    flags: dict[str, list[Any]] = json.loads(answer.stdout)
    return flags


def ranges(told: dict[str, dict[str, list[Any]]]) -> dict[str, Any]:
    """For each flag its kind, the releases that have it (first and last, null for the newest) and its choices."""
    newest = next(reversed(told))
    flags: dict[str, Any] = {}
    for release, names in told.items():
        for name, (kind, choices) in names.items():
            flag = flags.setdefault(name, {"kind": kind, "since": release, "until": None, "choices": []})
            flag["until"] = None if release == newest else release
            if choices and name != "tool_call_parser":
                flag["choices"].append([release, choices])
    for flag in flags.values():
        changed = [next(same) for _, same in itertools.groupby(flag["choices"], key=lambda item: item[1])]
        flag["choices"] = changed
    return dict(sorted(flags.items()))


def layout(record: dict[str, Any]) -> str:
    """JSON with a line for each flag."""
    parts = []
    for key, value in record.items():
        if key == "flags":
            rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(flag)}" for name, flag in value.items())
            parts.append(f' "flags": {{\n{rows}\n }}')
        elif key == "sglang":
            parts.append(' "sglang": [\n' + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
