"""The version of gcfcp. It is written here and nowhere else; pyproject.toml reads it from here."""

__version__ = "0.2.0"

LIBRARY = f"gcfcp {__version__}"
"""The name and version that every file carries, so that a reader knows what wrote it."""
