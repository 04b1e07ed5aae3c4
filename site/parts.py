"""Writes the planner's Python for the page: Pyodide, what every plan imports, and the parts that come when needed.

What a plan imports is byte code, made by Pyodide itself (compile.js) from what it imported for the form's questions.
Every file is packed, for hosts that compress nothing, and has the hash of its content in its name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PYODIDE = HERE / "node_modules" / "pyodide"
LIBRARY, ARCHIVE = "lib/python3.13", "lib/python313.zip"
SITE = f"{LIBRARY}/site-packages"
DISTRIBUTIONS = ("hydra-core", "omegaconf", "antlr4-python3-runtime", "PyYAML", "packaging")
"""What planning imports. Rich and pynvml are left out: neither is used where there is no terminal and no GPU."""
_CODE = (".py", ".yaml", ".json", ".txt", ".bash", ".zsh", ".j2", ".gz", ".interp", ".tokens")
_READ = (f"{SITE}/sglang_hydra/releases/child/", f"{SITE}/page_child/")
"""Modules that the page hands to another Python: as they are."""
_ANSWERS = f"{SITE}/sglang_hydra/releases/recorded_answers/"
_OF_PART = {"refusals": f"{SITE}/sglang_hydra/releases/refusals"}
"""Files that come together, and not at first: a module and its data."""

FIRST = "packages"
RUNTIME = ("pyodide.asm.js", "pyodide.asm.wasm")

Files = Mapping[str, bytes]


def write_packed(out: Path, name: str, content: bytes) -> str:
    """Writes a file compressed; returns its name below ``out``. Not as .gz: some hosts say of such a name that the
    browser is to unpack it."""
    packed = gzip.compress(content, 9, mtime=0)
    named = f"{name}-{hashlib.sha256(packed).hexdigest()[:10]}.bin"
    (out / named).parent.mkdir(parents=True, exist_ok=True)
    (out / named).write_bytes(packed)
    return named


def joined(files: Files, folders: Iterable[str] = ()) -> bytes:
    """Returns files as one: the length of a JSON head, the head with all folders and each file's name and size, and
    the files. Equal input gives equal bytes."""
    names = sorted({*folders, *(str(PurePosixPath(name).parent) for name in files)})
    head = json.dumps({"folders": names, "files": [[name, len(files[name])] for name in sorted(files)]}).encode()
    return len(head).to_bytes(4, "big") + head + b"".join(files[name] for name in sorted(files))


def zipped(files: Files) -> bytes:
    """Returns an archive without compression. Equal input gives equal bytes."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), files[name])
    return made.getvalue()


def loosened(file: Path) -> bytes:
    """Returns the file's bytes; a gzip file without compression, so that releases' equal parts are sent once. Where it
    has several members, the first says how long the others are (sglang_hydra/releases/recorded.py)."""
    content, members = file.read_bytes(), []
    if file.suffix != ".gz":
        return content
    while content:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        members.append(gzip.compress(member.decompress(content), 0, mtime=0))
        content = member.unused_data
    if len(members) > 1:
        members[0] = gzip.compress(json.dumps([len(member) for member in members[1:]]).encode(), 0, mtime=0)
    return b"".join(members)


def package_files() -> dict[str, bytes]:
    """Returns the files of an installed wheel of this package, and of what it needs."""
    files: dict[str, bytes] = {}
    for folder, inside in (
        ("sglang_hydra", "sglang_hydra"),
        ("conf", "sglang_hydra/conf"),
        ("hydra_plugins/sglang_hydra", "hydra_plugins/sglang_hydra"),
    ):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                files[f"{inside}/{file.relative_to(ROOT / folder).as_posix()}"] = loosened(file)
    own = HERE / "python"
    files |= {file.relative_to(own).as_posix(): file.read_bytes() for file in sorted(own.rglob("*.py"))}
    for name in DISTRIBUTIONS:
        for item in distribution(name).files or ():
            inside = item.as_posix()
            if not inside.startswith("..") and (inside.endswith(_CODE) or inside.endswith(".dist-info/METADATA")):
                files[inside] = Path(str(item.locate())).read_bytes()
    return files


