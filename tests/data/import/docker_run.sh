docker run --gpus '"device=0,1"' --shm-size 32g --ipc=host \
    -p 30000:30000 \
    -v ~/.cache/huggingface:/cache/huggingface \
    --env "HF_TOKEN=$HF_TOKEN" -e SGLANG_USE_MODELSCOPE=false \
    lmsysorg/sglang:v0.5.2-cu128-b200 \
    python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-70B-Instruct --tp 2 --host 0.0.0.0
