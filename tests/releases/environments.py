"""Environments with a small SGLang in them: what the authority is asked in, without the real package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SERVER_ARGS = """
import json
import os
import subprocess
import sys

import sgl_kernel
import torch
from sgl_kernel.deep import something

SEEN_AT_IMPORT = torch.cuda.is_available()
print("a line that is no answer")


class Args:
    def __init__(self, values):
        self.values = values
        self.resolved = False

    def resolve_once(self):
        values, path = self.values, self.values["model_path"]
        if values.get("max_running_requests") == 666:
            raise RuntimeError("beast")
        if values.get("max_running_requests") == 667:
            os._exit(9)
        if values.get("max_running_requests") == 668:
            import sglang.srt.gone
        if values.get("max_running_requests") == 669:
            if sgl_kernel.is_fast():
                values["fast"] = True
        config = json.load(open(os.path.join(path, "config.json")))
        run = subprocess.run(["nvidia-smi", "--query-gpu=memory.total"], capture_output=True, text=True)
        values.update(
            tokenizer_path=path,
            device="cuda" if torch.cuda.is_available() else "cpu",
            served_model_name=config["architectures"][0],
            mem_fraction_static=float(run.stdout or 0) / 1e6,
            page_size=torch.cuda.get_device_properties(0).major if SEEN_AT_IMPORT else 1,
            watchdog_timeout=float(os.environ.get("SGLANG_WATCHDOG", 300)),
            new_in_this_release=torch.version.cuda,
            api_key=None,
        )
        os.environ["SGLANG_LEFT"] = "1"
        self.resolved = True

    def check_server_args(self):
        assert self.resolved
        if self.values.get("tp_size") == 7:
            raise ValueError("7 is odd")

    def resolved_dict(self):
        return {**self.values, "left": os.environ.get("SGLANG_LEFT"), "kinds": {"b", "a"}, "odd": object,
                "variables": sorted(os.environ)}


def prepare_server_args(argv):
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path")
    parser.add_argument("--random-seed", type=int)
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--max-running-requests", type=int)
    parser.add_argument("--stream-interval", type=int, choices=[1, 2], default=1)
    return Args(vars(parser.parse_args(argv)))
"""


ENDS = "import os; os._exit(77)"


def environment(folder: Path, version: str, files: dict[str, str] | None = None) -> Path:
    """A virtual environment of this interpreter that has SGLang ``version`` with these modules, and a transformers.

    Nothing else of it may be run: it has a torch, a sitecustomize and a .pth file that end the process.
    """
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    modules = {
        **dict.fromkeys(("sglang/__init__.py", "sglang/srt/__init__.py", "transformers/__init__.py"), ""),
        **dict.fromkeys(("torch/__init__.py", "sitecustomize.py", "ends.pth", "argparse.py"), ENDS),
        **({"sglang/srt/server_args.py": SERVER_ARGS} if files is None else files),
    }
    for name, number in {"sglang": version, "transformers": "5.19.0"}.items():
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
        modules[f"{name}-{number}.dist-info/METADATA"] = text
    for name, content in modules.items():
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    (folder / "bin").mkdir(exist_ok=True)
    home = os.path.dirname(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    return folder
