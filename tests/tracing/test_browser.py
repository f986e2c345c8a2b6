"""A merged trace opens in a trace viewer in a real browser: speedscope in Chromium, without a network.

The viewer is no package of Python: `npm install speedscope`, and SPEEDSCOPE=.../node_modules/speedscope/dist/release.
"""

import base64
import gzip
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
VIEWER = Path(os.environ.get("SPEEDSCOPE", "/nonexistent")) / "index.html"


@pytest.mark.nightly
@pytest.mark.skipif(BROWSER is None or not VIEWER.is_file(), reason="needs Chromium, and SPEEDSCOPE to name the viewer")
def test_a_merged_trace_opens_in_a_browser(foreign, command, tmp_path):
    merged = tmp_path / "merged.json.gz"
    assert command(foreign / "ddp", "-o", merged)[0] == 0
    encoded = base64.b64encode(gzip.decompress(merged.read_bytes())).decode()
    script = tmp_path / "load.js"
    script.write_text(f"speedscope.loadFileFromBase64('merged.json', {json.dumps(encoded)})")
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader"),
            *(
                "--allow-file-access-from-files",
                "--virtual-time-budget=15000",
                f"--user-data-dir={tmp_path / 'profile'}",
            ),
            *("--dump-dom", f"file://{VIEWER}#localProfilePath={script}"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=80,
    )
    # Two ranks, and on each the lanes of collectives, the thread that steps and what else the profiler saw.
    assert "rank 0 (pid 0), collectives (tid 1)" in done.stdout, done.stderr[-2000:]
    assert "Something went wrong" not in done.stdout
