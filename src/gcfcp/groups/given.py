"""The membership matrix that a caller gives: its shape, its order, and its entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import checks
from gcfcp.arrays import Bools
from gcfcp.errors import GCFCPError


def matrix(
    membership: Any,
    label_dependent: bool,
    names: tuple[str, ...],
    allowed: tuple[tuple[str, ...], ...],
) -> Bools:
    """The caller's membership as a C-contiguous bool array, or an error.

    names: The names of all groups.
    allowed: The names of the columns that it may have, in one or in several ways.
    """
    array = membership
    if type(array) is not np.ndarray:  # A frame, a list, a masked array, and so on.
        _check_order(membership, allowed)
        try:
            array = np.asarray(checks.unmasked("membership", membership))
        except GCFCPError:
            raise
        except (ValueError, TypeError) as error:
            raise GCFCPError(f"membership is not a matrix: {error}") from None
    shape = "(n, L, G)" if label_dependent else "(n, G)"
    if array.ndim != (3 if label_dependent else 2):
        raise GCFCPError(f"membership has shape {array.shape}, expected {shape}")
    if array.shape[-1] not in map(len, allowed):
        also = ", or leave out those of the sites" if len(allowed) > 1 else ""
        raise GCFCPError(
            f"membership has {array.shape[-1]} columns for {len(names)} groups "
            f"({checks.listed(names)}): give one column for each group{also}"
        )
    if array.dtype.kind != "b":
        _check_binary(array, names)
    return np.ascontiguousarray(array, dtype=np.bool_)


def _check_order(membership: Any, allowed: tuple[tuple[str, ...], ...]) -> None:
    """Raise an error if a frame has the groups as columns, but in another order."""
    columns = [str(column) for column in getattr(membership, "columns", ())]
    for names in allowed if columns else ():
        if sorted(columns) == sorted(names) and columns != list(names):
            raise GCFCPError(
                f"membership has columns {checks.listed(columns)} but the groups are "
                f"{checks.listed(names)}: put the columns in the order of the groups"
            )


def _check_binary(array: NDArray[Any], names: tuple[str, ...]) -> None:
    """Raise an error that names the first entry that is not 0, 1, true or false."""
    if array.dtype == object:
        numbers = (bool, int, float, np.bool_, np.number)
        flat = [isinstance(v, numbers) and v in (0, 1) for v in array.ravel()]
        good = np.array(flat, dtype=np.bool_).reshape(array.shape)
    elif np.issubdtype(array.dtype, np.number):
        good = (array == 0) | (array == 1)
    else:
        good = np.zeros(array.shape, dtype=np.bool_)
    if not good.all():
        at = np.unravel_index(int(good.argmin()), good.shape)
        raise GCFCPError(
            f"membership[{', '.join(str(int(i)) for i in at)}] = {array[at]!s:.40} "
            f"(group {names[int(at[-1])]!r}) is neither true/false nor 0/1"
        )
