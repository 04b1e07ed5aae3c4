"""Two nodes started by hand, each with ``launch=local``: node 0 says where it is, and node 1 joins it there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.run.launch.processes import free_port
from tests.run.slurm.running import Running


@pytest.mark.thorough
def test_node_1_joins_where_node_0_says(fake_python: Path, tmp_path: Path) -> None:
    both = ["gpu=cpu", "model=tiny", "engine=sglang", f"engine.python={fake_python}", "nnodes=2", "tp_size=2"]
    ports = free_port(), free_port()
    head = Running(tmp_path / "node0", [*both, f"port={ports[0]}"], {})
    other = None
    try:
        address = head.until(r"--dist-init-addr (\S+) --nnodes 2 --node-rank 1 ")[1]
        other = Running(tmp_path / "node1", [*both, f"port={ports[1]}", "node_rank=1", f"dist_init_addr={address}"], {})
        head.until(f"Ready after .* at http://127.0.0.1:{ports[0]}")
        other.until(f"Ready after .* at http://127.0.0.1:{ports[1]}")
        assert "curl" in head.printed
        assert "curl" not in other.printed
        assert "this node holds a part of the model" in other.printed
        plans = [(folder / "plan.json").read_text() for folder in (head.folder, other.folder)]
        ids = {text.partition('"server_id": "')[2][:16] for text in plans}
        assert len(ids) == 1
        assert other.ended(signal.SIGINT) == 130
        assert head.ended(signal.SIGINT) == 130
    finally:
        for running in (head, other):
            if running is not None:
                running.end()


def test_a_node_whose_head_has_no_such_name_says_so(fake_python: Path, tmp_path: Path) -> None:
    words = ["gpu=cpu", "model=tiny", "engine=sglang", f"engine.python={fake_python}", "nnodes=2", "tp_size=2"]
    running = Running(tmp_path / "run", [*words, "node_rank=1", "dist_init_addr=no-such-host.invalid:5000"], {})
    assert running.ended() == 3
    assert "NOD008" in running.printed
    assert "host no-such-host.invalid, port 5000" in " ".join(running.printed.split())
