"""The reader of releases on two small wheels: the older layout, with a parser by hand, and the annotated one."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.commands import must_follow

REPOSITORY = Path(__file__).resolve().parents[2]

OLD: dict[str, str] = {
    "sglang/srt/server_args.py": """
import dataclasses
import sys
from typing import List, Literal, Optional, Union

from sglang.srt.parsers import Detector
from .choices import BACKENDS

LOAD = ["auto", "pt"]
raise RuntimeError("nothing of a release may be run")


@dataclasses.dataclass
class ServerArgs:
    model_path: str
    load_format: str = "auto"
    tp_size: int = 1
    limit: Optional[int] = sys.maxsize
    backend: Optional[str] = None
    parser: Optional[str] = None
    sizes: Optional[List[int]] = None
    mode: Literal["a", "b"] = "a"
    flag: bool = False
    names: List[str] = dataclasses.field(default_factory=lambda: list(BACKENDS[:0]))
    old_one: bool = False
    renamed: Union[int, None] = 4
    count: int = 2 ** 4
    folder: str = dataclasses.field(default_factory=list)

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True, help="x")
        parser.add_argument("--load-format", type=str, default=ServerArgs.load_format, choices=LOAD)
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
        parser.add_argument("--limit", type=int, default=ServerArgs.limit)
        known = list(Detector.TABLE.keys())
        parser.add_argument("--parser", type=str, choices=known, help=f"one of {known}")
        parser.add_argument("--backend", type=str, choices=BACKENDS + ["all"])
        parser.add_argument("--sizes", type=int, nargs="+")
        parser.add_argument("--mode", type=str, choices=["a", "b"])
        parser.add_argument("--flag", action="store_true")
        parser.add_argument("--names", type=json_list, nargs="*")
        parser.add_argument("--old-one", action="store_true")
        if True:
            parser.add_argument("--renamed", type=int)
        parser.add_argument("--count", type=int)
        parser.add_argument("--folder", type=str)
        parser.add_argument("--config", type=str, help="no argument of the server")

    @classmethod
    def from_cli_args(cls, args):
        args.tp_size = args.tensor_parallel_size
        return cls(**vars(args))
""",
    "sglang/srt/choices.py": 'BACKENDS = ["x", "y"]\nBACKENDS += ["z"]\n',
    "sglang/srt/parsers.py": 'class Detector:\n    TABLE = {"one": object, "two": object}\n',
    "sglang/srt/entrypoints/http_server.py": """
@app.get("/health")
@app.get("/info")
async def info(): ...

@app.api_route("/generate", methods=["POST", "PUT"])
async def generate(): ...

@app.post(os.environ.get("ROUTE", "/vertex"))
async def vertex(): ...
""",
    "sglang/srt/other.py": 'A = os.getenv("SGLANG_ONE")\nB = "SGLANG_TWO"\n# "not a name"\nC = "SGL_THREE"\n',
    "sglang/test/only.py": 'A = "SGLANG_OF_A_TEST"\n',
    "METADATA": """\
Metadata-Version: 2.1
Name: sglang
Version: 1.0
Requires-Python: >=3.10
Provides-Extra: srt
Requires-Dist: torch==2.8.0; extra == "srt"
Requires-Dist: torch==9.9.9; extra == "dev"
Requires-Dist: transformers==4.56.1
Requires-Dist: flashinfer_python[cu12]==0.3.1; sys_platform == "linux"

