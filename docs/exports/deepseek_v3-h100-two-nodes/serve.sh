#!/usr/bin/env bash
# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 2 nodes, each with 8 x h100: plan 12e41b3d067bdd8a
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export shell gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2 random_seed=42
# Made for: gpu=h100 engine.version=0.5.2 plan=12e41b3d067bdd8a
#
# SGLANG_PYTHON names the interpreter that has SGLang 0.5.2.
#
# Run it on each of 2 nodes; the server answers on node 0.
#   on node 0: NODE_RANK=0 HEAD_ADDRESS=ADDRESS bash THIS_FILE
#   on node 1: NODE_RANK=1 HEAD_ADDRESS=ADDRESS bash THIS_FILE
# ADDRESS is node 0's, as the others reach it.
set -euo pipefail

: "${NODE_RANK:?the number of this node, from 0 to 1}"
: "${HEAD_ADDRESS:?the address of node 0, as the other nodes reach it}"

python=${SGLANG_PYTHON:-python}

exec "$python" -m sglang.launch_server \
  --model-path deepseek-ai/DeepSeek-V3 \
  --random-seed 42 \
  --tp-size 16 \
  --nnodes 2 \
  --dist-init-addr "${HEAD_ADDRESS}:20000" \
  --node-rank "$NODE_RANK"
