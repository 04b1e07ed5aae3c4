"""``gpus``: shows the GPU classes of ``gpu=``, with the code of ``models``."""

from sglang_hydra.cli.models import run as run
