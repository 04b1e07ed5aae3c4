# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 2 nodes, each with 8 x h100: plan 12e41b3d067bdd8a
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export slime gpu=h100 model=deepseek_v3 tp_size=16 nnodes=2 random_seed=42
# Made for: gpu=h100 engine.version=0.5.2 plan=12e41b3d067bdd8a
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 16
   --hf-checkpoint deepseek-ai/DeepSeek-V3
   --seed 42
)
python3 train.py "${SGLANG_ARGS[@]}"
