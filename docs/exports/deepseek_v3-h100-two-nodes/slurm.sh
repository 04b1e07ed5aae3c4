#!/usr/bin/env bash
#SBATCH --job-name=sglang-DeepSeek-V3
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --no-requeue
# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 2 nodes, each with 8 x h100: plan 12e41b3d067bdd8a
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export slurm gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2 random_seed=42
# Made for: gpu=h100 engine.version=0.5.2 plan=12e41b3d067bdd8a
#
# Submit it with: sbatch THIS_FILE
set -euo pipefail

python=${SGLANG_PYTHON:-python}

# Node 0 is the first node of the job; its address is the one by which Slurm reaches it.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
address=$(scontrol --oneliner show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p' || true)
head=${address:-$first}:$((20000 + SLURM_JOB_ID % 9000))
echo "node 0 is $first; the nodes meet at $head, the server answers on port 30000"

# shellcheck disable=SC2016
srun --ntasks-per-node=1 --kill-on-bad-exit=1 bash -c 'exec "$@" --node-rank "$SLURM_PROCID"' rank \
  "$python" -m sglang.launch_server \
    --model-path deepseek-ai/DeepSeek-V3 \
    --random-seed 42 \
    --tp-size 16 \
    --nnodes 2 \
    --dist-init-addr "$head"
