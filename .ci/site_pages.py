"""A hook of MkDocs: files of the repository that are pages of the site too, options, and links that hold in both.

Pages link to each other, and to files of the repository, by relative paths, so that they can be followed where the
repository is read. In the site, a link to a file that has no page is its text alone.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the site that are files of the repository.
SHARED = {"results.md": "benchmarks/RESULTS.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
#: The README's parts are pages; a link to it leads to where one begins.
INSTEAD = {"README.md": "tutorial.md"}
#: Where the package's folders lie in the tree, as it is installed.
ROOMS = {"mlless_nb": "mlless_nb", **{room: f"mlless_nb/{room}" for room in ("kernels", "magics", "widgets")}}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^()\s:]+)\)")
#: What a page says only where it is read in the repository.
UNFILLED = re.compile(r"^> `make docs` fills this page, .*\n\n", re.MULTILINE)
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_startup(command: str, dirty: bool) -> None:
    """Copy the package's sources to where a reader of its docstrings finds them under their names."""
    source = ROOT / "build" / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    for room, place in ROOMS.items():
        ignored = shutil.ignore_patterns("*.so", "*.pyx", "*.h", "__pycache__")
        shutil.copytree(ROOT / room, source / place, ignore=ignored, dirs_exist_ok=True)


def on_files(files: Files, config: Any) -> Files:
    """Add the repository's own files to the pages."""
    for page, path in SHARED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def magic() -> str:
    """The help of the magic, as it is written in its docstring."""
    tree = ast.parse((ROOT / "magics" / "mlless.py").read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "mlless"]
    return f'<div class="help" markdown="1">\n```text\n{ast.get_docstring(found[0])}\n```\n</div>'


def options() -> str:
    """A table of the options of the ``%%mlless`` line, from the calls that declare them."""
    tree = ast.parse((ROOT / "magics" / "options.py").read_text(encoding="utf-8"))
    rows = ["| option | what it does |", "|---|---|"]
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("_option", "_switch"):
            words = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
            flag, what = (text.replace("|", "\\|").replace("%%", "%") for text in (" ".join(words[:-1]), words[-1]))
            rows.append(f"| `{flag}` | {what} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at pages; those at other files of the repository become their text."""
    home = posixpath.dirname(SHARED.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    here = posixpath.dirname(page.file.src_uri)
    pages = {path: name for name, path in SHARED.items()}

    def pointed(link: re.Match[str]) -> str:
        text, (path, _, anchor) = link[1], link[2].partition("#")
        if not path:
            return link[0]
        target = posixpath.normpath(posixpath.join(home, path))
        name = INSTEAD.get(target) or pages.get(target)
        if name is None and target.startswith("docs/"):
            name = target.removeprefix("docs/")
        if name is None:
            return text
        anchor = "" if target in INSTEAD else anchor
        return f"[{text}]({os.path.relpath(name, here or '.')}{'#' + anchor if anchor else ''})"

    markdown = UNFILLED.sub("", markdown)
    markdown = markdown.replace("<!-- magic -->", magic()).replace("<!-- options -->", options())
    parts = FENCED.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(pointed, part) for part in parts)
