"""Two commands in turns: the order, what their results are compared by, and commands that do not measure."""

import pytest
from compare_cases import runs

from parbench.recordfile import RECORD, encode_record

OLD = [0.0100, 0.0102, 0.0099, 0.0101]


@pytest.fixture
def measuring(tmp_path):
    """Return a command that, each time it is run, 'measures' the next of the records, and notes that it ran."""

    def make(name, records):
        for record in records:
            folder = tmp_path / name / record.id
            folder.mkdir(parents=True)
            (folder / RECORD).write_bytes(encode_record(record))
        script = tmp_path / f"{name}.sh"
        script.write_text(
            f'echo {name} >> "{tmp_path}/order"\nmkdir -p "$1/suite"\n'
            f'next=$(ls "{tmp_path}/{name}" | head -1)\nmv "{tmp_path}/{name}/$next" "$1/suite/"\n'
        )
        return f"sh {script} {{out}}"

    return make


def in_turns(command, base, head, tmp_path, *more):
    return command("check", "--base", base, "--against-head", head, "--launches", "4", "-o", tmp_path / "out", *more)


def test_head_that_is_slower_fails_and_base_and_head_take_turns(command, measuring, tmp_path):
    base = measuring("base", runs(OLD))
    head = measuring("head", runs([1.1 * x for x in OLD], first=500))
    code, document, _ = in_turns(command, base, head, tmp_path, "--json")
    assert code == 1
    assert {one["metric"]: one["outcome"] for one in document["checked"]} == {
        "step_time_s": "regression",
        "samples_per_s": "regression",
    }
    assert (tmp_path / "order").read_text().split() == ["base", "head", "head", "base", "base", "head", "head", "base"]


def test_head_that_is_as_fast_passes_and_a_faster_one_too(command, measuring, tmp_path):
    base, head = measuring("base", runs(OLD)), measuring("head", runs(list(reversed(OLD)), first=500))
    assert in_turns(command, base, head, tmp_path)[0] == 0
    base, head = measuring("base2", runs(OLD)), measuring("head2", runs([0.7 * x for x in OLD], first=500))
    code, out, _ = in_turns(command, base, head, tmp_path)
    assert code == 0
    assert "2 improvement" in out


def test_a_cell_that_head_lost_or_broke_fails(command, measuring, tmp_path):
    base = measuring("base", runs(OLD))
    head = measuring("head", runs(OLD, first=500, status="failed"))
    code, out, _ = in_turns(command, base, head, tmp_path)
    assert code == 1
    assert "rank 1 raised" in out


def test_head_that_stores_nothing_never_passes(command, measuring, tmp_path):
    code, _, err = in_turns(command, measuring("base", runs(OLD)), "true", tmp_path)
    assert code == 1
    assert "an empty result never passes" in err or "no file or folder" in err


def test_code_that_changed_while_it_was_measured_is_no_version(command, measuring, tmp_path):
    edited = [*runs(OLD[:2], first=500), *runs(OLD[2:], first=600, software="edited")]
    code, _, err = in_turns(command, measuring("base", runs(OLD)), measuring("head", edited), tmp_path)
    assert code == 1
    assert "changed while it was measured" in err


@pytest.mark.parametrize(
    ("head", "code", "told"),
    [
        ("", 2, "empty"),
        ("'", 2, "quotes"),
        ("no-such-program-anywhere", 3, "cannot be started"),
        ("sh -c 'echo what went wrong >&2; exit 2'", 1, "what went wrong"),
    ],
)
def test_commands_that_do_not_measure_are_one_sentence(command, measuring, tmp_path, head, code, told):
    found, _, err = in_turns(command, measuring("base", runs(OLD)), head, tmp_path)
    assert found == code
    assert told in err.splitlines()[-1]


@pytest.mark.parametrize("flags", [(), ("--base", "x"), ("results",), ("results", "--against-head", "x")])
def test_half_of_either_form_is_refused(command, flags):
    code, _, err = command("check", *flags)
    assert code == 2
    assert "--baseline PATH" in err
