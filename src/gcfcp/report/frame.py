"""What every page is made in: templates, style, scripts, the security policy and the date."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gcfcp.libraries import needs
from gcfcp.version import LIBRARY

if TYPE_CHECKING:
    from jinja2 import Environment


def template(name: str) -> str:
    """The text of a file in `templates`."""
    return (files("gcfcp.report") / "templates" / name).read_text("utf-8")


def environment() -> Environment:
    """Where templates are filled in. Every value is escaped, and a missing one is an error."""
    needs("jinja2", "reports", "cli")
    import jinja2

    return jinja2.Environment(
        autoescape=True,
        loader=jinja2.FunctionLoader(template),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )


def frame(
    date: str | datetime | None, styles: Sequence[str], scripts: Sequence[str]
) -> dict[str, Any]:
    """What every template shows besides its own content: style, scripts, policy, library, date.

    styles, scripts: The names of files in `templates`.
    """
    from markupsafe import Markup

    css = "\n".join(map(template, styles))
    programs = [template(name) for name in scripts]
    return {
        "css": Markup(css),
        "scripts": [Markup(program) for program in programs],
        "policy": policy(css, programs),
        "library": LIBRARY,
        "date": date_text(date),
    }


def policy(css: str, scripts: Sequence[str]) -> str:
    """The content security policy: the browser loads nothing, and runs only the page's own scripts.

    The style and the scripts of the page are allowed by their SHA-256.
    """

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; style-src {digest(css)}; "
        f"script-src {' '.join(map(digest, scripts))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def date_text(date: str | datetime | None) -> str:
    """The date as a page shows it, such as "2026-03-04 05:06 UTC"."""
    if isinstance(date, str):
        return date
    when = datetime.now(UTC) if date is None else date
    return f"{when:%Y-%m-%d %H:%M} {when.tzname() or ''}".strip()
