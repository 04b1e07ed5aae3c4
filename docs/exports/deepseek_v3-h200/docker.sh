#!/usr/bin/env bash
# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 8 x h200: plan 130978535e2c30c3
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export docker gpu=h200 model=deepseek_v3 tp_size=8 random_seed=42
# Made for: gpu=h200 engine.version=0.5.2 plan=130978535e2c30c3
#
# Inside the container the server listens on every address (0.0.0.0).
# It is published on 127.0.0.1:30000 of the host alone; host=0.0.0.0 opens it.
# The image holds CUDA 12.6; the host needs driver 560.28.03 or newer. Source: DaoCloud/public-image-mirror#43892.
set -euo pipefail

image=lmsysorg/sglang:v0.5.2-cu126
cache=${HF_HOME:-$HOME/.cache/huggingface}
mkdir -p "$cache"

exec docker run \
  --rm --init --name sglang-deepseek-v3 \
  --stop-timeout 12 \
  --gpus all \
  --ipc=host --shm-size=32g --ulimit memlock=-1 --ulimit stack=67108864 \
  --publish 127.0.0.1:30000:30000 \
  --volume "$cache":/cache/huggingface \
  --env HF_TOKEN \
  --env HF_HOME=/cache/huggingface \
  "$image" \
  python3 -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3 \
    --host 0.0.0.0 \
    --random-seed 42 \
    --tp-size 8
