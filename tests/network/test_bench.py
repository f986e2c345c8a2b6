"""Measured collectives: sizes, factors, rows, files, refusals, and a wrong result that is told."""

import csv
import json
import threading

import pytest
import torch
import torch.distributed as dist

from parbench import cli
from parbench.errors import UsageError
from parbench.launch.messages import Collectives, CollectivesDone
from parbench.network import patterns
from parbench.network.algorithms import Algorithm, Native, OwnRing
from parbench.network.bench import Measured, Row, Wanted, affordable, check_memory, foreseen_s, gathered, series
from parbench.network.bench_output import csv_of, json_of
from parbench.network.collective_rank import Buffers
from parbench.network.collectives import DTYPES, OPS, bus_factor, numel_of, size_of, sizes

pytestmark = pytest.mark.nightly

ROW = ["op", "algorithm", "ranks", "bytes", "median_s", "busbw_bytes_per_s", "wire_bytes_per_rank", "correct"]


def test_sizes_are_read_and_multiplied():
    assert [size_of(text, "--min") for text in ("8", "1kB", "4KiB", "64 MiB", "1gb")] == [8, 1000, 4096, 2**26, 10**9]
    assert sizes(8, 128, 4) == (8, 32, 128)
    assert sizes(8, 8, 2) == (8,)
    for text in ("", "0", "-8", "8.5", "1e3", "MiB", "8 parsecs", "9" * 13, "\x1b[0m"):
        with pytest.raises(UsageError, match="--min must be a whole number of bytes"):
            size_of(text, "--min")
    for arguments in ((8, 4, 2), (8, 16, 1), (8, 16, float("nan")), (8, 16, float("inf"))):
        with pytest.raises(UsageError, match="--factor must be"):
            sizes(*arguments)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_bus_bandwidth_has_the_factors_of_nccl_tests_by_group_size(n):
    expected = {
        "all_reduce": 2 * (n - 1) / n,
        "reduce_scatter": (n - 1) / n,
        "all_gather": (n - 1) / n,
        "all_to_all": (n - 1) / n,
        "broadcast": 1,
        "send_recv": 1,
    }
    assert set(expected) == set(OPS)
    for op, factor in expected.items():
        one = measured(op, n, nbytes=8_000_000, samples_s=(2.0, 4.0, 9.0))
        assert float(bus_factor(op, n)) == pytest.approx(factor)
        assert one.algbw_bytes_per_s == pytest.approx(2_000_000)
        assert one.row.busbw_bytes_per_s == pytest.approx(2_000_000 * factor)


def measured(op="all_reduce", ranks=4, *, nbytes=64, samples_s=(1.0, 2.0, 3.0), **changes):
    wanted = Wanted(op=op, algorithm="native", ranks=ranks, bytes=nbytes, iterations=len(samples_s))
    return Measured(**{"wanted": wanted, "samples_s": samples_s, "sent_bytes": (96.0, 98.0), **changes})


def test_an_iteration_ends_with_the_slowest_rank_and_times_add_up_to_the_whole():
    parts = [
        CollectivesDone(start_s=10.0, ends_s=(11.0, 15.0, 16.0), sent_bytes=5),
        CollectivesDone(start_s=10.5, ends_s=(12.0, 14.0, 18.0), sent_bytes=7),
    ]
    one = gathered(Wanted(op="all_reduce", algorithm="ring", ranks=2, bytes=8), parts)
    assert one.samples_s == (1.5, 3.0, 3.0)
    assert sum(one.samples_s) == 18.0 - 10.5
    assert one.row.wire_bytes_per_rank == 7
    assert one.row.median_s == 3.0
    uncounted = gathered(one.wanted, [parts[0], CollectivesDone(start_s=1, ends_s=(20.0, 21.0, 22.0))])
    assert uncounted.row.wire_bytes_per_rank is None


def test_rows_have_exactly_the_promised_fields_and_details_every_sample():
    document = json.loads(json_of([measured(), measured("broadcast", sent_bytes=None)], {"backend": "gloo"}))
    assert document["schema"] == {"name": "parbench.network.bench", "major": 1, "minor": 0}
    assert [list(row) for row in document["rows"]] == [ROW, ROW]
    assert list(Row.__struct_fields__) == ROW
    assert document["rows"][1]["wire_bytes_per_rank"] is None
    assert document["details"][0]["samples_s"] == [1.0, 2.0, 3.0]
    assert document["details"][0]["p99_s"] == pytest.approx(2.98)


