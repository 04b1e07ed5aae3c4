FROM docker.io/lmsysorg/sglang:v0.5.12-cu130
# keep this line
ENTRYPOINT ["python3", "-m", "sglang.launch_server"]
CMD ["--model-path", "Qwen/Qwen3-8B", "--host", "0.0.0.0"]
