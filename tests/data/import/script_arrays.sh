#!/usr/bin/env bash
#SBATCH --nodes=1
set -euo pipefail
MODEL=${MODEL:-openai/gpt-oss-120b}
TP=4
export NCCL_DEBUG=WARN
export RESULTS=/results
FLAGS=(
  --model-path "$MODEL"   # the checkpoint
  --tp-size "$TP"
  --max-running-requests $((TP * 64))
)
if [[ "${RADIX:-off}" == off ]]; then
  FLAGS+=(--disable-radix-cache)
fi
nohup python3 -m sglang.launch_server "${FLAGS[@]}" --log-level warning > server.log 2>&1 &
until curl -s localhost:30000/health; do sleep 5; done
python3 -m sglang.bench_serving --model "$MODEL" --num-prompts 100
