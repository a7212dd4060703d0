"""`msrl docs`, and that messages of an installed package point to pages that it holds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msrl.cli.docs import cut_section

ROOT = Path(__file__).parents[2]


def test_pages_are_listed_and_printed(msrl):
    code, out, _ = msrl("docs")
    assert code == 0 and "  distributions      Distributions\n" in out and "  algorithms/ppo     PPO\n" in out
    assert msrl("docs", "reliability") == (0, (ROOT / "docs" / "reliability.md").read_text(), "")
    assert msrl("docs", "docs/algorithms/ppo.md")[1] == msrl("docs", "ppo")[1] != ""
    code, out, _ = msrl("docs", "distributions#passes")
    assert out.startswith("## Passes\n") and out.count("\n## ") == 0


def test_pages_that_there_are_not(msrl):
    assert msrl("docs", "reliabilty") == (2, "", """\
UsageError: There is no page 'reliabilty'.
Did you mean reliability?
See all of them: msrl docs
""")
    code, _, err = msrl("docs", "security#nothing")
    assert code == 2 and err.startswith("UsageError: The page security has no section 'nothing'.\nIt has ")


def test_a_comment_in_code_is_no_heading():
    text = "# One\n\n```bash\n# two\n```\n\n## Three\nx\n# Four\n"
    assert cut_section(text, "three", "page") == "## Three\nx\n"
    assert cut_section(text, "one", "page") == "# One\n\n```bash\n# two\n```\n\n## Three\nx\n"


def test_sections_that_messages_name_exist():
    named = {found for file in (ROOT / "msrl").rglob("*.py")
             for found in re.findall(r"docs/([\w/-]+)\.md#([\w-]+)", file.read_text())}
    assert named
    for page, section in named:
        assert cut_section((ROOT / "docs" / f"{page}.md").read_text(), section, page)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The package as a wheel holds it."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md"):
        shutil.copy(ROOT / name, folder)
    for name in ("msrl", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-lib", "lib"], cwd=folder, check=True,
                   capture_output=True, timeout=120)
    return folder / "lib"


def test_an_installed_package_has_the_pages_that_its_messages_name(installed, tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
                              capture_output=True, text=True, check=False, timeout=120)

    refused = run("-m", "msrl.cli.main", "train", "ppo", "--env", "CartPole-v1", "--chaos", "bogus")
    assert refused.returncode == 2
    page = re.search(r"\nSee `msrl docs ([\w#-]+)`\.\n", refused.stderr)
    assert page and page[1] == "reliability#faults-on-purpose", refused.stderr
    assert run("-m", "msrl.cli.main", "docs", page[1]).stdout.startswith("## Faults on purpose\n")
    shown = run("-c", "from msrl.errors import UsageError as E; print(E('No.', docs='docs/algorithms/ppo.md'))")
    assert shown.stdout == "No.\nSee `msrl docs algorithms/ppo`.\n"
