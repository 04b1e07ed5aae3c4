"""Records releases for sglang_hydra.releases: their wheels by sha256, the libraries they need, their real parts.

    python tools/record_release.py 0.5.23 ...          # asks the registry, downloads, runs, writes releases.json
    python tools/record_release.py --wheels FOLDER ... # keeps what is downloaded there, and takes what is there
    python tools/record_release.py --parts ...         # the real parts alone, of releases whose wheels are here
    python tools/record_release.py --types ...         # the model types alone, of releases whose wheels are here

The parts that its argument code imports anywhere are made real, as far as they can be imported without torch. Then the
release is run on cases of tests/data/releases. Where it asks an inert part of sglang, that part is made real as well,
and the release is run again, until no such question is left. Other questions that nothing answers are printed.

Exit code: 0 recorded, 1 recorded with unanswered questions, 2 a wheel could not be had; nothing is written then.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that a bare checkout will do

from release_cases import CASES, MODELS, machines, random_lines, read_cases

from sglang_hydra.arguments.tables.order import release_key
from sglang_hydra.releases import wheels
from sglang_hydra.releases.case import Case
from sglang_hydra.releases.parts import SMALL, TAIL, is_wanted, runs
from sglang_hydra.releases.process import Child, ChildFailed
from sglang_hydra.releases.records import RECORDS, Record, Wheel, WheelFile
from sglang_hydra.text.errors import MachineError

SHARED = {"msgspec": "0.22.0", "packaging": "26.3", "typing_extensions": "4.16.0"}
"""The same for each release: no value depends on them."""
BUILDS = [
    (f"3.{minor}", platform)
    for minor in (10, 11, 12, 13)
    for platform in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_11_0_arm64", "macosx_11_0_x86_64")
]
"""Interpreters and systems for which compiled libraries are recorded."""
READERS = ("transformers", "sglang")
MOST_TURNS = 12
RANDOM_LINES = 120
READ_LINES = 12
READ_FILES = RECORDS.with_name("read_files.txt")
_ON_TYPE = re.compile(r"model_type|in str\(e\)")  # of a config, or of what its reading raised
_NAMED = re.compile(r"sglang\.srt\.(?:layers|distributed)[\w.]*")


class NotHad(Exception):
    """A wheel that the registry did not give; the text says which and why."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="+")
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help="where wheels are kept; otherwise they are not")
    parser.add_argument("--parts", action="store_true", help="only find the real parts of recorded releases")
    parser.add_argument("--types", action="store_true", help="only read the model types of recorded releases")
    options = parser.parse_args(argv)
    content = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {"libraries": {}, "releases": {}}
    unanswered = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.wheels or Path(scratch)
        for version in options.version:
            try:
                if options.types:
                    add_model_types(version, types_read(recorded(version, content)), content["model_types"])
                else:
                    unanswered += parts(version, content) if options.parts else record(version, folder, content)
            except (NotHad, MachineError, ChildFailed) as failure:
                print(f"record_release: {version}: {failure}", file=sys.stderr)
                return 2
            RECORDS.write_text(written(content), encoding="utf-8")
    return 1 if unanswered else 0


