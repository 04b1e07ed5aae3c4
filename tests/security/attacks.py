"""A stranger's program, which leaves a mark when it runs, and the folder of an experiment that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = ("gpu: h200", "model: qwen3_8b")
"""An experiment that is fine."""


class Stranger:
    """A checkout that somebody else wrote. ``ran`` tells whether any code of it was run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.folder.mkdir()
        self.mark = folder / "mark"
        self.program = self.write("evil.sh", f'#!/bin/sh\necho "$0 $*" >> {self.mark}\nexec {sys.executable} "$@"\n')
        self.program.chmod(0o755)

    @property
    def ran(self) -> str:
        """What ran, by its own words; empty where nothing did."""
        return self.mark.read_text() if self.mark.exists() else ""

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def experiment(self, *lines: str, name: str = "server.yaml") -> Path:
        return self.write(name, "\n".join([*HERE, *lines, ""]))

    def package(self, name: str) -> str:
        """A package that leaves the mark when it is imported; returns the folder that it lies in."""
        self.write(f"{name}/__init__.py", self.leaves_mark(f"imported {name}"))
        return str(self.folder)

    def leaves_mark(self, said: str) -> str:
        """A line of Python that leaves the mark."""
        return f"import pathlib; pathlib.Path({str(self.mark)!r}).write_text({said!r})\n"

    def environment(self, version: str = "0.5.2", settings: Mapping[str, str] | None = None) -> Path:
        """A virtual environment whose python is the stranger's program. Returns the program."""
        lines = {"home": "/usr/bin", "include-system-site-packages": "false", **(settings or {})}
        self.write("venv/pyvenv.cfg", "".join(f"{key} = {value}\n" for key, value in lines.items()))
        self.write(f"venv/lib/python3.11/site-packages/sglang-{version}.dist-info/METADATA", "Name: sglang\n")
        self.write("venv/lib/python3.11/site-packages/evil.pth", self.leaves_mark("pth"))
        python = self.folder / "venv" / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to(self.program)
        return python


def run(*words: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 60) -> tuple[int, str]:
    """The command line in a process of its own: its exit code, and what it wrote."""
    command: Sequence[str] = [sys.executable, "-c", "from sglang_hydra.start import main; raise SystemExit(main())"]
    done = subprocess.run(
        [*command, *words],
        cwd=cwd,
        env={**os.environ, "PYTHONSAFEPATH": "1", **(env or {})},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


SECRET_NAMES = (
    *("POD_SIGNING_KEY", "POD_DB_PWD", "POD_ENCRYPTION_KEY", "POD_DSN", "SLURM_AUTH", "SLURM_JWT", "SGLANG_DB_PW"),
    *("SGLANG_COOKIE", "SGLANG_SECRET", "SGLANG_SESSION_TOKEN", "SGLANG_API_TOKENS", "SGLANG_ADMIN_PASS", "NCCL_PSK"),
    *("CUDA_SIGNING_SALT", "OMPI_COMM_AUTH", "PMI_HMAC", "HCCL_PRIVATE", "ASCEND_CREDS", "GLOO_CRED", "HIP_PAT"),
    *("POD_OAUTH", "POD_BEARER", "POD_KEYTAB", "POD_NETRC", "POD_WEBHOOK", "POD_SAS", "POD_PEM", "POD_OTP", "POD_TOTP"),
    *("SLURM_PASSPHRASE", "SLURM_PASSWD", "SLURM_CREDENTIAL", "SLURM_MNEMONIC", "SLURM_SIGNATURE", "SLURM_COOKIES"),
    *("SGLANG_DATABASE_URL", "SGLANG_REDIS_URI", "SGLANG_PG_CONNECTION_STRING", "SGLANG_APIKEY", "SGLANG_KEYS"),
    *("SGLANG_HF_TOKEN", "SGLANG_DB_CRYPT", "SGLANG_DBPASS", "SGLANG_DBPWD", "SGLANG_SSHKEY", "SGLANG_MASTERKEY"),
    *("SGLANG_AUTHORIZATION", "POD_AUTHKEY", "POD_PASSCODE", "POD_PASS1", "POD_KEY2", "POD_NONCE", "POD_SIGNED_URL"),
    *(
        "SGLANG_JDBC_URL",
        "SGLANG_CSRF",
        "Sglang_Key",
        "sglang_db_pw",
        "sglang_cookie",
        "pod_dsn",
        "SLURM_UNSEAL",
        "PRESIGNED_URL",
    ),
)
"""Names of variables that say secret, each with a beginning that is a launcher's or SGLang's own."""

SECRET_VALUES = (
    *(
        "hf_abcdefghijklmnopqrstuvwxyz123456",
        "ghp_0123456789abcdefghij0123456789abcdef",
        "xoxb-0123456789-abcdefghijkl",
    ),
    *("glpat-abcdefghij0123456789", "nvapi-abcdefghij0123456789_-abcdefghij", "sk-proj-abcdefghij0123456789"),
    *(
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "hvs.CAESIJabcdefghij0123456789",
    ),
    *("AIzaSyA0123456789abcdefghijklmnopqrstuv", "sk_live_0123456789abcdefghij", "redis://user:hunter2hunter2@host/0"),
    *(
        "github_pat_11ABCDEFG0123456789abcdefghij",
        "gsk_0123456789abcdefghij0123456789",
        "npm_0123456789abcdefghij0123456789",
    ),
    *(
        "https://host/hook?sig=hunter2hunter2&x=1",
        "https://host/?access_token=hunter2hunter2",
        "password=hunter2hunter2",
    ),
    *(
        "Bearer hunter2hunter2hunter2",
        "Authorization: Basic dXNlcjpodW50ZXIyaHVudGVyMg==",
        "client_secret:hunter2hunter2",
    ),
)
"""Values that show what they are under any name."""
PLAIN_VALUES = (
    "hf_internal_testing",
    "hf_transfer",
    "sk-learn-extra",
    "key-value",
    "https://host:8000/v1",
    "eyJ",
    "AKIA",
    "https://host/?page=100000&size=100000",
    "Basic training",
    "eos_token:endoftext",
    "password:none",
)
PLAIN_NAMES = (
    *(
        "SGLANG_BYPASS_CHECK",
        "SGLANG_MONKEY",
        "SGLANG_MAX_TOKENS",
        "SGLANG_COMPASS",
        "SGLANG_AUTHOR",
        "DB_NAME",
        "PINNED",
    ),
    *("eos_token", "hash_key", "topologyKey", "key", "max_total_tokens", "PWD", "KEYWORDS", "DATABASE", "LOGIN_NODE"),
    *("KEY_VALUE_CACHE", "TOKEN_BUDGET", "TOKEN_COUNT", "PIN_MEMORY", "TOKENIZER_PATH", "MAX_TOKENS"),
)
"""Names that are like those of secrets."""
