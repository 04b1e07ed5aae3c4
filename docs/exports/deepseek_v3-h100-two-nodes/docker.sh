#!/usr/bin/env bash
# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 2 nodes, each with 8 x h100: plan 12e41b3d067bdd8a
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export docker gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2 random_seed=42
# Made for: gpu=h100 engine.version=0.5.2 plan=12e41b3d067bdd8a
#
# Inside the container the server listens on every address (0.0.0.0).
# The containers use the network of their hosts: who can reach a host reaches the server.
# The image holds CUDA 12.6; the host needs driver 560.28.03 or newer. Source: DaoCloud/public-image-mirror#43892.
#
# Run it on each of 2 nodes; the server answers on node 0.
#   on node 0: NODE_RANK=0 HEAD_ADDRESS=ADDRESS bash THIS_FILE
#   on node 1: NODE_RANK=1 HEAD_ADDRESS=ADDRESS bash THIS_FILE
# ADDRESS is node 0's, as the others reach it.
set -euo pipefail

: "${NODE_RANK:?the number of this node, from 0 to 1}"
: "${HEAD_ADDRESS:?the address of node 0, as the other nodes reach it}"

image=lmsysorg/sglang:v0.5.2-cu126
cache=${HF_HOME:-$HOME/.cache/huggingface}
mkdir -p "$cache"

exec docker run \
  --rm --init --name sglang-deepseek-v3 \
  --stop-timeout 12 \
  --gpus all \
  --ipc=host --shm-size=32g --ulimit memlock=-1 --ulimit stack=67108864 \
  --network=host \
  --volume "$cache":/cache/huggingface \
  --env HF_TOKEN \
  --env HF_HOME=/cache/huggingface \
  "$image" \
  python3 -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3 \
    --host 0.0.0.0 \
    --random-seed 42 \
    --tp-size 16 \
    --nnodes 2 \
    --dist-init-addr "${HEAD_ADDRESS}:20000" \
    --node-rank "$NODE_RANK"
