"""`msrl docs`: the pages that messages point to, wherever MSRL was installed from."""

import re
import sys
from pathlib import Path

from msrl.cli.options import DocsOptions, read
from msrl.errors import UsageError, docs_folder
from msrl.synonyms import suggest

HEADING = re.compile(r"^(#+) (.*)$", re.M)


def main(args: list[str], began: float) -> int:
    options: DocsOptions = read(DocsOptions, args, "msrl docs")
    pages = {page.relative_to(docs_folder()).with_suffix("").as_posix(): page
             for page in sorted(docs_folder().rglob("*.md")) if page.parent.name != "adr"}
    if not options.page:
        width = max(map(len, pages)) + 2
        sys.stdout.write("".join(f"  {name:<{width}}{_title(page)}\n" for name, page in pages.items()))
        sys.stdout.write("\nRead one:  msrl docs distributions    A section of it:  msrl docs distributions#passes\n")
        return 0
    name, _, section = options.page.removeprefix("docs/").partition("#")
    name = name.removesuffix(".md")
    found = pages.get(name) or pages.get(f"algorithms/{name}")
    if found is None:
        near = suggest(name, pages)
        raise UsageError(f"There is no page {name!r}.", why=f"Did you mean {near[0]}?" if near else "",
                         instead="See all of them: msrl docs")
    text = found.read_text(encoding="utf-8")
    sys.stdout.write(cut_section(text, section, name) if section else text)
    return 0


def _title(page: Path) -> str:
    found = HEADING.search(page.read_text(encoding="utf-8"))
    return found[2] if found else ""


def cut_section(text: str, section: str, name: str) -> str:
    """From the heading of that anchor to the next of its rank."""
    headings = [found for found in HEADING.finditer(re.sub(r"^```.*?^```$", lambda code: " " * len(code[0]), text,
                                                           flags=re.M | re.S))]
    anchors = [re.sub(r"[^\w\- ]", "", found[2].lower()).replace(" ", "-") for found in headings]
    if section not in anchors:
        raise UsageError(f"The page {name} has no section {section!r}.", why=f"It has {', '.join(anchors)}.",
                         instead=f"Read all of it: msrl docs {name}")
    at = anchors.index(section)
    end = next((each.start() for each in headings[at + 1:] if len(each[1]) <= len(headings[at][1])), len(text))
    return text[headings[at].start():end].rstrip("\n") + "\n"
