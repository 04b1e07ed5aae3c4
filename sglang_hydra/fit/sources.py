"""Where the formula of each number comes from. Paths are those of SGLang 0.5.2, below srt/."""

from __future__ import annotations

from collections.abc import Mapping

SOURCES: Mapping[str, str] = {
    "weights": "shapes and sharding: models/*.py, layers/linear.py, layers/vocab_parallel_embedding.py; "
    "formats: layers/quantization/*.py; segments: PyTorch's CUDACachingAllocator",
    "routed experts": "layers/moe/fused_moe_triton/layer.py: experts over ep_size, their width over tp_size / ep_size",
    "attention": "models/deepseek_v2.py for latent attention (with w_kc and w_vc), layers/linear.py QKVParallelLinear",
    "lora": "lora/mem_pool.py",
    "draft": "speculative/eagle_worker.py, models/llama_eagle*.py, models/*_nextn.py",
    "kv_cache": "model_executor/model_runner.py profile_max_num_token, mem_cache/memory_pool.py",
    "request_table": "mem_cache/memory_pool.py ReqToTokenPool, model_executor/model_runner.py init_memory_pool",
    "workspace": "layers/attention/*_backend.py",
    "libraries": "published server logs: what the free memory at the end lacks beyond all other parts; "
    "DeepEP's buffers: csrc/config.hpp of DeepEP, layers/moe/token_dispatcher/deepep.py",
    "cuda_graphs": "model_executor/cuda_graph_runner.py; bytes of a graph's node from published server logs",
    "activations": "the tensors that live at once in models/*.py; the range is 0.35 to 1.6 times their sum",
    "before_loading": "published server logs: total memory less the memory free at the start of loading",
    "mem_fraction_static": "model_executor/model_runner.py: pool = free after loading - free before x (1 - fraction)",
}
