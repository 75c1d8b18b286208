"""The exception and the warning of gcfcp. (`libraries` has a special case of the exception.)

A message is one line. It states the value that was given, the rule that this value breaks, and the
remedy.
"""


class GCFCPError(ValueError):
    """An argument or a file cannot be used. The message says what is wrong, why, and what to do."""


class GCFCPWarning(UserWarning):
    """The call succeeds, but its caller should know something: a threshold is infinite, say."""
