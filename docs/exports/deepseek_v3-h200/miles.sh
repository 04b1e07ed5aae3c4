# SGLang 0.5.2 serving deepseek-ai/DeepSeek-V3 on 8 x h200: plan 130978535e2c30c3
# Written by sglang-hydra 0.1.0; once more: sglang-hydra export miles gpu=h200 model=deepseek_v3 tp_size=8 random_seed=42
# Made for: gpu=h200 engine.version=0.5.2 plan=130978535e2c30c3
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 8
   --hf-checkpoint deepseek-ai/DeepSeek-V3
   --seed 42
)
python3 train.py "${SGLANG_ARGS[@]}"
