"""README and docs: links lead somewhere, code names what there is, and the site needs no network."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from servers import missing

import mlless_nb
from mlless_nb.magics import sweeping
from mlless_nb.magics.options import OPTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^()\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
#: Names that code in the docs takes as given.
MAGIC_WORDS = {"%%mlless", "%mlless", "%load_ext"}


def text_of(page: Path) -> str:
    """A page's Markdown; of a notebook, that of its text cells."""
    text = page.read_text("utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text_of(page))):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(next(name for name in [slug, *(f"{slug}-{n}" for n in range(1, 99))] if name not in found))
    return found


def links(page: Path) -> list[str]:
    """Targets of a page's links, without those to other hosts."""
    text = CODE.sub("", FENCED.sub("", text_of(page)))
    return [one or other for one, other in LINK.findall(text) if not re.match(r"\w+:", one or other)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}: no such file"
        assert target.is_relative_to(ROOT), f"{page.name}: {link}: leads out of the repository"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


def blocks(page: Path) -> list[str]:
    return [code for language, code in FENCED.findall(text_of(page)) if language == "python"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.suffix == ".md"], ids=lambda page: page.name)
def test_code_names_what_there_is(page: Path) -> None:
    """Blocks are Python, they import names that exist, and their cells have options that exist."""
    flags = {flag for flag, _ in OPTIONS}
    for block in blocks(page):
        lines = block.splitlines()
        for line in lines:
            if line.startswith("%%mlless"):
                known = {*sweeping.FLAGS} if line.startswith("%%mlless sweep") else flags
                assert set(re.findall(r" (--[\w-]+)", line)) <= known, line
        code = "\n".join(line for line in lines if line.split(" ")[0] not in MAGIC_WORDS)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module == "mlless_nb":
                assert {alias.name for alias in node.names} <= set(mlless_nb.__all__), block
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mlless_nb":
                assert hasattr(mlless_nb, node.attr), block


def test_binder_has_what_the_notebooks_import() -> None:
    """Binder installs the extra ``lab``; its scripts have to be executable."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    packages = re.findall(
        r"^[\w.-]+", f"{setup['options']['install_requires']}\n{extras['notebook']}{extras['lab']}", re.MULTILINE
    )
    # JupyterLab brings jupyter_client with it.
    installed = {"mlless_nb", "jupyter_client", *packages, *sys.stdlib_module_names}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        imported = set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE))
        assert imported <= installed, notebook.name
    assert "'.[lab]'" in (ROOT / "binder" / "postBuild").read_text("utf-8")
    assert all(os.access(ROOT / "binder" / name, os.X_OK) for name in ("postBuild", "start"))


class Loads(HTMLParser):
    """Collects what a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "source"):
            self.found += [value for name, value in attrs if name in ("src", "href", "srcset") and value]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a network; a warning is an error."""
    mkdocs = shutil.which("mkdocs", path=str(Path(sys.executable).parent))
    if mkdocs is None:
        missing("mkdocs", "make docs")
    assert mkdocs is not None
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **nowhere, "NO_PROXY": "", "no_proxy": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
def test_the_site_needs_no_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text("utf-8"))
        assert [url for url in loads.found if re.match(r"(\w+:)?//", url)] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s+)[\"']?(\w+:)?//", sheet.read_text("utf-8")), sheet.name


@pytest.mark.long
def test_the_site_has_what_is_asked_for(site: Path) -> None:
    reference = "".join(page.read_text("utf-8") for page in (site / "api").glob("*.html"))
    missing_names = [name for name in mlless_nb.__all__ if f'mlless_nb.{name}"' not in reference]
    known = {"datasets", *(name for name in mlless_nb.__all__ if name.endswith(("Error", "Warning")))}
    assert set(missing_names) <= known
    assert "fills this page" not in reference
    options = (site / "api" / "magics.html").read_text("utf-8")
    assert [flag for flag, _ in OPTIONS if f"{flag} " not in options and f"{flag}<" not in options] == []
    assert "Measured by" in (site / "results.html").read_text("utf-8")


def test_tests_that_a_page_names_are_there() -> None:
    """``file.py::test_name``, or the beginning of the name and "..."."""
    named = re.compile(r"`([\w/]+\.py)::(\w+?)(\.\.\.)?(?:\[[^`]*\])?`")
    found = [(page.name, *match) for page in PAGES for match in named.findall(page.read_text("utf-8"))]
    assert len(found) > 30
    for page, file, name, dots in found:
        text = (ROOT / "tests" / file.removeprefix("tests/")).read_text("utf-8")
        assert re.search(rf"^ *def {name}{'' if dots else chr(92) + 'b'}", text, re.MULTILINE), (
            f"{page}: {file}::{name}"
        )
