"""The one exception and the one warning that gcfcp raises.

A message is one line: the value that was given, the rule that it breaks, and the remedy.
"""


class GCFCPError(ValueError):
    """Something that was given cannot be used; the message says what, why and what to do."""


class GCFCPWarning(UserWarning):
    """Something is allowed but should be known, such as thresholds that will be infinite."""
