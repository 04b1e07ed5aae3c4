FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN pip install --no-cache-dir "sglang==0.5.12"   # pinned
CMD python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --cuda-graph-max-bs 4
