"""The build backend: setuptools, and the documentation's pages in every wheel and source distribution.

A clone has no pages, so building from it asks for MkDocs; a source distribution brings them. Editable installs and builds without
isolation go without: `make docs` writes the pages, and `dovetail docs` says so.
"""

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (what is not said here stays)

ROOT = Path(__file__).parents[1]
FROM_CLONE = not (ROOT / "PKG-INFO").exists()


def _needed(of_setuptools):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return of_setuptools + (project["optional-dependencies"]["docs"] if FROM_CLONE else [])


def _write_pages():
    if FROM_CLONE and find_spec("mkdocs"):
        subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q"], cwd=ROOT, check=True)


def get_requires_for_build_wheel(config_settings=None):
    """What must be installed to build a wheel."""
    return _needed(build_meta.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_sdist(config_settings=None):
    """What must be installed to build a source distribution."""
    return _needed(build_meta.get_requires_for_build_sdist(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the wheel, with the pages."""
    _write_pages()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """Build the source distribution, with the pages."""
    _write_pages()
    return build_meta.build_sdist(sdist_directory, config_settings)
