"""Several ranks, nodes and servers: finding each other, and losing each other."""

from __future__ import annotations

import re

from sglang_hydra.run.diagnose.failure_class import FailureClass, Weight, sign

_PEER = re.compile(r"connect to (?:any network address of )?\(?\[?([\w.:-]{1,120}?)\]?,? ?:?(\d{2,5})\)?")
_CLIENTS = re.compile(r"after (\d+) seconds.*?(\d+)/(\d+) clients joined")
_WORK = re.compile(r"OpType=(\w{1,40}).*?Timeout\(ms\)=(\d+)")


def _peer(line: str) -> str | None:
    found = _CLIENTS.search(line)
    if found:
        return f"{found[2]} of {found[3]} joined within {found[1]} s"
    found = _PEER.search(line)
    return f"{found[1]}, port {found[2]}, did not answer" if found else None


def _work(line: str) -> str | None:
    found = _WORK.search(line)
    return f"{found[1]} took more than {int(found[2]) // 1000} s" if found else None


CLASSES = (
    FailureClass(
        "DIA036",
        "nccl_timeout",
        "a collective operation timed out: a rank did not come to it",
        "All ranks must enter each collective; NCCL's watchdog ends those that waited too long. Inferred: a rank "
        "crashed, hangs, compiles kernels for longer than the limit or has lost its network. The rank whose log stops "
        "first is the one to look at.",
        "the first rank that fell silent; or dist_timeout=3600, where compiling takes long; or NCCL_DEBUG=INFO once; or"
        " NCCL_SOCKET_IFNAME and NCCL_IB_HCA of the right links",
        (
            sign("Watchdog caught collective operation timeout"),
            sign("collective operation timeout"),
            sign("ran for", r"ran for \d+ milliseconds before timing out"),
            sign("Timeout at NCCL work"),
            sign("Timed out waiting", r"Timed out waiting \d+ ?ms for"),
            sign("NCCL watchdog thread terminated", None, Weight.GENERAL),
            sign("ncclRemoteError", r"timeout|Timeout", Weight.GENERAL),
            sign("ProcessGroupNCCL watchdog hang", None, Weight.GENERAL),
            sign("watchdog got stuck for", r"ProcessGroupNCCL", Weight.GENERAL),
            sign("HCCL", r"HCCL.*(?:time ?out|notify wait)"),
            sign("Detected mismatch between collectives on ranks"),
        ),
        retryable=True,
        fields=("dist_timeout", "tp_size"),
        details=_work,
    ),
    FailureClass(
        "DIA037",
        "rendezvous_timeout",
        "the ranks did not all find each other at the head address",
        "Every node connects to dist_init_addr on the node of rank 0, and all must come within the time-out. Inferred: "
        "another node did not start, has another address, tp_size or nnodes, or a firewall stands between.",
        "the same dist_init_addr=HEAD:PORT, nnodes and tp_size on every node, node_rank=0 on the head; or nc -z HEAD "
        "PORT from the others; or dist_timeout=1800, where nodes start far apart; or GLOO_SOCKET_IFNAME and "
        "NCCL_SOCKET_IFNAME of the right link",
        (
            sign("The client socket has timed out after"),
            sign("The client socket has failed to connect to any network address"),
            sign("Timed out after", r"waiting for clients"),
            sign("DistNetworkError", None, Weight.GENERAL),
            sign("DistStoreError", None, Weight.GENERAL),
            sign("wait timeout after"),
            sign("Timeout waiting for key", None, Weight.GENERAL),
            sign("Socket Timeout", r"(?:RuntimeError|DistStoreError|DistNetworkError|TimeoutError|store)"),
            sign("TCP client failed to connect/validate to host", r"timed out"),
            sign("could not be resolved", r"(?:host|IPv4|IPv6|address)", Weight.GENERAL),
            sign("cannot be retrieved. (errno: 110", None, Weight.GENERAL),
            sign("IPv4 network addresses of"),
            sign("IPv6 network addresses of", None, Weight.GENERAL),
            sign("Gloo connectFullMesh failed"),
            sign("connectFullMesh", None, Weight.GENERAL),
            sign("gloo/transport/tcp", r"(?i)connect timeout|timed out connecting|Connection refused", Weight.GENERAL),
            sign("Connect timeout [", None, Weight.GENERAL),
            sign("Unable to find interface for", None, Weight.CAUSE),
            sign("Unable to find address for", None, Weight.CAUSE),
            sign("rendezvous", r"(?i)rendezvous.{0,80}(?:timed? ?out|failed|closed)"),
            sign("Could not get the leader"),
            sign("Failed to receive worker ports from node 0"),
        ),
        retryable=True,
        fields=("dist_init_addr", "nnodes", "node_rank", "dist_timeout"),
        details=_peer,
    ),
    FailureClass(
        "DIA038",
        "nccl_error",
        "NCCL could not set up or keep its links between GPUs",
        "NCCL's own warnings (NCCL WARN) name the call that failed. Inferred: shared memory, InfiniBand devices, the "
        "network interface or peer access is not as NCCL expects it, or its version differs between the ranks.",
        "NCCL_DEBUG=INFO once, for the call that fails; or NCCL_IB_DISABLE=1 or NCCL_P2P_DISABLE=1, to see which link "
        "it is; or NCCL_SOCKET_IFNAME=..., the interface that reaches the other nodes; or docker run --ipc=host "
        "--ulimit memlock=-1",
        (
            sign("ncclSystemError", None, Weight.GENERAL),
            sign("ncclUnhandledCudaError", None, Weight.GENERAL),
            sign("ncclInternalError", None, Weight.GENERAL),
            sign("ncclInvalidUsage", None, Weight.GENERAL),
            sign("ncclInvalidArgument", None, Weight.GENERAL),
            sign("NCCL error: unhandled", None, Weight.GENERAL),
            sign(
                "NCCL error",
                r"NCCL error:? .*(?:unhandled|internal error|invalid|system error|remote process)",
                Weight.GENERAL,
            ),
            sign("NCCL Error", r"NCCL Error \d", Weight.GENERAL),
            sign("Bootstrap : no socket interface found", in_warning=True),
            sign("ibv_create_qp failed", in_warning=True, weight=Weight.GENERAL),
            sign("Call to ibv_", r"failed with error", Weight.GENERAL, in_warning=True),
            sign("NET/IB : Got completion", r"error (?!0)", Weight.GENERAL, in_warning=True),
            sign("DistBackendError", None, Weight.EFFECT, exception=True),
            sign("RCCL", r"RCCL error|RCCL Error", Weight.GENERAL),
            sign("HCCL error in:", None, Weight.GENERAL),
            sign("Failed to load NCCL library from", None, Weight.GENERAL),
        ),
        retryable=True,
        fields=("tp_size", "nnodes"),
    ),
    FailureClass(
        "DIA039",
        "peer_access",
        "the GPUs cannot reach each other's memory as the all-reduce of SGLang needs it",
        "The custom all-reduce maps memory of one GPU into the process of another. Inferred: containers with separate "
        "IPC or PID spaces, virtual machines, and boards without peer access refuse it.",
        "disable_custom_all_reduce=true; or docker run --ipc=host; or NCCL_P2P_DISABLE=1, where NCCL fails in the same "
        "way",
        (
            sign("batch testing peer-to-peer access"),
            sign("peer access is not supported between these two devices", r"^(?!.*deep_ep)"),
            sign("cudaIpcOpenMemHandle", None, Weight.CAUSE),
            sign("cudaIpcGetMemHandle", None, Weight.CAUSE),
            sign("custom_all_reduce", r"(?:Cuda|CUDA) error.*custom_all_reduce|custom_all_reduce.*invalid argument"),
            sign("invalid argument", frame=r"custom_all_reduce", exception=True),
            sign("invalid resource handle", r"[Ee]rror:? .*invalid resource handle", Weight.GENERAL),
            sign("mapping of buffer object failed"),
            sign("peer mapping resources exhausted"),
            sign("Cuda failure 217"),
        ),
        fields=("disable_custom_all_reduce", "enable_mscclpp"),
        changes=("disable_custom_all_reduce=true",),
    ),
    FailureClass(
        "DIA040",
        "expert_parallel_comm",
        "the all-to-all of expert parallelism (DeepEP, NVSHMEM) failed",
        "DeepEP moves tokens between experts over NVLink and RDMA, through NVSHMEM (its README). Inferred: it needs "
        "GDRCopy or IBGDA set up on the host, GPUs that reach each other, and enough time at the first, compiling, "
        "batches.",
        "deepep_mode=normal, to see whether low latency is it; or moe_a2a_backend=none, without DeepEP; or the host's "
        "set-up: nvidia_peermem or GDRCopy, NVreg_EnableStreamMemOPs=1 for IBGDA; or a longer watchdog_timeout",
        (
            sign("DeepEP error"),
            sign("DeepEP timeout"),
            sign("deep_ep.cpp", None, Weight.CAUSE),
            sign("nvshmem", r"(?i)nvshmem.*(?:failed|error|abort|not|unable)"),
            sign("NVSHMEM", r"NVSHMEM.*(?:failed|ERROR|error|abort|not |[Uu]nable|called before)"),
            sign("nvshmem", r"non-zero status|init failed"),
            sign("ibv_modify_qp failed", None, Weight.GENERAL),
            sign("NULL value mem registration", None, Weight.GENERAL),
            sign("ibgda", r"(?i)ibgda.*(?:fail|error|unable|not )"),
            sign("csrc/kernels/internode", None, Weight.CAUSE),
            sign("csrc/kernels/intranode", None, Weight.CAUSE),
            sign("DeepEP is not installed", None, Weight.CAUSE),
            sign("No module named 'deep_ep'", None, Weight.CAUSE),
        ),
        retryable=True,
        fields=("moe_a2a_backend", "deepep_mode", "ep_size"),
    ),
    FailureClass(
        "DIA041",
        "pd_bootstrap",
        "prefill and decode servers do not reach each other, or cannot hand over the KV cache",
        "A prefill server registers at its bootstrap port, a decode server asks there and then receives the cache over "
        "the transfer backend (Mooncake, NIXL). Inferred: an address or port is not reachable from the other node, the "
        "parallel sizes do not go together, or an RDMA device does not exist.",
        "disaggregation_bootstrap_port=N, open from the decode nodes; or disaggregation_ib_device=mlx5_0, the device "
        "that both nodes have; or SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=600; or the same tp_size on both sides",
        (
            sign("KVTransferError", None, Weight.CAUSE),
            sign("Prefill bootstrap failed"),
            sign("Decode handshake failed"),
            sign("Decode transfer failed"),
            sign("Prefill transfer failed"),
            sign("to bootstrap server", r"(?i)failed to (?:connect|register) to bootstrap server"),
            sign("Could not fetch bootstrap info"),
            sign("Could not fetch prefill", r"from bootstrap"),
            sign("Error fetching prefill info from bootstrap"),
            sign("Failed to get prefill server info"),
            sign("Mooncake Transfer Engine initialization failed"),
            sign("Mooncake memory registration failed"),
            sign("Mooncake", r"Mooncake (?:batch )?[Rr]egist\w+ .*failed|Mooncake Transfer Engine Return Error"),
            sign("NIXL memory registration failed"),
            sign("nixlBackendError", None, Weight.CAUSE),
            sign("nixl", r"(?i)nixl\w*(?:Error|Exception)|NIXL_ERR"),
            sign("KVSender transfer encountered an error"),
            sign("KVSender failed to"),
            sign("does NOT support PD"),
            sign("to run SGLang with MooncakeTransferEngine"),
            sign("to run SGLang with NixlTransferEngine"),
            sign(
                "disaggregation",
                r"(?:AssertionError|ValueError|RuntimeError): (?!.*(?:--disaggregation|not support)).*disaggregation",
                Weight.GENERAL,
            ),
            sign("sliced KV transfer", r"Exception: Failed to (?:create|post)"),
            sign("Ascend Transfer Engine initialization failed"),
            sign("Transfer thread failed because of", r"Prefill instance with bootstrap_port=\d+ is dead"),
            sign("No available RNIC", None, Weight.CAUSE),
            sign("No RDMA devices found", None, Weight.CAUSE),
        ),
        retryable=True,
        fields=("disaggregation_mode", "disaggregation_bootstrap_port", "disaggregation_ib_device"),
    ),
    FailureClass(
        "DIA061",
        "router_workers",
        "the router found no worker that is healthy",
        "A router sends requests only to servers whose health check answers. Inferred: they still load, have failed, "
        "are not at the address or not of the kind (prefill, decode) that it was given; or too many requests failed at "
        "once, and its circuit breaker holds them back.",
        "the log of each worker, and its /health from where the router runs; or "
        "topology.router.worker_startup_timeout_secs=1800, where they only take long to start; or "
        "topology.router.args={cb_failure_threshold: 50}, where they are healthy and busy",
        (
            # sgl-project/sglang#2778, #4208, #8557, #12355, #12621, #13894; THUDM/slime#1328; vllm-project/aibrix#1351.
            sign("waiting for workers", r"(?i)timeout \d+ ?s waiting for workers|timeout waiting for workers"),
            sign("circuits open or unhealthy", None, Weight.GENERAL, request=True),
            sign("ailed to select PD pair", None, Weight.GENERAL, request=True),
            sign("ailed to select worker pair", None, Weight.GENERAL, request=True),
            sign("No available servers: ", r"Failed to select (?:prefill|decode) worker", Weight.GENERAL, request=True),
        ),
        retryable=True,
    ),
    FailureClass(
        "DIA059",
        "peer_lost",
        "another rank, or another node, ended; this log does not say why",
        "The connection to a peer broke off. Inferred: the reason stands in the log of the rank that ended first: an "
        "exception, memory that ran out, a node that went down.",
        "the logs of all ranks and nodes, together: diagnose LOG1 LOG2; or dmesg and the state of the other node",
        (
            sign("Connection closed by peer", None, Weight.EFFECT),
            sign("Connection reset by peer", r"gloo|c10d|TCPStore|NCCL|recvBytes|sendBytes|recvValue", Weight.EFFECT),
            sign("remote process exited or there was a network error", None, Weight.EFFECT),
            sign("ncclRemoteError", None, Weight.EFFECT),
            sign("NCCL communicator was aborted", None, Weight.EFFECT),
            sign("recvValue failed", None, Weight.EFFECT),
            sign("Failed to recv, got 0 bytes", None, Weight.EFFECT),
            sign("Broken pipe", r"gloo|c10d|TCPStore|sendBytes", Weight.EFFECT),
            sign("could finish the model loading, but there are other ranks that didn't", None, Weight.EFFECT),
        ),
        retryable=True,
        fields=("nnodes", "tp_size"),
    ),
)
