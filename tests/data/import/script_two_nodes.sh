HEAD=10.1.0.4:5000
COMMON="--model-path Qwen/Qwen3-235B-A22B --tp 16 --nnodes 2 --dist-init-addr $HEAD"
# the first machine
ssh node0 "cd /srv && exec python3 -m sglang.launch_server $COMMON --node-rank 0"
# the second
ssh node1 "cd /srv && exec python3 -m sglang.launch_server $COMMON --node-rank 1"
