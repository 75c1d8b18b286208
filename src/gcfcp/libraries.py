"""Libraries that gcfcp uses where they are installed, and what to say where one is missing.

`import gcfcp` and all of the core need NumPy alone. Every other library belongs to an extra, is
imported where it is used, and is asked for by `needs` just before.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from gcfcp.errors import GCFCPError

# Names of packages that differ from the names of their modules.
_PACKAGES = {
    "sklearn": "scikit-learn",
    "flwr": "Flower (flwr)",
    "Crypto": "pycryptodome",
    "pyspark": "PySpark",
    "nvflare": "NVIDIA FLARE (nvflare)",
    "vantage6.algorithm.tools": "vantage6 (vantage6-algorithm-tools)",
}


class MissingLibraryError(GCFCPError, ImportError):
    """A library that is needed cannot be imported; the message says what to install.

    It is an ImportError too, so that whoever tries an import finds what is usual there.
    """


def has(module: str) -> bool:
    """Whether a library is installed. It is not imported."""
    return find_spec(module) is not None


def needs(module: str, purpose: str, extra: str) -> None:
    """Raise an error of one line if a library cannot be imported.

    module: The library.
    purpose: What it is needed for, in words.
    extra: The extra of gcfcp that it comes with.
    """
    try:
        import_module(module)
    except ImportError as error:
        package = _PACKAGES.get(module, module)
        # If a package is missing, so is every module in it.
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        missing = absent is not None and f"{module}.".startswith(f"{absent}.")
        state = "is not installed" if missing else f"cannot be imported ({error!s:.200})"
        raise MissingLibraryError(
            f"{package} is needed for {purpose} and {state}: install gcfcp with its extra {extra} "
            f"(pip install '.[{extra}]' in a clone)"
        ) from None
