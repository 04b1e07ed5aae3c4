"""Every exception that this package raises for its users, each with the exit code it ends in.

SglangHydraError
  ConfigError     2  the configuration is invalid; carries the findings
  MachineError    3  valid, but this machine cannot serve it
  ServerError     4  the server failed to start, or died
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_hydra.text.exit_codes import INVALID, MACHINE, SERVER_FAILED
from sglang_hydra.text.findings import Finding


class SglangHydraError(Exception):
    """Base of the tree. ``findings`` says what is wrong and what to type; ``exit_code`` is the process's."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{finding.id}: {finding.message}" for finding in findings))
        self.findings: Sequence[Finding] = findings


class ConfigError(SglangHydraError):
    exit_code = INVALID


class MachineError(SglangHydraError):
    exit_code = MACHINE


class ServerError(SglangHydraError):
    exit_code = SERVER_FAILED
