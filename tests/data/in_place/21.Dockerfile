# a server in its own image
FROM lmsysorg/sglang:v0.5.8
ENV HF_HOME=/models
EXPOSE 30000
CMD ["python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", "--cuda-graph-max-bs", "24"]
