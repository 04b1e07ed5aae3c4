#!/bin/bash
set -e
pip install -q "sglang[all]==0.5.9"
exec python -m sglang.launch_server --model-path Qwen/Qwen3-8B \
  --speculative-algorithm NGRAM --speculative-num-draft-tokens 8 \
  --cuda-graph-max-bs 12