def module_of(file: str) -> str:
    """Returns the module in a file: ``a.b`` for ``a/b.py`` and ``a/b/__init__.py``."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Compiled(NamedTuple):
    """What Pyodide imported for the questions: the names of the modules, and their byte code by its file."""

    used: frozenset[str]
    library: Files
    packages: Files


def compiled(packages: Files, questions: list[dict[str, object]]) -> Compiled:
    """Asks the questions in Pyodide, under Node.js."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in packages.items():
            file = Path(folder, "packages", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        Path(folder, "questions.json").write_text(json.dumps(questions), encoding="utf-8")
        made = subprocess.run(["node", HERE / "compile.js", folder], stdout=subprocess.PIPE, check=True)

        def below(place: Path) -> dict[str, bytes]:
            return {file.relative_to(place).as_posix(): file.read_bytes() for file in place.rglob("*.pyc")}

        places = (Path(folder, "compiled", name) for name in ("library", "packages"))
        return Compiled(frozenset(json.loads(made.stdout.splitlines()[-1])), *map(below, places))


def parted(library: Files, packages: Files, made: Compiled, newest: str) -> tuple[Files, dict[str, dict[str, bytes]]]:
    """Returns the archive of the standard library, and the parts: FIRST is loaded at first, as the archive is; another
    when one of its modules or files is needed. Only ``encodings`` is in two of them: page_late.py knows."""
    archive: dict[str, bytes] = {}
    parts: dict[str, dict[str, bytes]] = {FIRST: {}}
    tops = {name.partition(".")[0] for name in made.used}
    for name, content in library.items():
        module = module_of(name)
        top = module.partition(".")[0].partition("/")[0]
        if f"{name}c" in made.library:
            archive[f"{name}c"] = made.library[f"{name}c"]
        elif top in tops and top != "encodings":
            archive[name] = content
        else:
            parts.setdefault("library", {})[f"{LIBRARY}/{name}"] = content
    for name, content in packages.items():
        file = f"{SITE}/{name}"
        data_of = [part for part, folder in _OF_PART.items() if file.startswith(folder)]
        if file.startswith(_ANSWERS) and file.endswith(".gz") and newest not in file:
            part = f"answers-{Path(file).name.removesuffix('.json.gz')}"
        elif data_of:
            part = data_of[0]
        elif f"{name}c" in made.packages and not file.startswith(_READ):
            file, content, part = f"{file}c", made.packages[f"{name}c"], FIRST
        else:
            part = "rest" if file.endswith(".py") and not file.startswith(_READ) else FIRST
        parts.setdefault(part, {})[file] = content
    late = [(part, file) for part, files in parts.items() if part != FIRST for file in files]
    table = {
        "modules": {module_of(file.removeprefix(f"{SITE}/").removeprefix(f"{LIBRARY}/")): part
                    for part, file in late if file.endswith(".py")},
        "files": {f"/{file}": part for part, file in late if part.startswith("answers-")},
    }  # fmt: skip
    parts[FIRST][f"{SITE}/page_late.json"] = json.dumps(table).encode()
    return archive, parts


class Written(NamedTuple):
    """``names`` of the packed files by what they hold, and the ``first`` of them, which every plan needs."""

    names: dict[str, str]
    first: list[str]


def write_python(out: Path, questions: list[dict[str, object]]) -> Written:
    """Writes Pyodide, the archive of its standard library and the parts below ``out``."""
    from sglang_hydra.releases.records import newest_release

    (out / "python").mkdir(parents=True)
    shutil.copy(PYODIDE / "pyodide.mjs", out / "python")
    lock = json.loads((PYODIDE / "pyodide-lock.json").read_text(encoding="utf-8"))
    (out / "python" / "lock.json").write_text(json.dumps({"info": lock["info"], "packages": {}}), encoding="utf-8")
    with zipfile.ZipFile(PYODIDE / "python_stdlib.zip") as archive:
        library = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    packages = package_files()
    first, parts = parted(library, packages, compiled(packages, questions), newest_release())
    contents = {name: (PYODIDE / name).read_bytes() for name in RUNTIME}
    contents |= {"stdlib.zip": zipped(first)} | {part: joined(files) for part, files in parts.items()}
    names = {name: write_packed(out, f"python/{name}", content) for name, content in contents.items()}
    return Written(names, [names[name] for name in (*RUNTIME, "stdlib.zip", FIRST)])
