#!/bin/bash
CKPT_ARGS=(--hf-checkpoint Qwen/Qwen3-30B-A3B)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 8
   --sglang-mem-fraction-static 0.7
   --sglang-enable-ep-moe
   --sglang-cuda-graph-bs 1 2 4 8
   --sglang-server-concurrency 512
   --sglang-router-policy round_robin
)
ray job submit --address http://127.0.0.1:8265 -- python3 train.py --actor-num-gpus-per-node 8 --colocate \
   ${CKPT_ARGS[@]} ${SGLANG_ARGS[@]}
