"""Makes the verdicts of ``check`` on each named thing, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from sglang_hydra.arguments.layout import SIZES
from sglang_hydra.compose.composer import Composer
from sglang_hydra.compose.overrides import Request
from sglang_hydra.compose.settings.nodes import has_several_servers
from sglang_hydra.planning.making.make import make_plan
from sglang_hydra.planning.plan import Plan
from sglang_hydra.planning.recorded.input_files import Document, ReadOthers, documents, is_document
from sglang_hydra.planning.verdict import sizes_left_open, verdict_on
from sglang_hydra.rules.checks.releases import LAYOUT, declarations
from sglang_hydra.show.findings import finding_lines
from sglang_hydra.show.plan import summary
from sglang_hydra.text.budget import READERS, SERVER_S, allow_more
from sglang_hydra.text.errors import ConfigError
from sglang_hydra.text.findings import Finding
from sglang_hydra.text.locations import file_of
from sglang_hydra.text.progress import counted
from sglang_hydra.text.screen import Line, folded, text

if TYPE_CHECKING:
    from sglang_hydra.planning.topology.servers import Topology


class Checked(NamedTuple):
    """The verdict on a named thing: its plan, or None where none can be composed, and the findings."""

    made: Plan | Topology | None
    findings: Sequence[Finding]

    @property
    def ok(self) -> bool:
        return self.made is not None and self.made.ok

    @property
    def launchable(self) -> bool | None:
        """Returns SGLang's verdict combined with ours; None if unknown."""
        return False if self.made is None else self.made.launchable

    @property
    def why(self) -> str:
        """Returns why it cannot be launched, the missing fact, or the warnings."""
        return verdict_on(self.findings, ()).why if self.made is None else self.made.verdict.why

    @property
    def error_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(finding.id for finding in self.findings if finding.level == "error"))


def verdicts_on(
    composer: Composer, requests: Sequence[Request], *, seed: int | None = None, others: ReadOthers | None = None
) -> list[tuple[str, Checked]]:
    """Returns the verdict on each thing in ``requests``, by its name: all overrides together, files and folders one
    by one. ``seed`` replaces a drawn one; ``others`` reads foreign files. Raises ConfigError for a missing file or
    folder."""
    files = [request for request in requests if is_document(request.text)]
    overrides = [request for request in requests if not is_document(request.text)]
    verdicts = []
    most = READERS["folder"].nodes
    found = list(islice(documents(files, others), most + 1)) if files else [("overrides", Document([]))]
    if len(found) > most:
        message = f"more than {most} servers cannot be judged at once"
        raise ConfigError.of("CLI009", message, hint="the folders below it, one by one")
    file = file_of(found[0][0]) if found else ""
    for name, document in counted(found, "files", len(found)):
        allow_more(SERVER_S if file_of(name) != file else 0.0)
        file = file_of(name)
        try:
            if isinstance(document, ConfigError):
                raise document
            made = judged(composer, document, overrides, seed)
        except ConfigError as failure:
            verdicts.append((name, Checked(None, failure.findings)))
        else:
            verdicts.append((name, Checked(made, made.findings)))
    return verdicts


def judged(
    composer: Composer, document: Document, overrides: Sequence[Request], seed: int | None = None
) -> Plan | Topology:
    """Returns the plan of a document with ``overrides`` on top, or of all of its servers where it has several. Facts
    that a plan recorded apply unless GPU or model are typed."""
    typed = [request.text.partition("=")[0].partition(".")[0] for request in overrides]
    recorded = None if {"gpu", "model", "model_path"} & set(typed) else document.recorded
    requests = [*document.requests, *overrides]
    made = make_plan(composer, requests, recorded=recorded, seed=recorded.seed if recorded else seed)
    if not has_several_servers(made.nodes):
        if document.gpus is not None and any(one.about == "no_device" for one in made.findings):
            made = replace(made, findings=_on_any_gpu(composer, requests, made, document.gpus, seed))
        return replace(made, findings=_decided(document.findings, made)) if document.findings else made
    from sglang_hydra.planning.topology.plan import plan_topology

    return plan_topology(composer, requests, common=made)


