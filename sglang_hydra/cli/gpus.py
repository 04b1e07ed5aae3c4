"""``gpus``: the classes that ``gpu=`` knows, shown as ``models`` shows its presets."""

from sglang_hydra.cli.models import run as run
