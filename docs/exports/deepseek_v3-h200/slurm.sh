#!/usr/bin/env bash
#SBATCH --job-name=sglang-DeepSeek-V3
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --no-requeue
# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 8 x h200: plan 130978535e2c30c3
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export slurm gpu=h200 model=deepseek_v3 tp_size=8 random_seed=42
# Made for: gpu=h200 engine.version=0.5.2 plan=130978535e2c30c3
#
# Submit it with: sbatch THIS_FILE
set -euo pipefail

python=${SGLANG_PYTHON:-python}

srun --ntasks-per-node=1 --kill-on-bad-exit=1 \
  "$python" -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3 \
    --random-seed 42 \
    --tp-size 8
