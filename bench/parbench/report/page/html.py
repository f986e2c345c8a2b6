"""HTML of a page: a template that escapes every text, and a policy that lets nothing be loaded or carried out."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from parbench.report.page.model import Page
from parbench.report.page.tables import NUMBERS


def html_of(page: Page) -> bytes:
    """Return the page as one file, in UTF-8.

    Its Content-Security-Policy names the page's own style and script by their hashes: no other runs, whatever a record
    brought in, and nothing is fetched from anywhere.
    """
    here = files("parbench.report.page")
    template, style, script = ((here / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(template).render(
        page=page,
        numbers=NUMBERS,
        # parbench's own files, the only texts that are not escaped.
        style=Markup(style),
        script=Markup(script),
        policy=(
            f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
            "base-uri 'none'; form-action 'none'"
        ),
    )
    return text.encode("utf-8", "replace")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
