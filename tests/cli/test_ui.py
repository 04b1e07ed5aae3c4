"""``ui``: the site on this machine alone, with the user's presets, and nothing else of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from sglang_hydra.cli import ui
from sglang_hydra.cli.main import entry
from sglang_hydra.text.errors import ConfigError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ui.PageServer]:
    site = tmp_path / "site"
    (site / "assets").mkdir(parents=True)
    (site / "plan.html").write_text("<title>plan</title>")
    (site / "assets" / "worker.mjs").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    made = ui.PageServer(site, {"gpu/mine.yaml": "name: mine"})
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def get(server: ui.PageServer, path: str, host: str | None = None) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    response = connection.getresponse()
    return response, response.read()


def test_it_listens_on_the_loopback_and_serves_the_page(server: ui.PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    response, content = get(server, f"/{server.token}/plan.html")
    assert (response.status, content) == (200, b"<title>plan</title>")
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    assert get(server, f"/{server.token}/assets/worker.mjs")[0].headers["Content-Type"] == "text/javascript"


def test_the_users_presets_are_handed_to_the_page(server: ui.PageServer) -> None:
    response, content = get(server, f"/{server.token}/own.json")
    assert response.status == 200
    assert json.loads(content) == {"gpu/mine.yaml": "name: mine"}


def test_without_the_path_that_only_the_user_knows_there_is_nothing(server: ui.PageServer) -> None:
    for path in ("/", "/plan.html", "/own.json", "/guessed/own.json"):
        assert get(server, path)[0].status == 404


def test_another_host_name_reads_nothing(server: ui.PageServer) -> None:
    assert get(server, f"/{server.token}/own.json", host="evil.example")[0].status == 404


def test_nothing_outside_of_the_site_is_served(server: ui.PageServer) -> None:
    for path in ("../secret.txt", "%2e%2e/secret.txt", "assets/../../secret.txt", "assets/", ""):
        response, content = get(server, f"/{server.token}/{path}")
        assert response.status == 404, path
        assert b"secret" not in content or b"File not found" in content


def test_overrides_open_their_plan(server: ui.PageServer) -> None:
    assert server.address({}).endswith("/index.html")
    assert "plan.html#p=%7B%22gpu%22" in server.address({"gpu": "h100"})


def test_presets_are_read_by_their_paths_and_the_first_folder_wins(tmp_path: Path) -> None:
    for folder, content in (("a", "1"), ("b", "2")):
        (tmp_path / folder / "gpu").mkdir(parents=True)
        (tmp_path / folder / "gpu" / "mine.yaml").write_text(content)
    (tmp_path / "b" / "notes.txt").write_text("no preset")
    assert ui.own_files([str(tmp_path / "a"), str(tmp_path / "b")]) == {"own/gpu/mine.yaml": "1"}


def test_typed_files_are_handed_over_and_lie_below_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "experiment").mkdir(parents=True)
    (tmp_path / "here" / "experiment" / "mine.yaml").write_text("gpu: h100")
    (tmp_path / "other.yaml").write_text("gpu: h200")
    monkeypatch.chdir(tmp_path / "here")
    typed = ["experiment/mine.yaml", str(tmp_path / "other.yaml"), "../other.yaml"]
    assert ui.own_files([], typed) == {"experiment/mine.yaml": "gpu: h100", "other.yaml": "gpu: h200"}
    with pytest.raises(ConfigError, match="there is no such file"):
        ui.own_files([], ["nowhere.yaml"])


def test_too_many_presets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui, "_MOST_BYTES", 3)
    (tmp_path / "mine.yaml").write_text("long enough")
    with pytest.raises(ConfigError, match="MiB of YAML"):
        ui.own_files([str(tmp_path)])


def test_without_a_site_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ui, "__file__", str(tmp_path / "a" / "b" / "ui.py"))
    monkeypatch.setattr(ui, "DISTRIBUTION", "no_package_of_this_name")
    assert entry(["ui"]) == 2
    assert "pip install 'sglang-hydra[ui]'" in capsys.readouterr().err
