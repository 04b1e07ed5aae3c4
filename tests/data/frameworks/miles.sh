#!/bin/bash
ROLLOUT="--rollout-num-gpus-per-engine 2 --rollout-batch-size 32"
python3 train.py --hf-checkpoint Qwen/Qwen3-8B $ROLLOUT --sglang-mem-fraction-static 0.8 --sglang-data-parallel-size 1 --seed 7
