"""``python -m sglang_hydra``: the same as the command sglang-hydra."""

import os
import sys

# -m puts the working directory first on the path: it may be an untrusted checkout with a yaml.py.
if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

from sglang_hydra.start import main

sys.exit(main())