_ANY: Mapping[str | None, tuple[str, ...]] = {
    **dict.fromkeys((None, "cuda", "auto"), ("h200", "b300", "mi355x")),
    "npu": ("ascend_910b",),
    "hpu": ("gaudi3",),
}
"""By device, the classes for a file that names none: those with the most memory, of each generation and vendor."""


def _on_any_gpu(
    composer: Composer, requests: Sequence[Request], made: Plan, named: Sequence[str], seed: int | None
) -> tuple[Finding, ...]:
    """Returns the findings for a file that leaves its GPU open, where this machine has none: those that the plans for
    all classes that it may mean have in common. A number of GPUs that it does not state is only a warning."""
    if any("gpu" in (request.key, request.text.partition("=")[0]) for request in requests):
        return made.findings
    classes = tuple(named) or _ANY.get(made.intent.get("device"), ())
    common = [finding for finding in made.findings if finding.about != "no_device"]
    for number, gpu in enumerate(classes):
        found = make_plan(
            composer, [*requests, Request(f"gpu={gpu}", "a class for an unnamed GPU")], seed=seed
        ).findings
        known = {(finding.id, finding.fields) for finding in common}
        common = [finding for finding in found if number == 0 or (finding.id, finding.fields) in known]
        if all(finding.level == "info" for finding in common):
            break
    if "gpu.count" not in made.settings:
        common = [replace(one, level="warning") if one.about == "too_few_gpus" else one for one in common]
    on = f"judged by what holds on {', '.join(classes)}" if classes else "judged without one"
    message = f"neither the file nor this machine says which GPU: {on}"
    return Finding("warning", "IMP010", message, ("gpu",), "gpu=h200 behind the file, or any other class"), *common


def _decided(of_file: Sequence[Finding], plan: Plan) -> tuple[Finding, ...]:
    """Returns the findings of a file and its plan, without those that depend on a size that the file takes from a
    variable: a verdict on tp_size=1 means nothing for ``--tp-size $TP``."""
    if not sizes_left_open(of_file):
        return (*of_file, *plan.findings)
    return (*of_file, *(item for item in plan.findings if item.level == "info" or not _depends_on_sizes(item)))


_OF_SIZES = ("DPA", "EPL", "FIT", "GPU")
"""The id families on DP attention, experts, memory and the number of GPUs."""


def _depends_on_sizes(finding: Finding) -> bool:
    """Returns whether another number of GPUs may change a finding: all refusals of SGLang while it resolves, findings
    on groups or memory, and checks that read the layout."""
    if finding.stage == "argparse":
        return False
    declared = declarations().get(finding.id)
    of_sizes = finding.id.startswith(_OF_SIZES)
    return finding.stage != "plan" or of_sizes or bool(declared and ({LAYOUT, *SIZES} & {*declared.reads}))


def verdict_record(name: str, verdict: Checked) -> dict[str, object]:
    """Returns one result of ``check --json``; for a topology ``server_id`` is its own id."""
    made, findings = verdict
    return {
        "name": name,
        "ok": verdict.ok,
        "launchable": verdict.launchable,
        "why": verdict.why,
        "server_id": getattr(made, "server_id", None) or getattr(made, "topology_id", None),
        "findings": [finding.to_json() for finding in findings],
    }


def verdict_lines(name: str, verdict: Checked) -> Iterator[Line]:
    """Yields one result of ``check`` for people."""
    made, findings = verdict
    if made is None or isinstance(made, Plan):
        of_plan = summary(made) if made else [text("cannot be composed", "bold red")]
        yield from folded([text(f"{name}: "), *of_plan])
        yield from finding_lines([finding for finding in findings if finding.level != "info"], made)
        return
    from sglang_hydra.show import topology as topologies

    yield from folded([text(f"{name}: "), *topologies.summary(made)])
    yield from topologies.findings_of(made, ("error", "warning"))
