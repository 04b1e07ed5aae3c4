"""Builds the site into build/site: the documentation, the planner's page with all of Python, the catalog.

    python site/build.py [--without-docs] [--without-catalog] [--address https://HOST/FOLDER/]

Run by ``make site``, which fetches Pyodide before (npm ci in site/). The packages that the planner needs are copied
from this environment, and they are pure Python. Wheels of releases come by pip, unless the cache has them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SHARED = ROOT / "sglang_hydra" / "measure" / "report"
"""Where the report has its colours and its table, which are the site's too."""
OUT = ROOT / "build" / "site"
CSP = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "connect-src 'self' https://huggingface.co; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'"
)
CSP_OF_TEXT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'"
)
DOWNLOAD_MB = 8
PREVIEW = "preview.png"
"""The picture of the site, for its pages without one of their own."""
_OF_PLANNING = ("bar", "build", "card", "dom", "link", "loading", "python", "release", "result", "worker")
_MODULES = (*(f"assets/{name}.js" for name in _OF_PLANNING), "python/pyodide.mjs")
"""What a page that plans imports beside its own script: fetched together, not each after the one that names it. The
packed files are not preloaded: the page would not be loaded before they are."""


def options() -> dict[str, Any]:
    """What the form offers."""
    from sglang_hydra.arguments.tables.table import known_versions
    from sglang_hydra.compose.composer import Composer
    from sglang_hydra.convert.export.registry import FORMATS
    from sglang_hydra.planning.choosing.catalog import gpu_classes, models

    composer = Composer()
    return {
        "gpus": [{"name": gpu.name} for gpu in gpu_classes(composer)],
        "models": [{"name": model.name, "path": model.path} for model in models(composer)],
        "releases": list(reversed(known_versions())),
        "formats": [{"name": name, "about": format.about} for name, format in FORMATS.items()],
    }


def exact_words(known: list[str], exact: list[str]) -> str:
    """Names the releases that the page can ask, of those that it knows."""
    from sglang_hydra.arguments.specified import SPECIFIED_VERSION

    left_out = [name for name in known if name not in (*exact, SPECIFIED_VERSION) and ".post" not in name]
    but = f"; not {', '.join(left_out)}" if left_out else ""
    return f"{known[-1]} to {known[0]} (estimates: post releases{but})"


_AT_HOME = {"gpu": "h100", "count": "4", "model": "llama_3_1_70b"}
_EXAMPLES = (
    ("Llama 3.1 70B on one H100: refused", {"gpu": "h100", "model": "llama_3_1_70b"}),
    ("Qwen3 8B on an L4, 32 users", {"gpu": "l4", "model": "qwen3_8b", "users": "32", "context": "8192"}),
    ("gpt-oss 120B on one H100", {"gpu": "h100", "model": "gpt_oss_120b"}),
    ("DeepSeek R1 on 2 nodes of H100", {"gpu": "h100", "model": "deepseek_r1", "count": "16", "more": "nnodes=2"}),
)


def asked_first() -> list[dict[str, Any]]:
    """What the form asks: the modules that it needs are loaded at first."""
    forms = [_AT_HOME, *(form for _, form in _EXAMPLES)]
    forms += [{**_AT_HOME, "count": count} for count in ("1", "3", "8")]
    forms += [{"gpu": "RTX 4090", "model": "org/unknown"}, {**_AT_HOME, "more": "tp_siez=8 context_length=7777"}]
    verbs = (["explain", "tp_size"], ["explain", "FIT001"], ["suggest"], ["check", "--format", "markdown"])
    others = [{"ask": "options"}, {"ask": "complete", "line": "gpu=h100 kv"}]
    others += [{"ask": "fill", "form": _AT_HOME, "add": ["tp_size=8"]}]
    others += [{"ask": "verb", "verb": verb, "form": _AT_HOME} for verb in verbs]
    return [*({"ask": "plan", "form": form} for form in forms), *others]