Text that is no header. Requires-Dist: nothing
""",
}

NEW: dict[str, str] = {
    "sglang/srt/server_args.py": '''
from sglang.srt.choices import Backend
from sglang.srt.groups.fields import Model, Serving
_INPUT_NAMESPACES = [Model, Serving]


def _names():
    from sglang.srt.parsers import NAMES
    return list(NAMES)


class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        choices = _names()
        parser.add_argument("--parser", type=str, choices=["auto"] + choices, default=_declared("parser"))
        parser.add_argument("--config", type=str)
        parser.add_argument("--flag", action=DeprecatedStoreTrueAction, new_flag="--no-flag", help="gone")
        parser.add_argument(
            "--renamed", action=DeprecatedAliasStoreAction, dest="new_name", new_flag="--new-name", type=int
        )
        parser.add_argument(
            "--old-one", action=DeprecatedAction, help="NOTE: please set `--backend` to 'x' instead."
        )
        parser.add_argument(
            "--piece", action=DeprecatedStoreConstAction, dest="backend", const_value=Backend.X, new_flag="--backend=x"
        )


ServerArgs = defstruct("ServerArgs", [])
''',
    "sglang/srt/groups/fields.py": '''
from typing import List, Literal, Optional
import argparse
from ..choices import BACKENDS, Backend


class Model:
    _NS_PATH = "model"
    derived = Derived(fn="x")
    hidden: ClassVar[int] = 3
    model_path: A[str, Arg(help="The path", aliases=["--model"])]
    load_format: A[str, Arg(help="x", choices=["auto", "pt", "dummy"])] = "auto"
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    limit: A[Optional[int], "A limit"] = None
    backend: A[Optional[str], Arg(help="x" + f"{y}", choices=BACKENDS)] = Backend.X
    sizes: A[Optional[List[int]], "Sizes"] = None
    mode: A[Literal["a", "b"], "The mode"] = "a"
    tri: A[Optional[bool], Arg(help="x", action=argparse.BooleanOptionalAction)] = None


class Serving:
    parser: A[Optional[str], NS("serving")] = None
    flag: A[bool, Arg(help="x", no_cli=True)] = False
    new_name: A[int | None, "A name"] = 4
    table: A[Optional[dict], Arg(help="x", type_parser=json.loads)] = None
    maybe: A[Optional[str], Arg(help="x", nargs="?", const="")] = None
    _internal: A[bool, Arg(no_cli=True)] = False
    names: A[List[str], "Names"] = msgspec.field(default_factory=list)
    machine: A[bool, "Computed"] = is_hip()
    count: A[int, "x"] = -1
''',
    "sglang/srt/choices.py": '''
class Backend:
    X = "x"
    ALL = (X,)
BACKENDS = ["x", "w"]
''',
    "sglang/srt/parsers.py": 'NAMES = ("one", "three")\n',
    "sglang/srt/environ.py": 'class Envs:\n    SGLANG_TWO = EnvBool(False)\n    SGLANG_NEW = EnvStr("x")\n',
    "sglang/srt/entrypoints/http_server.py": '''
@app.get("/health")
def health(): ...

@app.get("/server_info")
def info(): ...
''',
    "METADATA": "Name: sglang\nVersion: 1.1.post1\nRequires-Python: >=3.11\nRequires-Dist: torch (==2.13.0)\n",
    "entry_points.txt": "[console_scripts]\nsglang = sglang.cli.main:main\n\n[other]\nx = y\n",
}  # fmt: skip


def wheel(folder: Path, files: dict[str, str]) -> Path:
    version = files["METADATA"].partition("Version: ")[2].partition("\n")[0].strip()
    if "Version: 1.0" in files["METADATA"]:
        version = "1.0"
    path = folder / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            inside = name if "/" in name else f"sglang-{version}.dist-info/{name}"
            archive.writestr(inside, content)
    return path


def read(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/read_releases.py", *map(str, words)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, encoding="utf-8", timeout=250, check=False)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The table of both wheels, which were named newest first."""
    folder = tmp_path_factory.mktemp("wheels")
    out = folder / "table.json"
    done = read(wheel(folder, NEW), wheel(folder, OLD), "--out", out)
    assert done.returncode == 0, done.stderr
    assert "2 releases" in done.stdout
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_releases_stand_oldest_first(table: dict[str, Any]) -> None:
    assert table["schema"] == "sglang_hydra.versions/1"
    assert [row["version"] for row in table["releases"]] == ["1.0", "1.1.post1"]
    must_follow(table, "versions")


def test_a_parser_made_by_hand_is_read_without_being_run(table: dict[str, Any]) -> None:
    added = table["releases"][0]["arguments"]["added"]
    assert added == {
        "model_path": {"type": "str", "flags": ["--model-path", "--model"]},
        "load_format": {"type": "str", "default": "auto", "choices": ["auto", "pt"]},
        "tp_size": {"type": "int", "default": 1, "flags": ["--tensor-parallel-size", "--tp-size"]},
        "limit": {"type": "int | None", "default": 9223372036854775807},
        "backend": {"type": "str | None", "default": None, "choices": ["x", "y", "z", "all"]},
        "parser": {"type": "str | None", "default": None, "choices": ["one", "two"]},
        "sizes": {"type": "list[int] | None", "default": None, "nargs": "+"},
        "mode": {"type": "str", "default": "a", "choices": ["a", "b"]},
        "flag": {"type": "bool", "default": False, "action": "store_true"},
        "names": {
            "type": "list[str]", "default": {"computed": "list(BACKENDS[:0])"}, "nargs": "*", "reader": "json_list",
        },
        "old_one": {"type": "bool", "default": False, "action": "store_true"},
        "renamed": {"type": "int | None", "default": 4},
        "count": {"type": "int", "default": 16},
        "folder": {"type": "str", "default": []},
    }  # fmt: skip


