"""Where the formula of each number comes from. Paths are those of SGLang 0.5.2, below srt/."""

from __future__ import annotations

from collections.abc import Mapping

SOURCES: Mapping[str, str] = {
    "weights": "shapes: models/*.py; sharding: layers/linear.py:256-1147, layers/vocab_parallel_embedding.py:44-153; "
    "formats: layers/quantization/*.py, create_weights; segments: PyTorch's CUDACachingAllocator",
    "routed experts": "layers/moe/fused_moe_triton/layer.py:172-189: experts over ep_size, their width over "
    "tp_size / ep_size",
    "attention": "models/deepseek_v2.py:944-1406 for latent attention (with w_kc and w_vc), layers/linear.py:747 "
    "QKVParallelLinear",
    "lora": "lora/mem_pool.py:44-200",
    "draft": "speculative/eagle_worker.py:140-166, models/llama_eagle*.py, models/*_nextn.py",
    "kv_cache": "model_executor/model_runner.py:1092-1135 profile_max_num_token, mem_cache/memory_pool.py:394-1168",
    "states": "mem_cache/memory_pool.py:105-205 MambaPool, configs/qwen3_next.py",
    "request_table": "mem_cache/memory_pool.py:55-103 ReqToTokenPool, model_executor/model_runner.py:1252-1286",
    "workspace": "layers/attention/*_backend.py, __init__",
    "libraries": "published server logs: what the free memory at the end lacks beyond all other parts; "
    "DeepEP's buffers: csrc/config.hpp of DeepEP, layers/moe/token_dispatcher/deepep.py:137-170",
    "cuda_graphs": "model_executor/cuda_graph_runner.py:165-215 and 450-525; bytes of a graph's node from published "
    "server logs",
    "activations": "the tensors that live at once in models/*.py; the range is 0.35 to 1.6 times their sum",
    "before_loading": "published server logs: total memory less the memory free at the start of loading",
    "mem_fraction_static": "model_executor/model_runner.py:1123-1132: pool = free after loading - free before x "
    "(1 - fraction)",
}