def test_csv_has_a_line_per_row_and_is_no_formula(tmp_path):
    setting = {"backend": "gloo", "network": "=HYPERLINK(1)"}
    (tmp_path / "x.csv").write_bytes(csv_of([measured(), measured(wrong="rank 1: element 0")], setting))
    with (tmp_path / "x.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0])[: len(ROW)] == ROW
    assert [row["correct"] for row in rows] == ["true", "false"]
    assert rows[0]["samples_s"] == "1.0 2.0 3.0"
    assert rows[0]["network"] == "'=HYPERLINK(1)"
    assert float(rows[0]["wire_bytes_per_rank"]) == 98


def test_the_series_leaves_out_what_the_ring_does_not_do_and_rounds_parts_up():
    found = series(["all_gather", "all_to_all"], ["native", "ring"], [4], [8, 64])
    kinds = [(one.op, one.algorithm, one.bytes) for one in found]
    assert kinds == [
        ("all_gather", "native", 16),
        ("all_gather", "ring", 16),
        ("all_gather", "native", 64),
        ("all_gather", "ring", 64),
        ("all_to_all", "native", 16),
        ("all_to_all", "native", 64),
    ]
    assert {one.alpha_s for one in series(["all_reduce"], ["ring"], [2], [8], alpha_s=0.5)} == {0.5}
    assert {one.alpha_s for one in series(["all_reduce"], ["native"], [2], [8], alpha_s=0.5)} == {0.0}
    assert numel_of("all_reduce", 9, "float64", 4) == 2
    with pytest.raises(UsageError, match="the ring does"):
        series(["all_to_all"], ["ring"], [4], [8])
    with pytest.raises(UsageError, match=r"800\.0 GiB|needs about"):
        check_memory(series(["all_reduce"], ["ring"], [4], [2**33]), 2**30)


def test_slow_sizes_get_fewer_iterations_but_never_none():
    assert foreseen_s([], 8) == 0
    assert foreseen_s([(8, 0.1)], 4096) == 0.1
    assert foreseen_s([(1000, 0.1), (2000, 0.2)], 8000) == pytest.approx(0.8)
    wanted = Wanted(op="all_reduce", algorithm="ring", ranks=2, bytes=8, warm_up=5, iterations=20)
    assert affordable(wanted, 0.1, 10) == wanted
    assert affordable(wanted, 1.0, 10).iterations == 8
    assert affordable(wanted, 100.0, 10).iterations == 3
    assert affordable(wanted, 100.0, 10).warm_up == 1
    assert affordable(Wanted(op="x", algorithm="ring", ranks=2, bytes=8, iterations=1), 100.0, 10).iterations == 1


# ---- the check


class Backwards(Algorithm):
    """Does everything right and then one thing wrong."""

    ops = frozenset(OPS)

    def __init__(self, right, spoil):
        self.right, self.spoil = right, spoil

    def run(self, op, given, result):
        self.right.run(op, given, result)
        self.spoil(result)


SPOILED = {
    "one element": lambda result: result[-1:].add_(1),
    "nothing sent": lambda result: result.zero_(),
    "two elements swapped": lambda result: result.copy_(result.flip(0)),
    "halved": lambda result: result.copy_(result // 2),
}


@pytest.fixture(scope="module")
def alone():
    """A group of one rank, in which every collective gives back what was put in."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Native(dist.group.WORLD, 0, 1)
    dist.destroy_process_group()


@pytest.mark.parametrize("op", [op for op in OPS if op != "send_recv"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_result_is_told_and_a_right_one_is_not(alone, op, dtype):
    buffers = Buffers(Collectives(op=op, algorithm="native", ranks=1, bytes=4000, dtype=dtype), 0, torch.device("cpu"))
    assert buffers.check(alone, salt=1) is None
    for spoil in SPOILED.values():
        told = buffers.check(Backwards(alone, spoil), salt=1)
        assert told is not None
        assert "elements differ" in told


def test_what_is_expected_is_what_the_definitions_say():
    n, numel = 3, 12
    put_in = [patterns.given("all_reduce", rank, n, numel, 7) for rank in range(n)]
    total = sum(put_in)
    for rank in range(n):
        part = slice(rank * 4, rank * 4 + 4)
        assert (patterns.expected("all_reduce", rank, n, numel, 7) == total).all()
        assert (patterns.expected("reduce_scatter", rank, n, numel, 7) == total[part]).all()
        assert (patterns.expected("send_recv", rank, n, numel, 7) == put_in[rank - 1]).all()
        assert (patterns.expected("broadcast", rank, n, numel, 7) == put_in[0]).all()
        exchanged = patterns.expected("all_to_all", rank, n, numel, 7)
        assert all((exchanged[j * 4 : j * 4 + 4] == put_in[j][part]).all() for j in range(n))
    assert not (put_in[0] == patterns.given("all_reduce", 0, n, numel, 8)).all()


def test_the_ring_passes_the_check(tmp_path):
    from test_ring import rings, together

    with rings(3) as made:
        for op in sorted(OwnRing.ops):
            asked = Collectives(op=op, algorithm="ring", ranks=3, bytes=4000, dtype="bfloat16")
            told = together(
                3, lambda rank, asked=asked: Buffers(asked, rank, torch.device("cpu")).check(OwnRing(made[rank]), 1)
            )
            assert told == [None] * 3
    assert threading.active_count() < 20


# ---- the command


@pytest.fixture
def run_cli(capfd, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["parbench", *map(str, arguments)])
        try:
            code = cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        return (code, *capfd.readouterr())

    return run


@pytest.mark.usefixtures("no_orphans")
def test_bench_prints_one_document_of_correct_rows_and_a_csv(run_cli, tmp_path, mark):
    arguments = ("--min", "64", "--max", "256KiB", "--factor", "4096", "--iterations", "4", "--warm-up", "1")
    code, out, err = run_cli("network", "bench", "-n", "2", *arguments, "--csv", tmp_path / "new" / "x.csv", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["backend"], document["network"]) == ("gloo", "loopback")
    rows = document["rows"]
    assert all(list(row) == ROW and row["correct"] and row["median_s"] > 0 for row in rows)
    assert {(row["op"], row["algorithm"]) for row in rows} == {(op, "native") for op in OPS} | {
        (op, "ring") for op in OwnRing.ops
    }
    wire = {(row["op"], row["algorithm"]): row["wire_bytes_per_rank"] for row in rows if row["bytes"] > 200_000}
    size = {(row["op"], row["algorithm"]): row["bytes"] for row in rows if row["bytes"] > 200_000}
    for op, algorithm, factor in [
        ("all_reduce", "native", 1),
        ("all_reduce", "ring", 1),
        ("all_gather", "native", 1 / 2),
        ("all_gather", "ring", 1 / 2),
        ("reduce_scatter", "native", 1),  # gloo moves an all-reduce's bytes
        ("reduce_scatter", "ring", 1 / 2),
        ("send_recv", "native", 1),
    ]:
        assert wire[op, algorithm] == pytest.approx(factor * size[op, algorithm], rel=0.02)
    assert all(len(one["samples_s"]) == 4 for one in document["details"])
    assert len((tmp_path / "new" / "x.csv").read_text().splitlines()) == 1 + len(rows)


@pytest.mark.usefixtures("no_orphans")
def test_bench_exits_with_1_and_says_so_where_a_result_is_wrong(run_cli, monkeypatch, mark):
    real = gathered

    def spoiled(wanted, parts):
        return real(wanted, [*parts[:-1], CollectivesDone(**{**as_fields(parts[-1]), "wrong": "rank 1: element 0"})])

    def as_fields(part):
        return {name: getattr(part, name) for name in part.__struct_fields__}

    monkeypatch.setattr("parbench.network.bench.gathered", spoiled)
    code, out, err = run_cli(
        "network", "bench", "--op", "all_reduce", "--algorithm", "ring", "--max", "8", "--iterations", "2"
    )
    assert code == 1
    assert "✗ WRONG" in out
    assert "WRONG: all_reduce (ring) of 8 bytes: rank 1: element 0" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--op", "all_reduec"), 2, "did you mean 'all_reduce'"),
        (("--algorithm", "tree"), 2, "no algorithm named 'tree'"),
        (("--dtype", "float8"), 2, "no type named 'float8'"),
        (("--min", "8parsecs"), 2, "--min must be a whole number of bytes"),
        (("--min", "64", "--max", "8"), 2, "--min must not exceed --max"),
        (("--factor", "1"), 2, "--factor must be from 1.01"),
        (("--factor", "nan"), 2, "--factor must be from 1.01"),
        (("-n", "1"), 2, "Invalid value"),
        (("-n", "86"), 2, "from 2 to 85 ranks"),
        (("--iterations", "0"), 2, "Invalid value"),
        (("--max", "100GB"), 2, "lower --max"),
        (("--op", "all_to_all", "--algorithm", "ring"), 2, "add --algorithm native"),
        (("--device", "tpu"), 2, "no device named 'tpu'"),
        (("--backend", "nccl"), 3, "--backend nccl"),
        (("--network", "fast"), 2, "no network named 'fast'"),
        (("--csv", "/proc/nowhere/x.csv"), 6, "cannot be written to"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(run_cli, monkeypatch, arguments, code, said):
    monkeypatch.setattr("parbench.session.LocalRanks.start", lambda *_, **__: pytest.fail("ranks were started"))
    monkeypatch.setenv("COLUMNS", "200")
    found, out, err = run_cli("network", "bench", *arguments)
    assert (found, out) == (code, "")
    assert said in " ".join(err.split())
