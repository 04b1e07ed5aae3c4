"""Reads and answers one AdmissionReview. Runs, fetches and reads nothing that its object names."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.convert.importing.launches import as_written
from sglang_hydra.convert.importing.mappings import object_of
from sglang_hydra.convert.importing.native import native_reader
from sglang_hydra.planning.recorded.input_files import WHOLE, Document, StartsNothing
from sglang_hydra.show.verdicts import judged
from sglang_hydra.text.budget import OverBudget, cpu_limit, read_json
from sglang_hydra.text.errors import SglangHydraError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.screen import printable
from sglang_hydra.text.words import short

T = TypeVar("T")
U = TypeVar("U")
API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
_JUDGED = ("CREATE", "UPDATE")
_KEPT = ("apiVersion", "kind", "spec", "data", "items")
_KEPT_OF_METADATA = ("name", "labels", "annotations")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LONGEST_WARNING, _LONGEST_MESSAGE, _MOST_WARNINGS = 250, 4000, 10
_LONGEST_UID = 128


class Asked(NamedTuple):
    """The content of a review: its uid and, if there is something to judge, the object as a manifest and its name for
    people."""

    uid: str
    name: str = ""
    manifest: str = ""


class Answer(NamedTuple):
    """The answer to a review. ``message`` says why the object is denied; empty for an allowed one."""

    message: str = ""
    warnings: tuple[str, ...] = ()


def asked(body: bytes) -> Asked:
    """Reads a review. Raises ValueError for anything else."""
    review = read_json(body, "manifest")
    request = review.get("request") if isinstance(review, Mapping) else None
    if not isinstance(request, Mapping) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        raise ValueError(f"it is no {KIND} of {API_VERSION}")
    uid = request.get("uid")
    if not isinstance(uid, str) or not 0 < len(uid) <= _LONGEST_UID:
        raise ValueError("it has no uid")
    stored = request.get("object")
    if request.get("operation") not in _JUDGED or request.get("subResource") or not isinstance(stored, Mapping):
        return Asked(uid)
    written = json.dumps(_without_state(stored), ensure_ascii=False)
    manifest = written.encode("utf-8", "replace").decode("utf-8")  # half a pair of a surrogate is no text
    if not any(word in manifest for word in ("sglang", "model-path", "model_path")):
        return Asked(uid)
    about = object_of(stored.get("metadata"))
    named = about.get("name") or about.get("generateName") or request.get("name") or ""
    return Asked(uid, short(printable(f"{stored.get('kind')} {named}".strip())), manifest)


def response(uid: str, answer: Answer) -> dict[str, object]:
    about: dict[str, object] = {"uid": uid, "allowed": not answer.message}
    if answer.message:
        about["status"] = {"code": 422, "reason": "Invalid", "message": answer.message}
    if answer.warnings:
        about["warnings"] = list(answer.warnings)
    return {"apiVersion": API_VERSION, "kind": KIND, "response": about}


class Judge:
    """Judges manifests with the same overrides, and caches the last ``most`` answers."""

    def __init__(self, composer: Composer, overrides: Sequence[Request], most: int = 1024) -> None:
        self._composer, self._overrides, self._most = composer, overrides, most
        self._answers: OrderedDict[bytes, Answer] = OrderedDict()
        self._plans: OrderedDict[str, Sequence[Finding]] = OrderedDict()

    def known(self, manifest: str) -> Answer | None:
        """Returns the cached answer for a manifest, or None."""
        return self._answers.get(hashlib.sha256(manifest.encode()).digest())

    def answer(self, name: str, manifest: str) -> Answer:
        """Returns the answer for a manifest. Raises nothing for its content."""
        known = self.known(manifest)
        if known is None:
            known = self._judged(name, manifest)
            _keep(self._answers, hashlib.sha256(manifest.encode()).digest(), known, self._most)
        return known

    def _judged(self, name: str, manifest: str) -> Answer:
        try:
            with cpu_limit("command"):
                read = native_reader(self._composer, self._overrides, elsewhere=True)
                documents = [item for item in read(Path("manifest.json"), manifest) if item[0] != WHOLE]
                findings = [one for _, document in documents for one in self._findings(document)]
        except StartsNothing:
            return Answer()
        except SglangHydraError as failure:
            findings = list(failure.findings)
        except OverBudget as failure:
            findings = [Finding("error", "CLI009", f"it cannot be planned: {failure}")]
        return _answer(name, findings)

    def _findings(self, document: Document) -> Sequence[Finding]:
        """Returns the findings on one server: planned once for the same words, whatever its object is called."""
        words = repr([[(item.text, item.key, item.value) for item in document.requests], document.findings])
        if (known := self._plans.get(words)) is None:
            try:
                known = judged(self._composer, document, self._overrides, seed=42).findings
            except SglangHydraError as failure:
                known = failure.findings
            _keep(self._plans, words, known, self._most)
        return known


def _keep(store: OrderedDict[T, U], key: T, value: U, most: int) -> None:
    store[key] = value
    while len(store) > most:
        store.popitem(last=False)


def _answer(name: str, findings: Sequence[Finding]) -> Answer:
    """Makes the answer: errors deny, warnings warn."""
    found = list(dict.fromkeys(findings))
    errors = [_said(item) for item in found if item.level == "error"]
    warnings = [short(_said(item), _LONGEST_WARNING) for item in found if item.level == "warning"]
    if any(item.about == "unnamed_gpu" for item in found):
        warnings.insert(0, f"{name}: neither the object nor the webhook names its GPU")
    message = f"{name} cannot be launched: {'; '.join(errors)}" if errors else ""
    return Answer(short(message, _LONGEST_MESSAGE), tuple(warnings[:_MOST_WARNINGS]))


def _said(finding: Finding) -> str:
    remedy = next(map(str, finding.shown), "")
    said = f"{finding.id} {finding.message}{f' (hint: {remedy})' if remedy else ''}"
    return printable(as_written(said))


def _without_state(stored: Mapping[str, object]) -> dict[str, object]:
    """Removes the cluster's own state from the object, so that its manifest is the same each time."""
    about = {key: value for key, value in object_of(stored.get("metadata")).items() if key in _KEPT_OF_METADATA}
    if notes := object_of(about.get("annotations")):
        about["annotations"] = {key: value for key, value in notes.items() if key != _LAST_APPLIED}
    return {**{key: stored[key] for key in _KEPT if key in stored}, "metadata": about}
