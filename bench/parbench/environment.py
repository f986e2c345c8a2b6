"""The environment is the machine and software that a run is measured on, in facts without names or secrets."""

from __future__ import annotations

import getpass
import hashlib
import importlib.metadata
import os
import platform
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from parbench.record import Environment

Fact = str | int | float | bool | None

# Whatever can change a result; the versions of what only reads results are left out, so that they make nothing stale.
_PACKAGES = ("parbench", "torch", "numpy", "scikit-learn", "triton", "nvidia-nccl-cu12", "nvidia-nccl-cu13")

# Variables that change results. Everything else stays where it is.
_VARIABLES = re.compile(
    r"(OMP|GOMP|KMP|MKL|OPENBLAS|NCCL|GLOO|TORCH|PYTORCH|TORCHINDUCTOR|MALLOC|CUBLAS|CUDNN|TRITON|PARBENCH)_\w+"
    r"|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|MODULE_LOADING)"
    r"|NVIDIA_TF32_OVERRIDE|LD_PRELOAD|PYTHON(HASHSEED|OPTIMIZE|DEVMODE|GIL)"
    r"|SLURM_(JOB_ID|JOB_NUM_NODES|NNODES|NTASKS|NTASKS_PER_NODE|CPUS_PER_TASK|CPU_BIND|RESTART_COUNT)"
)
_SECRET_WORD = r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE"
_SECRET_NAME = re.compile(_SECRET_WORD, re.IGNORECASE)
_SECRET_FIELD = re.compile(rf"(\w*(?:{_SECRET_WORD})\w*\s*[=:]\s*)[^&,;\s]+", re.IGNORECASE)
_USERINFO = re.compile(r"([a-z][a-z0-9+.-]*://)[^/?#\s]*@", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\b(hf_|sk-|gh[opsu]_|github_pat_|glpat-|xox[abprs]-|AKIA|eyJ)[\w.-]{8,}")
_GPU_UUID = re.compile(r"\b(GPU|MIG)-[0-9A-Fa-f][\w/-]*")
_HOME = re.compile(r"(/home|/Users|[A-Za-z]:\\Users)[/\\][^/\\:;,\s]+")
_REDACTED = "<redacted>"
_LONGEST_VALUE = 500

_GIT_TIMEOUT_S = 10.0
_CODE = ("*.py", "*.toml")


def capture(
    repo: Path | None = None, devices: Mapping[str, str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Environment:
    """Return what this machine and its software are; costs some milliseconds and never fails for lack of a fact.

    Args:
        repo: a folder of the git checkout whose commit counts; None takes the one that holds parbench's own source, and
            none where parbench is installed from a wheel.
        devices: device -> model name, such as {"cuda:0": "NVIDIA H200"}; the caller knows: torch is not
            imported here.
        environ: environment variables; None takes this process's.
    """
    environ = os.environ if environ is None else environ
    devices = devices or {}
    hardware = _hardware() | {"devices": "; ".join(f"{name}: {devices[name]}" for name in sorted(devices)) or None}
    # Which slot a device is in does not make another class of machine; how many there are of a model does.
    hardware_class = {k: hardware[k] for k in ("cpu", "cores", "memory_gib", "arch")} | {
        "models": str(sorted(devices.values()))
    }
    versions = _versions()
    source = _source(repo)
    return Environment(
        fingerprint=_digest(hardware_class),
        software=_digest(versions | {"commit": source["commit"], "diff": source["diff"]}),
        facts={**hardware, **_system(), **versions, **source},
        variables=variables(environ),
    )


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those of `environ` that change results, without secrets, user names and home folders."""
    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")} | {_user()}
    homes = {environ.get(name, "").rstrip("/\\") for name in ("HOME", "USERPROFILE")}
    return {
        name: _REDACTED if _SECRET_NAME.search(name) else _harmless(environ[name], users, homes)
        for name in sorted(environ)
        if _VARIABLES.fullmatch(name)
    }


def host_name_hash() -> str:
    """Return 12 hexadecimal digits that tell hosts apart without naming them."""
    return hashlib.sha256(f"parbench host {socket.gethostname()}".encode()).hexdigest()[:12]


def _user() -> str:
    """Return this process's user name, which torch puts into folder names even where no variable says it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _harmless(value: str, users: set[str], homes: set[str]) -> str:
    value = _USERINFO.sub(rf"\1{_REDACTED}@", value)
    value = _SECRET_VALUE.sub(_REDACTED, _SECRET_FIELD.sub(rf"\1{_REDACTED}", value))
    value = _GPU_UUID.sub(lambda m: f"{m[1]}-{hashlib.sha256(m[0].encode()).hexdigest()[:8]}", value)
    for home in sorted(filter(None, homes), key=len, reverse=True):
        value = re.sub(rf"{re.escape(home)}(?=$|[/\\:;,\s])", "~", value)
    value = _HOME.sub("~", value)
    for user in filter(None, users):
        value = re.sub(rf"(?<![A-Za-z0-9]){re.escape(user)}(?![A-Za-z0-9])", "<user>", value)
    return value[:_LONGEST_VALUE]


def _hardware() -> dict[str, Fact]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "arch": platform.machine(),
    }


def _system() -> dict[str, Fact]:
    return {
        "host": host_name_hash(),
        "os": _os_name(),
        "kernel": f"{platform.system()} {platform.release()}",
        "container": _container(),
        "cpu_quota": _first_line(Path("/sys/fs/cgroup/cpu.max")),
        "load_1min": round(psutil.getloadavg()[0], 2),
    }


def _versions() -> dict[str, Fact]:
    found: dict[str, Fact] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            # A missing package is a fact too, but only of those that everybody would look for.
            if not package.startswith(("nvidia", "triton")):
                found[package] = None
    return found


def _source(repo: Path | None) -> dict[str, Fact]:
    """Return commit, whether anything differs from it, and a hash of the differing code; all None without git."""
    nothing: dict[str, Fact] = {"commit": None, "dirty": None, "diff": None}
    top = _checkout_of_parbench() if repo is None else _git(repo, "rev-parse", "--show-toplevel")
    if not top:
        return nothing
    root = Path(os.fsdecode(top).strip())
    status = _git(root, "status", "--porcelain")
    if status is None:
        return nothing
    commit = (_git(root, "rev-parse", "--verify", "--quiet", "HEAD") or b"").decode().strip() or None
    return {"commit": commit, "dirty": bool(status), "diff": _diff_hash(root, commit) if status else None}


def _checkout_of_parbench() -> bytes | None:
    """Return the top folder of the checkout that parbench is imported from.

    A wheel in an ignored .venv inside somebody's project is no part of that project: its commit would say nothing.
    """
    here = Path(__file__).resolve()
    ignored = _git(here.parent, "check-ignore", str(here))
    return None if ignored else _git(here.parent, "rev-parse", "--show-toplevel")


def _diff_hash(root: Path, commit: str | None) -> str:
    """Return a hash of what code differs from the commit, new files included; notes and results do not count."""
    digest = hashlib.sha256()
    if commit:
        digest.update(_git(root, "diff", "--no-ext-diff", "--no-textconv", "--binary", commit, "--", *_CODE) or b"")
    listed = _git(
        root, "ls-files", "-z", "--others", "--exclude-standard", *([] if commit else ["--cached"]), "--", *_CODE
    )
    for name in sorted(set((listed or b"").split(b"\0")) - {b""}):
        digest.update(name + b"\0")
        try:
            digest.update(hashlib.sha256((root / os.fsdecode(name)).read_bytes()).digest())
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git prints, or None where it fails, is missing or takes too long."""
    # Neither hooks nor monitors of the checkout run, and its index is only read.
    command: Sequence[str] = ("git", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model", "cpu model"))]
    return next(filter(None, named), platform.processor() or f"unknown {platform.machine()}")


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _container() -> str | None:
    """Return a hint that this is a container; None means that none was found."""
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    cgroup = _first_line(Path("/proc/1/cgroup")) or ""
    found = re.search(r"docker|kubepods|containerd|libpod|lxc", cgroup)
    return found[0] if found else None


def _first_line(path: Path) -> str | None:
    try:
        return (path.read_text(encoding="utf-8", errors="replace").splitlines() or [""])[0] or None
    except OSError:
        return None


def _digest(facts: Mapping[str, Fact]) -> str:
    text = "\n".join(f"{name}={facts[name]!r}" for name in sorted(facts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
