"""Puts the documentation's pages into the package as it is built: messages point to them (`msrl docs`)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithDocs(build_py):
    def run(self) -> None:
        super().run()
        for page in Path("docs").rglob("*.md"):
            to = Path(self.build_lib) / "msrl" / page
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, to)


setup(cmdclass={"build_py": BuildWithDocs})
