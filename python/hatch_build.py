"""The package's library, built by Cargo with the rest of the workspace: what `make` has built is used as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "_pithead.abi3.so"


class Library(BuildHookInterface):
    """Builds the library, and puts it into the wheel without what only debuggers read."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        built = build(root) / "release/lib_pithead.so"
        if version == "editable":
            shutil.copy(built, root / "python/pithead" / MODULE)
        else:
            self.folder = tempfile.TemporaryDirectory()
            stripped = Path(self.folder.name) / MODULE
            subprocess.run(["strip", "-o", stripped, built], check=True)
            build_data["force_include"][str(stripped)] = f"pithead/{MODULE}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"


def build(root: Path) -> Path:
    """Builds the whole workspace: a part of it would see other features, and compile most of it anew. The target folder."""
    environment = dict(os.environ)
    protoc = shutil.which("protoc")
    if protoc and not (root / ".tools/bin/protoc").exists():
        environment.setdefault("PROTOC", protoc)
    command = ["cargo", "build", "--release", "--workspace", "--locked"]
    subprocess.run(command, cwd=root, env=environment, check=True)
    return root / os.environ.get("CARGO_TARGET_DIR", "target")