def test_annotated_fields_are_read_as_what_changed(table: dict[str, Any]) -> None:
    changes = table["releases"][1]["arguments"]
    assert changes["removed"] == ["old_one", "renamed", "folder"]
    assert changes["added"] == {
        "tri": {"type": "bool | None", "default": None, "action": "BooleanOptionalAction"},
        "new_name": {"type": "int | None", "default": 4},
        "table": {"type": "dict | None", "default": None, "reader": "json.loads"},
        "maybe": {"type": "str | None", "default": None, "nargs": "?", "const": ""},
        "_internal": {"type": "bool", "default": False, "flags": []},
        "machine": {"type": "bool", "default": {"computed": "is_hip()"}, "action": "store_true"},
    }
    assert changes["changed"] == {
        "load_format": {"choices": ["auto", "pt", "dummy"]},
        "limit": {"default": None},
        "backend": {"default": "x", "choices": ["x", "w"]},
        "parser": {"choices": ["auto", "one", "three"]},
        "flag": {"flags": [], "without": ["action"]},
        "names": {"default": [], "nargs": "+", "without": ["reader"]},
        "count": {"default": -1},
    }


def test_flags_that_are_only_still_accepted_say_what_to_use(table: dict[str, Any]) -> None:
    assert "old_flags" not in table["releases"][0]
    assert table["releases"][1]["old_flags"]["added"] == {
        "--flag": {"action": "DeprecatedStoreTrueAction", "field": "flag", "instead": "--no-flag", "value": True},
        "--renamed": {
            "action": "DeprecatedAliasStoreAction", "field": "new_name", "instead": "--new-name", "reader": "int",
        },
        "--old-one": {"action": "DeprecatedAction", "instead": "--backend", "value": "x"},
        "--piece": {
            "action": "DeprecatedStoreConstAction", "field": "backend", "instead": "--backend=x", "value": "x",
        },
    }  # fmt: skip


def test_variables_pages_commands_and_needs(table: dict[str, Any]) -> None:
    first, second = table["releases"]
    assert first["variables"] == {"added": ["SGLANG_ONE", "SGLANG_TWO", "SGL_THREE"]}
    assert second["variables"] == {"added": ["SGLANG_NEW"], "removed": ["SGLANG_ONE", "SGL_THREE"]}
    assert first["pages"] == {"added": ["GET /health", "GET /info", "POST /generate", "POST /vertex", "PUT /generate"]}
    assert second["pages"]["added"] == ["GET /server_info"]
    assert second["scripts"] == {"sglang": "sglang.cli.main:main"}
    assert first["needs"] == {
        "python": ">=3.10",
        "packages": {"flashinfer-python": "==0.3.1", "torch": "==2.8.0", "transformers": "==4.56.1"},
        "cuda": "12.8",
        "driver": "525.60.13",
    }
    assert second["needs"] == {
        "python": ">=3.11", "packages": {"torch": "==2.13.0"}, "cuda": "13.0", "driver": "580.65.06",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("gone.whl", None, "is no wheel"),
        ("text.whl", {"": "x"}, "is no wheel"),
        ("empty.whl", {}, "has no class ServerArgs"),
        ("other.whl", {"x-1.dist-info/METADATA": "Version: 1\n"}, "has no class ServerArgs"),
        ("bare.whl", {"x-1.dist-info/METADATA": "Version: 1\n", "sglang/srt/server_args.py": "class ServerArgs: ..."},
         "no fields that can be read"),
        ("nameless.whl", {"x-1.dist-info/METADATA": "A: 1\n", "sglang/srt/server_args.py":
         "class ServerArgs:\n    x: int = 1\n"}, "names no version"),
    ],
)  # fmt: skip
def test_what_is_no_release_is_named_and_the_old_table_stays(
    name: str, content: dict[str, str] | None, said: str, tmp_path: Path
) -> None:
    path, out = tmp_path / name, tmp_path / "table.json"
    out.write_text("before")
    if content == {"": "x"}:
        path.write_text("no archive")
    elif content is not None:
        with zipfile.ZipFile(path, "w") as archive:
            for inside, text in content.items():
                archive.writestr(inside, text)
    done = read(path, "--out", out)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert said in done.stderr
    assert out.read_text() == "before"
