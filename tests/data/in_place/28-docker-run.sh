#!/bin/sh
# docker run with lmsysorg/sglang:v0.5.8
docker run --gpus all --ipc=host -p 30000:30000 \
  -v ~/.cache/huggingface:/models -e HF_HOME=/models \
  lmsysorg/sglang:v0.5.8 \
  python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \
  --host 0.0.0.0 --cuda-graph-max-bs 12   # few users