def record(version: str, folder: Path, content: dict[str, Any]) -> int:
    """Adds one release to ``content``; answers with the number of cases that it left unanswered."""
    file = one_wheel(folder, f"sglang=={version}", "--python-version", "3.12")
    with zipfile.ZipFile(file) as archive:
        pinned = requirement(archive, "transformers")
    transformers = one_wheel(folder, f"transformers{pinned}", "--python-version", "3.12")
    with zipfile.ZipFile(transformers) as archive:
        hub = one_wheel(folder, f"huggingface_hub{requirement(archive, 'huggingface-hub')}", "--python-version", "3.12")
    libraries = {title(one): {one.name: facts_of(one)} for one in (transformers, hub)}
    for name, wanted in SHARED.items():
        known = content["libraries"].get(f"{name} {wanted}")
        libraries[f"{name} {wanted}"] = known or {one.name: facts_of(one) for one in builds(folder, name, wanted)}
    content["libraries"] |= libraries
    before = content["releases"].get(version, {}).get("real_parts", [])
    row: dict[str, Any] = {"files": {file.name: facts_of(file)}, "libraries": list(libraries), "real_parts": before}
    made = as_record(version, row, libraries)
    for wheel in wheels.missing(made):
        found = [folder / one.name for one in wheel.files if (folder / one.name).is_file()]
        if len(found) == 1:
            wheels.take(found[0], wheel)
    wheels.fetch(made, print)
    add_files_read(made)
    row["files"] = {file.name: facts_of(file)}
    content["libraries"] |= {title(one): {one.name: facts_of(one)} for one in (transformers, hub)}
    content["releases"][version] = row
    add_model_types(version, types_read(made), content.setdefault("model_types", {}))
    return parts(version, content)


def parts(version: str, content: dict[str, Any]) -> int:
    """Finds the real parts of a release whose wheels are here; answers with the number of cases left unanswered."""
    row = content["releases"][version]
    row["real_parts"], left = real_parts(recorded(version, content))
    print(
        f"{version}: {len(row['real_parts'])} real parts, {len(left)} cases unanswered", *sorted(set(left)), sep="\n  "
    )
    return len(left)


def types_read(release: Record) -> set[str]:
    """The model types that a release reads without code from a model's repository: the keys of its transformers'
    mapping, and what its own config classes have as ``model_type`` or its reader of configs names."""
    library, own = (wheels.place_of(next(one for one in release.wheels if one.name == name)) for name in READERS)
    assert library is not None
    assert own is not None
    auto = (library / "transformers/models/auto" / name for name in ("configuration_auto.py", "auto_mappings.py"))
    mapping = (node for file in auto if file.is_file() for node in assigned(file, "CONFIG_MAPPING_NAMES"))
    types = {key for node in mapping for key in first_strings(node)}
    home = own / "sglang" / "srt"
    configs = home.glob("configs/**/*.py")
    types |= {ast.literal_eval(node) for file in configs for node in assigned(file, "model_type") if is_text(node)}
    readers = [*home.glob("hf_transformers_utils.py"), *home.glob("utils/hf_transformers*/**/*.py")]
    readers += home.glob("utils/hf_transformers*.py")
    nodes = (node for file in readers for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    asked = (node for node in nodes if isinstance(node, ast.Compare) and _ON_TYPE.search(ast.unparse(node)))
    return types | {text.value for node in asked for text in ast.walk(node) if is_text(text)} - {"model_type"}


def assigned(file: Path, name: str) -> Iterator[ast.expr]:
    """What a source assigns to ``name``, at its top or in a class."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            if value is not None:
                yield value


def first_strings(node: ast.expr) -> Iterator[str]:
    """The keys of a dict that is written as one, or as a call with pairs."""
    if isinstance(node, ast.Call):
        for part in node.args:
            yield from first_strings(part)
    keys = node.keys if isinstance(node, ast.Dict) else [pair.elts[0] for pair in getattr(node, "elts", ())]
    yield from (key.value for key in keys if isinstance(key, ast.Constant))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def add_model_types(version: str, types: set[str], table: dict[str, list[str]]) -> None:
    """Writes into ``table`` which types ``version`` is the first to read. Releases are added from the oldest on."""
    ranks = {known: release_key(known) or ((), 0, 0) for known in {*table, version}}
    earlier = {name for known, names in table.items() if ranks[known] < ranks[version] for name in names}
    table[version] = sorted(types - earlier)
    for known in sorted(table, key=lambda one: ranks[one]):
        if ranks[known] > ranks[version]:
            table[known] = sorted(set(table[known]) - types)


def recorded(version: str, content: Mapping[str, Any]) -> Record:
    return as_record(version, content["releases"][version], content["libraries"])


def as_record(version: str, row: Mapping[str, Any], libraries: Mapping[str, Any]) -> Record:
    def wheel(of: str, files: Mapping[str, Sequence[Any]]) -> Wheel:
        name, _, number = of.partition(" ")
        return Wheel(name, number, tuple(WheelFile(file, *facts) for file, facts in files.items()))

    others = tuple(wheel(name, libraries[name]) for name in row["libraries"])
    return Record(version, wheel(f"sglang {version}", row["files"]), others, tuple(row["real_parts"]))


def real_parts(release: Record) -> tuple[list[str], list[str]]:
    """The parts that have to be real, and the questions that are left, one for each case that has one."""
    real, texts = set(importable_parts(release)), []
    for _ in range(MOST_TURNS):
        made = Record(release.version, release.wheel, release.libraries, tuple(sorted(real)))
        texts = list(unanswered_texts(made))
        new = {part for text in texts for name in _NAMED.findall(text) if (part := module_of(made, name))} - real
        if not new:
            return sorted(real), list(unanswered_texts(made, is_last=True)) if texts else []
        print(f"{release.version}: made real: {' '.join(sorted(new))}", flush=True)
        real |= new
    return sorted(real), texts


def importable_parts(release: Record) -> list[str]:
    """The recorded parts, and of those that the argument code imports the ones that can be imported without torch."""
    found = sorted({*release.real_parts, *stated_parts(release)})
    while failing := set(failing_parts(release, found)):
        found = [part for part in found if part not in failing]
    return [part for part in found if not any(part.startswith(f"{other}.") for other in found)]


def stated_parts(release: Record) -> list[str]:
    """The modules below the inert parts that server_args.py, arg_groups and the model's config import, anywhere."""
    root = wheels.place_of(release.wheel)
    assert root is not None
    home = root / "sglang" / "srt"
    files = [home / "server_args.py", *home.glob("arg_groups/**/*.py"), home / "configs" / "model_config.py"]
    found = set()
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.ImportFrom) and _NAMED.fullmatch(node.module or ""):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {part for name in names if (part := module_of(release, name)) and part.count(".") > 2}
    return sorted(found)