def first_plan() -> dict[str, Any]:
    """The plan of the form as it stands at first: the page shows it before Python is there."""
    from sglang_hydra.cli.answers import answer

    question = {"ask": "plan", "form": {**_AT_HOME, "more": "random_seed=42"}}
    made: dict[str, Any] = json.loads(answer(json.dumps(question)))
    (bar,) = memory_bars([{**made["plan"]["fit"], "memory": made["memory"]}])
    return {**made, "bar": bar}


def link_to(form: dict[str, str]) -> str:
    """The part of an address that names a plan (src/link.js)."""
    return "#" + urlencode({"p": json.dumps(form, separators=(",", ":"))})


def script_json(content: Any) -> Markup:
    """JSON inside a script element: no text of it can end the element."""
    return Markup(json.dumps(content).replace("<", "\\u003c"))


class Pages:
    """Writes the pages below ``out`` from the templates; every value is escaped."""

    def __init__(self, out: Path, pages: tuple[str, ...], address: str) -> None:
        from sharing import linked

        from sglang_hydra.text.version import VERSION

        loader = jinja2.FileSystemLoader(HERE / "pages")
        self._environment = jinja2.Environment(
            loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
        )
        self._environment.filters["linked"] = linked
        self.out, self.address = out, address
        self.names: list[str] = []
        shown = {"version": VERSION, "pages": pages, "download": DOWNLOAD_MB, "preview": PREVIEW}
        self._common = {"csp": Markup(CSP), "address": address, "modules": (), **shown}

    def write(self, name: str, template: str, /, **values: Any) -> None:
        from sharing import place_of

        self.names.append(name)
        here = {"canonical": place_of(self.address, name), "here": name.removesuffix(".html")}
        known = {"up": "../" * name.count("/"), **here, **self._common, **values}
        file = self.out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._environment.get_template(template).render(known), encoding="utf-8")


def memory_bars(shown: Iterable[dict[str, Any] | None]) -> list[Markup | None]:
    """The memory of a GPU of each plan as a picture (src/bar.js); None where its size is unknown."""
    fits = [fit and fit["memory_gib"] and [fit["memory"], {name: fit.get(name) for name in _OF_FIT}] for fit in shown]
    drawn = subprocess.run(
        ["node", HERE / "draw.js"], input=json.dumps(fits), stdout=subprocess.PIPE, text=True, check=True
    )
    # A table with the same words is below each.
    plain = (picture and re.sub(r'(?: y="0" height="30")?><title>.*?</title></rect>', "/>", picture)
             for picture in json.loads(drawn.stdout))  # fmt: skip
    return [picture and Markup(picture.replace(' xmlns="http://www.w3.org/2000/svg"', "")) for picture in plain]


_OF_FIT = ("memory_gib", "left_gib", "error_gib")


def write_catalog(pages: Pages) -> None:
    """The matrix, a page for each model, and one for each model and GPU. Fails where one of them would be wrong."""
    from catalog import COUNTS, LOADS, data_date, judged
    from preview import draw_model
    from published import broken

    known = judged()
    vendors = {gpu["name"]: gpu["vendor"] for gpu in known["gpus"]}
    wrong = [sentence for pair in known["pairs"] for sentence in broken(pair, vendors[pair["gpu"]])]
    if wrong:
        sys.exit("\n".join([*wrong[:50], f"The catalog is not published: {len(wrong)} cells are wrong"]))
    first, date = LOADS[0], data_date()
    source = {kind: {one["name"]: one["source"] for one in known[kind]} for kind in ("models", "gpus")}
    rows: dict[str, list[dict[str, Any]]] = {model["name"]: [] for model in known["models"]}
    best = [plan_of(pair)[1] for pair in known["pairs"]]
    for plan, bar in zip(best, memory_bars(best), strict=True):
        if plan:
            plan["bar"] = bar
    for pair in known["pairs"]:
        sources = {"model": source["models"][pair["model"]], "gpu": source["gpus"][pair["gpu"]]}
        rows[pair["model"]].append(write_pair(pages, {**pair, "date": date, "sources": sources}))
    paths = {model["name"]: model["path"] for model in known["models"]}
    for model, cells in rows.items():
        held = sum(cell["best"] is not None for cell in cells)
        sentence = f"{held} of {len(cells)} GPU classes hold {first.words}"
        preview = f"fit/{model}/preview.png"
        if pages.address:  # nobody else fetches one
            draw_model(pages.out / preview, paths[model], first.words, sentence, cells)
        named = {"path": paths[model], "sentence": sentence, "preview": preview, "loads": LOADS}
        named |= {"date": date, "source": source["models"][model]}
        pages.write(f"fit/{model}/index.html", "model.html", **named, rows=cells)
    table = [{"model": model, "path": paths[model], "cells": cells} for model, cells in rows.items()]
    named = {"date": date, "rows": table}
    named |= {"counts": COUNTS, "loads": LOADS, "gpus": known["gpus"], "models": known["models"]}
    pages.write("catalog.html", "catalog.html", **named)


