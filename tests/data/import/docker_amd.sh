IMAGE=lmsysorg/sglang:v0.5.9-rocm700-mi35x
alias drun='docker run -it --rm'
docker run --rm --device=/dev/kfd --device=/dev/dri --env SGLANG_USE_AITER=1 "$IMAGE" \
  bash -c "pip list && python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --attention-backend aiter"