_IMPORT = """
import contextlib, importlib, json, os, sys, tempfile
sys.path.insert(0, sys.argv[1])
from child.main import _load
from child.questions import Unanswered
options, facts = json.loads(sys.argv[2]), json.loads(sys.argv[3])
with tempfile.TemporaryDirectory() as scratch:
    with contextlib.redirect_stdout(sys.stderr):
        _load(options, facts, scratch)
        failing = []
        for part in options["real_parts"]:
            try:
                importlib.import_module(part)
            except (Exception, Unanswered) as error:
                failing.append(part)
                print(part, error, file=sys.stderr)
    print(json.dumps(failing))
"""


def failing_parts(release: Record, parts: Sequence[str]) -> Iterator[str]:
    """Those that cannot be imported on some kind of machine. Raises ChildFailed where the release cannot."""
    places = [str(place) for wheel in release.wheels if (place := wheels.place_of(wheel)) is not None]
    libraries = [wheel.name for wheel in release.libraries]
    options = {"release": places[0], "folders": places[1:], "libraries": libraries, "real_parts": list(parts)}
    cpu = {**machines()[0], "device": "cpu", "capability": None, "flashinfer": False, "triton_kernels": False}
    for machine in (*machines(), cpu):
        facts = Case((), {**machine, "seed": 42}).to_json()["machine"]
        words = [str(RECORDS.parent), json.dumps(options), json.dumps(facts)]
        command = [sys.executable, "-I", "-S", "-B", "-c", _IMPORT, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=places[0])
        if done.returncode:
            raise ChildFailed(f"it cannot be imported with {' '.join(parts)}: {done.stderr[-300:]}")
        yield from json.loads(done.stdout)