def write_pair(pages: Pages, pair: dict[str, Any]) -> dict[str, Any]:
    """Writes the page of a model and a GPU, and its picture; returns its cell in the matrix."""
    from catalog import COUNTS, LOADS
    from preview import draw_pair

    from sglang_hydra.cli.answers import answer

    first, gpu = LOADS[0], pair["gpu"]
    none = f"{pair['path']} on {gpu}: no plan of up to {COUNTS[-1]} GPUs was found that holds {first.words}"
    load, best = plan_of(pair)
    words = [*best["words"], *(word for word in load.typed if word not in best["words"])] if best else [
        *pair["counts"][0]["words"], *first.typed]  # fmt: skip
    form = json.loads(answer(json.dumps({"ask": "fill", "add": words})))["form"]
    name = f"fit/{pair['model']}/{gpu}"
    shown = {"best": best, "loads": LOADS, "link": link_to(form), "csp": Markup(CSP_OF_TEXT)}
    shown |= {"verdict": best["title"] if best else none, "typed": shlex.join(words)}
    pages.write(f"{name}.html", "fit.html", **pair, **shown, preview=f"{name}.png")
    marks = {load.name: mark_of(pair["fewest"][load.name]) for load in LOADS}
    text = marks[first.name]
    held = pair["fewest"][first.name]
    label = held["title"] if held else none
    cell = {"gpu": gpu, "marks": marks, "text": text or "-", "class": colour_of(text), "label": label, "best": held}
    if pages.address:  # nobody else fetches one
        figures = [*best["room"].split(", ", 1), f"{best['left_gib']} GiB left on each GPU"] if best else []
        below = best["commands"][0][1] if best else pair["counts"][-1]["why"]
        draw_pair(pages.out / f"{name}.png", cell["class"], shown["verdict"], figures, below)
    return {**cell, "typed": shlex.join(words), "verdict": label.partition(": ")[2]}


def label_loads(style: Path) -> None:
    """Names the columns of loads on phones, where rows are stacked: thousands of pages would repeat the words."""
    from catalog import LOADS

    rules = "".join(
        f'  .by-load td:nth-of-type({place})::before {{ content: "{load.words}: "; color: var(--dim); }}\n'
        for place, load in enumerate(LOADS, 1)
    )
    with style.open("a", encoding="utf-8") as file:
        file.write(f"@media (max-width: 40rem) {{\n{rules}}}\n")


