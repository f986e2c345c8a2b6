"""Whatever fails while a result is stored, readers see all of it or none of it, and what was there stays as it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from parbench.errors import StoreError
from parbench.record import Environment, RunRecord
from parbench.spec import RunSpec, spec_id
from parbench.store import Filesystem, Store, find_records

SPEC = RunSpec(workload="digits", strategy="ddp")
RECORD = RunRecord(
    id="run",
    suite="s",
    status="complete",
    started_at="2026-11-30T11:22:33Z",
    spec=SPEC,
    spec_id=spec_id(SPEC),
    environment=Environment(fingerprint="f", software="s", facts={}),
)
STEPS = {"rank": [0, 1], "step": [0, 0], "seconds": [0.5, 0.25]}
OLD = msgspec.structs.replace(RECORD, id="old")


class Failing(Filesystem):
    """The real system calls, of which the n-th (and, for a full disk, every later write) fails."""

    def __init__(self, n: int, code: int = errno.ENOSPC, *, stays_full: bool = False) -> None:
        self.n, self.code, self.stays_full, self.calls = n, code, stays_full, 0

    def _count(self, name: str) -> None:
        self.calls += 1
        if self.calls == self.n or (self.stays_full and self.calls > self.n and name in ("write", "mkdir", "create")):
            raise OSError(self.code, os.strerror(self.code))

    def mkdir(self, path: Path) -> None:
        self._count("mkdir")
        super().mkdir(path)

    def create(self, path: Path) -> int:
        self._count("create")
        return super().create(path)

    def write(self, handle: int, data: memoryview) -> int:
        # At most half of it, as a nearly full disk does.
        written = super().write(handle, data[: max(1, len(data) // 2)])
        self._count("write")
        return written

    def sync(self, handle: int) -> None:
        self._count("sync")
        super().sync(handle)

    def close(self, handle: int) -> None:
        super().close(handle)
        self._count("close")

    def open_folder(self, path: Path) -> int:
        self._count("open_folder")
        return super().open_folder(path)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename")
        super().rename(old, new)

    def replace(self, old: Path, new: Path) -> None:
        self._count("replace")
        super().replace(old, new)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


@pytest.mark.parametrize("stays_full", [False, True])
def test_the_nth_failing_call_leaves_old_or_new(tmp_path: Path, stays_full: bool) -> None:
    """F1: the n-th system call fails, for n = 1, 2, ... until storing succeeds."""
    root, log = tmp_path / "r", tmp_path / "rank0.log"
    log.write_bytes(b"log" * 1000)
    Store(root).write(OLD, steps=STEPS, files={})
    before, before_names = snapshot(root), names(root)
    for n in range(1, 500):
        descriptors = open_descriptors()
        try:
            Store(root, Failing(n, stays_full=stays_full)).write(RECORD, steps=STEPS, files={"log/rank0.log": log})
            break
        except StoreError as error:
            said = str(error)
        assert "No space left on device" in said
        assert str(root) in said
        assert snapshot(root) == before
        assert names(root) == before_names
        assert open_descriptors() == descriptors
    else:
        pytest.fail("storing never succeeded")
    assert n > 20
    assert {r.id for r in find_records(root)[0]} == {"old", "run"}
    assert {name: data for name, data in snapshot(root).items() if name in before} == before


def test_the_nth_failing_call_in_an_empty_place(tmp_path: Path) -> None:
    for n in range(1, 500):
        root = tmp_path / str(n)
        try:
            Store(root, Failing(n, errno.EIO)).write(RECORD, steps=STEPS, files={})
            break
        except StoreError:
            assert snapshot(tmp_path) == {}
            assert not [name for name in names(tmp_path) if ".partial" in name]
    assert n > 20
    assert len(find_records(root)[0]) == 1


def test_the_nth_failing_call_leaves_a_whole_document(tmp_path: Path) -> None:
    Store(tmp_path).write_document("d.json", b"old" * 100)
    for n in range(1, 100):
        try:
            Store(tmp_path, Failing(n)).write_document("d.json", b"new" * 100)
            break
        except StoreError:
            assert names(tmp_path) == ["d.json"]
            assert (tmp_path / "d.json").read_bytes() in (b"old" * 100, b"new" * 100)
    assert n > 5
    assert (tmp_path / "d.json").read_bytes() == b"new" * 100


def test_an_interruption_cleans_up_too(tmp_path: Path) -> None:
    class Interrupted(Filesystem):
        def sync(self, handle: int) -> None:
            raise KeyboardInterrupt

    (tmp_path / "s").mkdir()
    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path, Interrupted()).write(RECORD, steps=STEPS, files={})
    assert names(tmp_path) == ["s"]


def test_a_log_that_cannot_be_copied_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing\.log"):
        Store(tmp_path / "r").write(RECORD, steps=STEPS, files={"log/x.log": tmp_path / "missing.log"})
    assert snapshot(tmp_path) == {}


CHILDREN = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from test_store_faults import Failing, RECORD, STEPS, Store
import msgspec, pyarrow
pyarrow.array([1.0])  # imports what is slow once, not in every child

class Killed(Failing):
    def _count(self, name: str) -> None:
        self.calls += 1
        if self.calls == self.n:
            os.kill(os.getpid(), signal.SIGKILL)

def child(work) -> None:
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

"""


