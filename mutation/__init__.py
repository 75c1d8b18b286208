"""Mutation testing of the core: `python3 dev.py mutate`. It is run by hand, not by CI."""
