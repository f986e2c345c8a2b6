"""`parbench compare` on stored records: what is printed, in which form, and the exit codes."""

import json
from pathlib import Path

import pytest
from compare_cases import a_record, launches

REFERENCE = Path(__file__).parent.parent.parent / "results" / "reference" / "default"
SLOW, FAST = [0.02, 0.0203, 0.0199, 0.0201, 0.0202], [0.01, 0.0102, 0.0099, 0.01, 0.0101]


def test_the_stored_reference_results_compare_without_a_doubt_that_is_none(command):
    code, document, _ = command("compare", REFERENCE, "--json")
    assert code == 0
    assert document["schema"] == {"name": "parbench.comparison", "major": 1, "minor": 0}
    times = {
        (cell["workload"], cell["strategy"]): one["word"]
        for cell in document["cells"]
        for one in cell["metrics"]
        if one["metric"] == "step_time_s"
    }
    assert times["digits/small", "fsdp"] == "slower"
    assert times["text/small", "ddp"] == "inconclusive"


def test_what_is_compared_with_itself_is_the_same(command):
    code, document, _ = command("compare", REFERENCE, REFERENCE, "--json")
    assert code == 0
    assert {one["verdict"] for cell in document["cells"] for one in cell["metrics"]} == {"same"}


def test_two_paths_put_changes_first_and_count_the_rest(command, stored):
    old = stored("old", [*launches(FAST), *launches(FAST, strategy="fsdp")])
    new = stored("new", [*launches(FAST), *launches(SLOW, strategy="fsdp")])
    code, out, _ = command("compare", old, new)
    assert code == 0
    rows = [line for line in out.splitlines() if "digits/small" in line]
    assert "fsdp" in rows[0]
    assert "slower" in rows[0]
    assert "2.00×" in rows[0].replace("2.01×", "2.00×")
    assert "measured at different times" in out


def test_markdown_says_that_nothing_changed_only_where_that_is_known(command, stored):
    """One launch of a few rounds each, 1.5 times as long: that is inconclusive, and no news of no change."""
    old, new = stored("old", [a_record([0.01])]), stored("new", [a_record([0.015])])
    code, out, _ = command("compare", old, new, "--markdown")
    assert code == 0
    assert "Nothing changed" not in out
    assert "No change can be named: 2 inconclusive" in out
    same = stored("same", [a_record([0.01], sweep="two")])
    assert "Nothing changed." in command("compare", old, same, "--markdown")[1]


def test_markdown_shows_names_as_they_are(command, stored):
    hostile = "ddp(x='<img src=x>|`')"
    path = stored("results", [*launches(FAST), *launches(SLOW, strategy=hostile)])
    code, out, _ = command("compare", path, "--reference", "ddp", "--markdown")
    assert code == 0
    assert "<img" not in out
    rows = [line for line in out.splitlines() if line.startswith("| digits") and "slower" in line]
    assert all(line.replace("\\|", "").count("|") in (9, 10) for line in rows)
    assert rows


def test_a_terminal_is_not_steered_by_names(command, stored):
    path = stored("results", [*launches(FAST), *launches(SLOW, strategy="ddp(x='\x1b[31m')")])
    _, out, _ = command("compare", path, "--reference", "ddp")
    assert "\x1b" not in out
    assert "\\x1b[31m" in out.replace("\n", "")


def test_another_machine_is_refused_with_exit_1(command, stored):
    old, new = stored("old", launches(FAST)), stored("new", launches(SLOW, fingerprint="other"))
    code, out, err = command("compare", old, new)
    assert (code, out) == (1, "")
    assert "--allow machine" in err
    assert command("compare", old, new, "--allow", "machine")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere",),
        (REFERENCE, "--allow", "machine"),
        (REFERENCE, REFERENCE, "--reference", "ddp"),
        (REFERENCE, "--markdown", "--json"),
        (REFERENCE, "--margin", "200%"),
        (REFERENCE, "--margin", "nan"),
        (REFERENCE, "--reference", "no"),
    ],
)
def test_what_makes_no_sense_is_refused_with_one_sentence(command, arguments):
    code, out, err = command("compare", *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_a_folder_of_damaged_records_is_exit_7(command, stored, tmp_path):
    path = Path(stored("results", launches(FAST[:1])))
    (file,) = path.rglob("record.json")
    file.write_bytes(file.read_bytes()[:100])
    code, _, err = command("compare", path)
    assert code == 7
    assert "cannot be read" in err


def test_strict_fails_where_a_step_time_cannot_be_told(command, stored):
    few = stored("few", [*launches(FAST[:2]), *launches(FAST[1:3], strategy="fsdp")])
    assert command("compare", few, "--reference", "ddp")[0] == 0
    assert command("compare", few, "--reference", "ddp", "--strict")[0] == 1


def test_one_round_is_shown_and_not_judged(command, stored):
    path = stored("one", [a_record([0.01]), a_record([0.02], strategy="fsdp")])
    code, document, _ = command("compare", path, "--reference", "ddp", "--json")
    (cell,) = [one for one in document["cells"] if one["strategy"] == "fsdp"]
    (time,) = [m for m in cell["metrics"] if m["metric"] == "step_time_s"]
    assert (code, time["verdict"], time["low"]) == (0, "inconclusive", None)
    assert json.dumps(document)
