"""Energy of CPU packages from a tree like the kernel's."""

from parbench import rapl


def domain(root, name, label, energy_uj, full_uj=262143328850):
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{full_uj}\n")
    return folder


def test_packages_count_and_their_parts_do_not(tmp_path):
    domain(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    domain(tmp_path, "intel-rapl:0:0", "core", 3_000_000)
    domain(tmp_path, "intel-rapl:1", "package-1", 7_000_000)
    domain(tmp_path, "intel-rapl:2", "psys", 20_000_000)
    found = rapl.packages(tmp_path)
    assert [one.name for one in found] == ["package-0", "package-1"]
    assert [one.read() for one in found] == [(None, 5.0), (None, 7.0)]


def test_a_full_counter_starts_again_and_goes_on(tmp_path):
    folder = domain(tmp_path, "intel-rapl:0", "package-0", 9_000_000, full_uj=10_000_000)
    (package,) = rapl.packages(tmp_path)
    assert package.read() == (None, 9.0)
    (folder / "energy_uj").write_text("2000000")
    assert package.read() == (None, 12.0)


def test_a_counter_that_goes_away_leaves_a_gap(tmp_path):
    folder = domain(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    (package,) = rapl.packages(tmp_path)
    (folder / "energy_uj").unlink()
    assert package.read() == (None, None)


def test_a_machine_without_counters_has_a_sentence(tmp_path):
    assert "no RAPL counters" in rapl.packages(tmp_path / "none")
    domain(tmp_path, "intel-rapl:0:0", "core", 1)
    assert "no RAPL counters" in rapl.packages(tmp_path)


def test_counters_of_root_have_another(tmp_path, monkeypatch):
    folder = domain(tmp_path, "intel-rapl:0", "package-0", 1)
    real = type(folder).read_text

    def read_text(path, *arguments, **named):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)

    monkeypatch.setattr(type(folder), "read_text", read_text)
    assert "root only" in rapl.packages(tmp_path)
