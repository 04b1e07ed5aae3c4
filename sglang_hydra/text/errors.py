"""The exceptions that this package raises for its users, each with its exit code.

SglangHydraError
  ConfigError     2  the configuration is invalid; carries the findings
  MachineError    3  valid, but this machine cannot serve it
  ServerError     4  the server failed to start, or died"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from sglang_hydra.text.exit_codes import INVALID, MACHINE, SERVER_FAILED
from sglang_hydra.text.findings import Finding, Hint, Offers, Remedy

Error = TypeVar("Error", bound="SglangHydraError")


class CarriedError(Exception):
    """An exception that pickles whatever its constructor takes: Hydra launchers and process pools pickle the error of a
    job and raise it in another process."""

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[CarriedError], args: tuple[object, ...], state: Mapping[str, object]) -> CarriedError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class SglangHydraError(CarriedError):
    """Base of the tree. ``findings`` names the problem and the fix; ``exit_code`` is the exit code of the process."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{finding.id}: {finding.message}" for finding in findings))
        self.findings: Sequence[Finding] = findings
        hints = [f"hint: {finding.hint}" for finding in findings if finding.hint]
        if hints:
            self.__notes__ = hints  # a traceback of Python 3.11 and later shows them

    @classmethod
    def of(
        cls: type[Error],
        id: str,
        message: str,
        *fields: str,
        hint: Hint = None,
        offers: Offers = (),
        fix: str | Remedy | None = None,
        typed: tuple[str, ...] = (),
    ) -> Error:
        """Makes the exception with one finding, an error of ours."""
        return cls(Finding("error", id, message, fields, hint, offers=offers, fix=fix, typed=typed))


class ConfigError(SglangHydraError):
    exit_code = INVALID


class MachineError(SglangHydraError):
    exit_code = MACHINE


class ServerError(SglangHydraError):
    exit_code = SERVER_FAILED
