"""Plan, check and launch an SGLang server: ``python serve.py gpu=h200 model=deepseek_v3 tp_size=8``."""

import sys

from sglang_hydra.start import main

if __name__ == "__main__":
    sys.exit(main())