def plan_of(pair: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
    """The first load that a pair holds, and the plan that does; the first of all and None for none."""
    from catalog import LOADS

    load = next((load for load in LOADS if pair["fewest"][load.name]), LOADS[0])
    return load, pair["fewest"][load.name]


def mark_of(best: dict[str, Any] | None) -> str:
    """``16*~``: the number in a cell, ``*`` with changes, ``~`` an estimate; nothing for none."""
    return f"{best['gpus']}{'*' if best.get('changed') else ''}{'' if best['exact'] else '~'}" if best else ""


def colour_of(mark: str) -> str:
    """The class of a cell; the page finds the same one when another load is chosen (src/catalog.js)."""
    number = int(mark.rstrip("*~") or 0)
    return f"c{min(16, 1 << (number - 1).bit_length())}" if number else "none"


_PLANNING = ("index.html", "plan.html", "paste.html")
_OFFLINE = (*_PLANNING, "own.json", "python/*.mjs", "python/*.json", "releases/*.json", "assets/*")
"""What a browser keeps of the site beside the packed files that it fetched."""


def write_offline(out: Path, packed: dict[str, str]) -> None:
    """Writes where the packed files are, and the service worker: both have the name of the build, the hash of its
    files."""
    name, script = "assets/build.js", out / "assets" / "sw.js"
    files = sorted({file for pattern in _OFFLINE for file in out.glob(pattern)} - {out / name, script})
    hashed = hashlib.sha256(json.dumps(packed).encode() + b"".join(file.read_bytes() for file in files))
    build = json.dumps(hashed.hexdigest()[:16])
    made = f"export const BUILD = {build};\nexport const FILES = {json.dumps(packed)};\n"
    (out / name).write_text(made, encoding="utf-8")
    small = ["./", name, *(file.relative_to(out).as_posix() for file in files)]
    text = script.read_text(encoding="utf-8")
    for empty, full in (('BUILD = "";', f"BUILD = {build};"), ("SMALL = [];", f"SMALL = {json.dumps(small)};")):
        assert empty in text
        text = text.replace(empty, full)
    (out / "sw.js").write_text(text, encoding="utf-8")
    script.unlink()


def write_docs(out: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out / "docs")]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    for unused in ("assets/**/*.map", "assets/javascripts/lunr/**/*.js"):  # for developers, and other languages
        for file in (out / "docs").glob(unused):
            file.unlink()


def main() -> None:
    from parts import PYODIDE, write_python
    from preview import draw_plan
    from releases import write_releases
    from sharing import write_shared

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-docs", action="store_true", help="leave the documentation out")
    parser.add_argument("--without-catalog", action="store_true", help="leave the catalog out")
    parser.add_argument("--without-releases", action="store_true", help="leave out what asks releases in the browser")
    parser.add_argument("--address", default="", help="https://HOST/FOLDER/ of the site, for links and previews")
    arguments = parser.parse_args()
    if not PYODIDE.is_dir():
        sys.exit("Pyodide is missing: cd site && npm ci")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    python = write_python(OUT, asked_first())
    shutil.copytree(HERE / "src", OUT / "assets")
    for name in ("tokens.css", "table.js"):
        shutil.copy(SHARED / name, OUT / "assets")
    label_loads(OUT / "assets" / "style.css")
    exact = [] if arguments.without_releases else write_releases(OUT / "releases")
    left_out = {"docs/index": arguments.without_docs, "catalog": arguments.without_catalog}
    (OUT / "own.json").write_text("{}", encoding="utf-8")
    pages = Pages(
        OUT,
        tuple(name for name in ("plan", "paste", "catalog", "docs/index") if not left_out.get(name)),
        arguments.address and f"{arguments.address.rstrip('/')}/",
    )
    known = options()
    paired = {kind: [] if arguments.without_catalog else [one["name"] for one in known[kind] if one["name"] != "tiny"]
              for kind in ("models", "gpus")}  # fmt: skip
    offered = {name: known[name] for name in ("gpus", "models", "releases")}
    total = sum((OUT / name).stat().st_size for name in python.first)
    offered |= {
        "modules": _MODULES,
        "exact": exact and exact_words(known["releases"], exact),
        "options": script_json({"formats": known["formats"], "paired": paired}),
        "total": total,
    }
    examples = [(label, link_to(form)) for label, form in _EXAMPLES]
    pages.write("plan.html", "plan.html", first=None, form=_AT_HOME, **offered)
    example = first_plan()
    if arguments.address:
        verdict = f"{_AT_HOME['model']} fits {example['gpus'].partition(',')[0]}"
        draw_plan(OUT / PREVIEW, verdict, example["tiles"], example["commands"][0][1])
    pages.write("index.html", "home.html", first=example, form=_AT_HOME, examples=examples, **offered)
    pages.write("paste.html", "paste.html", total=total, modules=_MODULES)
    if not arguments.without_catalog:
        write_catalog(pages)
    if not arguments.without_docs:
        write_docs(OUT)
    pages.write("404.html", "404.html", up=pages.address, preview=None)
    write_shared(OUT, pages.address, pages.names)
    write_offline(OUT, python.names)
    print(f"{OUT.relative_to(ROOT)}/plan.html")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
