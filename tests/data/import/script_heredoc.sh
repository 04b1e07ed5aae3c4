PORT=31000
cat > server.yaml <<EOF
model-path: Qwen/Qwen3-8B
port: $PORT
enable-metrics: true
cuda-graph-bs: [1, 2, 4]
log-requests: false
EOF
python -m sglang.launch_server --config server.yaml --port 31001