def run_children(code: str, *arguments: object) -> str:
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN.format(tests=here) + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_process_killed_at_any_call_leaves_old_or_new(tmp_path: Path) -> None:
    """F2: SIGKILL at each system call; stray temporary names are ignored, and removed by the next write."""
    code = """
root = Path(sys.argv[1])
for n in range(1, 500):
    pid = child(lambda: Store(root / str(n), Killed(n)).write(RECORD, steps=STEPS, files={"log/x": Path(sys.argv[2])}))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        break
print(n)
"""
    log = tmp_path / "x.log"
    log.write_text("x")
    last = int(run_children(code, tmp_path / "r", log))
    assert last > 20
    strays = 0
    for n in range(1, last):
        root = tmp_path / "r" / str(n)
        if not root.exists():
            continue
        records, problems = find_records(root)
        assert problems == []
        assert [r.id for r in records] in ([], ["run"])
        strays += sum(".partial" in name for name in names(root))
        Store(root).write(msgspec.structs.replace(RECORD, id="next"), steps=STEPS, files={})
        assert not [name for name in names(root) if ".partial" in name]
        assert len(find_records(root)[0]) == len(records) + 1
    assert strays > 10


def test_twenty_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """F3: one folder, twenty writers that start together."""
    code = """
from parbench.store import new_run_id
go, hold = os.pipe()
def work() -> None:
    os.close(hold)
    os.read(go, 1)
    Store(Path(sys.argv[1])).write(msgspec.structs.replace(RECORD, id=new_run_id()), steps=STEPS, files={})
pids = [child(work) for _ in range(20)]
os.close(hold)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in pids]))
"""
    run_children(code, tmp_path / "same")
    records, problems = find_records(tmp_path / "same")
    assert (len({r.id for r in records}), problems) == (20, [])
    assert not [name for name in names(tmp_path) if ".partial" in name]


def test_of_two_writers_of_one_name_one_wins(tmp_path: Path) -> None:
    code = """
from parbench.errors import StoreError
go, hold = os.pipe()
def work() -> None:
    os.close(hold)
    os.read(go, 1)
    try:
        Store(Path(sys.argv[1])).write(RECORD, steps=STEPS, files={})
    except StoreError:
        os._exit(6)
pids = [child(work) for _ in range(8)]
os.close(hold)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
"""
    assert run_children(code, tmp_path / "r").strip() == str([0] + [6] * 7)
    assert names(tmp_path / "r") == ["s", "s/run", "s/run/record.json", "s/run/steps.parquet"]


def test_partial_folders_of_living_processes_are_left_alone(tmp_path: Path) -> None:
    from parbench.filesystem import partial_name

    ours = tmp_path / "s" / partial_name("other")
    foreign = tmp_path / "s" / ".partial-00000000-999999999-x"
    for folder in (ours, foreign):
        folder.mkdir(parents=True)
    Store(tmp_path).write(RECORD, steps=STEPS, files={})
    assert ours.exists()
    assert foreign.exists()


# F9: the probe


def test_the_probe_makes_the_folder_and_leaves_nothing(tmp_path: Path) -> None:
    Store(tmp_path / "a" / "b").probe()
    assert names(tmp_path) == ["a", "a/b"]


def test_the_probe_follows_a_link_that_the_user_gave(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Store(tmp_path / "link").probe()
    Store(tmp_path / "link").write(RECORD, steps=STEPS, files={})
    assert len(find_records(tmp_path / "real")[0]) == 1


@pytest.mark.parametrize("where", ["file", "file/below", "dangling", "loop", "x" * 300, "a\0b", "/proc/nothing/here"])
def test_the_probe_fails_before_a_run_starts(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "dangling").symlink_to(tmp_path / "file" / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / where).probe()
    assert caught.value.exit_code == 6
    assert "cannot store results in" in str(caught.value)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_the_probe_tries_every_call(tmp_path: Path, code: int) -> None:
    for n in range(1, 50):
        try:
            Store(tmp_path / "r", Failing(n, code)).probe()
            break
        except StoreError as error:
            said = str(error)
        assert errno.errorcode[code] in said
        assert names(tmp_path) in ([], ["r"])
    assert n > 5


def test_a_folder_without_rights(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir()
    shut.chmod(0o500)
    if os.geteuid() == 0:
        made = subprocess.run(["chattr", "+i", str(shut)], capture_output=True, check=False)
        if made.returncode:
            pytest.skip("root may write anywhere here, and chattr +i does not work on this filesystem")
    try:
        with pytest.raises(StoreError):
            Store(shut).probe()
        with pytest.raises(StoreError):
            Store(shut / "below").probe()
    finally:
        if os.geteuid() == 0:
            subprocess.run(["chattr", "-i", str(shut)], check=True)
    assert names(tmp_path) == ["shut"]