def unanswered_texts(release: Record, *, is_last: bool = False) -> Iterator[str]:
    """The questions of a release that nothing answered, one for each case that has one. Unless it is the last turn, a
    machine's cases end where an inert part was asked."""
    places = [place for wheel in release.wheels if (place := wheels.place_of(wheel)) is not None]
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    recipes = [case for case in read_cases(CASES) if case["release"] == "0.5.12"]
    lines = [case["argv"] for case in recipes]
    lines += random_lines(release.version, RANDOM_LINES, models)
    for machine in machines():
        facts = {**machine, "seed": 42}
        try:
            child = Child(release, places, Case((), facts).to_json()["machine"])
        except ChildFailed as failure:
            yield str(failure)
            continue
        accepted = 0
        for line in lines:
            named = {word: models[word] for word in line if word in models}
            try:
                answer = child.ask(Case(tuple(line), facts, named).to_json())
            except ChildFailed as failure:
                yield f"{failure}: {' '.join(line)}"
                break
            if "unanswered" in answer:
                yield str(answer["unanswered"])
                if _NAMED.search(str(answer["unanswered"])) and not is_last:
                    break
            accepted += bool(answer.get("ok"))
        if not accepted and is_last:
            yield f"{machine['name']}: no case was accepted, the last one for {answer}"
        child.end()
        lines = lines[: len(recipes)] + lines[-RANDOM_LINES // 4 :]


def module_of(release: Record, name: str) -> str | None:
    """The longest beginning of a dotted name that is a module of the release; None for an inert part as a whole."""
    root = wheels.place_of(release.wheel)
    assert root is not None
    words = name.split(".")
    for length in range(len(words), 3, -1):
        path = root.joinpath(*words[:length])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(words[:length])
    return None


def one_wheel(folder: Path, wanted: str, *tags: str) -> Path:
    """The wheel of a requirement, in ``folder``; one that is there is not downloaded again."""
    match = re.fullmatch(r"(\w+)==([\w.]+)", wanted)
    found = sorted(folder.glob(f"{match[1]}-{match[2]}-*.whl")) if match else []
    if found:
        return found[0]
    with tempfile.TemporaryDirectory() as scratch:
        words = ("download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", scratch, *tags, wanted)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotHad(f"pip {' '.join(words)}: {done.stderr.strip()[-300:]}")
        file = next(Path(scratch).glob("*.whl"))
        return Path(shutil.copy(file, folder))


def builds(folder: Path, name: str, version: str) -> list[Path]:
    """The wheels of one version for every interpreter and system; one where it is pure Python."""
    pure = sorted(folder.glob(f"{name}-{version}-py3-none-any.whl"))
    if pure:
        return pure
    found = set()
    for python, platform in BUILDS:
        tags = ("--python-version", python, "--platform", platform, "--implementation", "cp")
        with tempfile.TemporaryDirectory() as scratch:
            try:
                one = one_wheel(Path(scratch), f"{name}=={version}", *tags)
            except NotHad as failure:
                print(f"record_release: {failure}", file=sys.stderr)
                continue
            found.add(Path(shutil.copy(one, folder)))
        if one.name.endswith("none-any.whl"):
            break
    return sorted(found)


def requirement(archive: zipfile.ZipFile, name: str) -> str:
    """The versions of ``name`` that a wheel asks for, as ``==5.19.0``."""
    metadata = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
    for line in archive.read(metadata).decode("utf-8").splitlines():
        match = re.fullmatch(rf"Requires-Dist: {name}\s*\(?([^;)]*)\)?(?:;.*)?", line)
        if match and match[1].strip():
            return match[1].strip()
    raise NotHad(f"{metadata} does not name {name}")


def title(file: Path) -> str:
    name, version, *_ = file.name.split("-")
    return f"{name} {version}"


def facts_of(file: Path) -> list[Any]:
    """A file as releases.json has it: its sha256 and size, the sha256 of its list, and how much of it is fetched."""
    with zipfile.ZipFile(file) as archive:
        listed = archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD")))
    part = part_size(str(file), wheels.read_files())
    return [wheels.sha256_of(file), file.stat().st_size, hashlib.sha256(listed).hexdigest(), part]


_READ = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from child import sealed
from child.main import _load
options, facts, cases = json.load(sys.stdin)
names, read = set(), sealed.Sealed.read
def noted(self, path):
    names.add(path)
    return read(self, path)
sealed.Sealed.read = noted
answers = os.dup(1)
os.dup2(2, 1)
runner = _load(options, facts, options["scratch"])[0]
for case in cases:
    runner.run(case)
os.write(answers, json.dumps(sorted(names)).encode())
"""


def files_read(release: Record) -> set[str]:
    """The files of its wheels that a release opens, over cases on each kind of machine."""
    places = [place for wheel in release.wheels if (place := wheels.place_of(wheel)) is not None]
    models = json.loads(MODELS.read_text(encoding="utf-8"))
    lines = [case["argv"] for case in read_cases(CASES) if case["release"] == "0.5.12"]
    lines += random_lines(release.version, READ_LINES, models)
    found: set[str] = set()
    for machine in machines():
        facts = Case((), {**machine, "seed": 42}).to_json()["machine"]
        cases = [
            {**Case(tuple(line), facts, {word: models[word] for word in line if word in models}).to_json()}
            for line in lines
        ]
        with tempfile.TemporaryDirectory() as above:
            scratch = Path(above, "SCRATCH")
            scratch.mkdir()
            options = {
                "release": str(places[0]),
                "folders": [str(place) for place in places[1:]],
                "libraries": [wheel.name for wheel in release.libraries],
                "real_parts": list(release.real_parts),
                "lists": {str(place): wheel.lists for place, wheel in zip(places, release.wheels, strict=True)},
                "scratch": str(scratch),
                "codes": "",
                "key": "",
            }
            asked = json.dumps([options, facts, cases])
            command = [sys.executable, "-I", "-S", "-c", _READ, str(RECORDS.parent)]
            done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChildFailed(f"its files cannot be found: {done.stderr[-300:]}")
        for place in (place for place, wheel in zip(places, release.wheels, strict=True) if wheel.size > SMALL):
            found |= {
                name.removeprefix(f"{place}/") for name in json.loads(done.stdout) if name.startswith(f"{place}/")
            }
    return {name for name in found if not is_wanted(name, ())}


def add_files_read(release: Record) -> None:
    """Adds what a release opens to the files that are fetched of each wheel."""
    READ_FILES.write_text(
        "\n".join(sorted({*wheels.read_files(), *files_read(release)} - {""})) + "\n", encoding="utf-8"
    )
    wheels.read_files.cache_clear()


def written(content: Mapping[str, Any]) -> str:
    """releases.json: one release a line, one file of a library a line."""
    used = {name for row in content["releases"].values() for name in row["libraries"]}
    libraries = {name: content["libraries"][name] for name in sorted(used)}
    rows = sorted(content["releases"].items(), key=lambda item: release_key(item[0]) or ((), 0, 0))
    lines = ['{"schema": "sglang_hydra.releases/1",', '"libraries": {']
    lines += [",\n".join(f"{json.dumps(name)}: {json.dumps(files)}" for name, files in libraries.items())]
    lines += ["},", '"releases": {']
    lines += [",\n".join(f"{json.dumps(version)}: {json.dumps(row)}" for version, row in rows)]
    types = [(version, content["model_types"][version]) for version, _ in rows if version in content["model_types"]]
    lines += ["},", '"model_types": {']
    lines += [",\n".join(f"{json.dumps(version)}: {json.dumps(names)}" for version, names in types), "}}"]
    return "\n".join(lines) + "\n"


def part_size(path: str, read: Collection[str]) -> int:
    """How many bytes of a wheel are fetched."""
    with zipfile.ZipFile(path) as archive:
        contents = os.path.getsize(path) - archive.start_dir
    return max(contents, min(TAIL, os.path.getsize(path))) + sum(end - start for start, end in runs(path, read))


if __name__ == "__main__":
    sys.exit(main())
