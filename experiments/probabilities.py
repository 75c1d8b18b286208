"""Softmax outputs and labels, either read from a file or simulated.

A probability file is an .npz file with `probs` (n, L) and `labels` (n,). For the ImageNet preset it
may also hold `semantic` (L,): the category of each label. `experiments.models` makes such files
from images and a network.

Where no file is given, the softmax outputs are simulated, and every output says so. Labels occur as
often as stated. The logit of label j for a record of label y is

    e_j + b [j resembles y] + (m - d_y + e') [j = y],

where e and e' are independent standard normal numbers, and the difficulties d_y differ between
labels. m is chosen so that the accuracy is exactly the stated one. A temperature makes the mean
confidence equal to the accuracy. The coverage of the methods, and its differences between them, are
real. The set sizes are those of this simulation and of no network.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp.errors import GCFCPError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

_BLOCK = 2_000  # Large arrays are processed in blocks of this many rows.


@dataclass(frozen=True)
class Probabilities:
    """A model's probabilities for n records, and the true labels."""

    probs: Floats  # (n, L)
    labels: Ints  # (n,)
    source: str  # Where the data come from, in words: a file or the simulation.
    simulated: bool
    fingerprint: str  # The SHA-256 of the file, or of what was simulated.
    semantic: Ints | None = None  # (L,): The category of each label.

    @property
    def accuracy(self) -> float:
        """How often the most probable label is the true one."""
        hits = 0
        for start in range(0, len(self.labels), _BLOCK):
            rows = slice(start, start + _BLOCK)
            hits += int(np.count_nonzero(self.probs[rows].argmax(axis=1) == self.labels[rows]))
        return hits / len(self.labels)


def load(path: str | PathLike[str], labels: int) -> Probabilities:
    """Read and check a probability file for a task with this many labels."""
    name = fspath(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [key for key in ("probs", "labels") if key not in file.files]
            if missing:
                raise GCFCPError(
                    f"{name} has no {' and no '.join(missing)}: a probability file holds probs "
                    "(n, L) and labels (n,)"
                )
            probs, y = file["probs"], file["labels"]
            semantic = file["semantic"].astype(np.int64) if "semantic" in file.files else None
    except GCFCPError:
        raise
    except OSError as error:
        raise GCFCPError(f"cannot read {name}: {error.strerror or error}") from None
    except Exception:
        raise GCFCPError(f"{name} is not an .npz file of plain arrays: see numpy.savez") from None
    if probs.ndim != 2 or probs.shape[1] != labels or probs.dtype.kind != "f":
        raise GCFCPError(f"{name} has probs of shape {probs.shape}; this task has {labels} labels")
    if y.shape != (len(probs),) or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= labels:
        raise GCFCPError(f"{name} needs one label from 0 to {labels - 1} for each row of probs")
    if semantic is not None and (semantic.shape != (labels,) or semantic.min() < 0):
        raise GCFCPError(f"{name} needs one semantic category, from 0, for each of {labels} labels")
    with open(path, "rb") as file_bytes:
        fingerprint = hashlib.file_digest(file_bytes, "sha256").hexdigest()
    return Probabilities(
        _normalised(probs, name), y.astype(np.int64), name, False, fingerprint, semantic
    )


def _normalised(probs: Floats, name: str) -> Floats:
    """The probabilities with rows that sum to 1.

    In half precision the sums differ from 1 by more than the scores accept.
    """
    out = np.empty(probs.shape, dtype=np.float32 if probs.size > 10**7 else np.float64)
    for start in range(0, len(probs), _BLOCK):
        block = probs[start : start + _BLOCK].astype(np.float64)
        total = block.sum(axis=1)
        bad = ~(np.abs(total - 1) < 0.01) | (block.min(axis=1) < -1e-6)
        if bad.any():
            row = start + int(np.argmax(bad))
            raise GCFCPError(f"row {row} of probs in {name} is no distribution over the labels")
        out[start : start + _BLOCK] = np.clip(block, 0, None) / total[:, None]
    return out


@dataclass(frozen=True)
class Simulation:
    """What a simulated softmax is like."""

    counts: tuple[int, ...]  # The number of records of each label.
    kin: tuple[int, ...]  # The class of each label. Labels of one class resemble each other.
    accuracy: float
    resemblance: float  # b: This is added to the logits of labels that resemble the true one.
    spread: float  # How far the difficulties d_y differ between classes and between labels.


def simulate(spec: Simulation, seed: int, semantic: Ints | None = None) -> Probabilities:
    """Simulate softmax outputs; see the module."""
    rng = np.random.default_rng([seed, 0x50F7])
    L = len(spec.counts)
    kin = np.asarray(spec.kin)
    labels = rng.permutation(np.repeat(np.arange(L), spec.counts)).astype(np.int64)
    n = len(labels)
    of_kin = rng.permutation(np.linspace(-1, 1, int(kin.max()) + 1))[kin]
    difficulty = spec.spread * (of_kin + rng.permutation(np.linspace(-1, 1, L)))
    logits = np.empty((n, L), dtype=np.float32)
    # How far the logit of the true label is below the best other one, at m = 0.
    short = np.empty(n)
    for start in range(0, n, _BLOCK):
        rows = slice(start, min(start + _BLOCK, n))
        y = labels[rows]
        each = np.arange(len(y))
        z = rng.standard_normal((len(y), L), dtype=np.float32)
        z += np.float32(spec.resemblance) * (kin[y][:, None] == kin)
        z[each, y] += rng.standard_normal(len(y)) - difficulty[y]
        own = z[each, y].copy()
        z[each, y] = -np.inf
        short[rows] = z.max(axis=1) - own
        z[each, y] = own
        logits[rows] = z
    # A record is predicted rightly if m exceeds what its true label is short of. With m between two
    # neighbouring values of `short`, the accuracy is exactly the stated one.
    ordered = np.sort(short)
    right = min(max(round(spec.accuracy * n), 1), n - 1)
    m = (ordered[right - 1] + ordered[right]) / 2
    logits[np.arange(n), labels] += np.float32(m)
    scale = _scale(logits[: min(n, 4_000)], spec.accuracy)
    for start in range(0, n, _BLOCK):
        logits[start : start + _BLOCK] = _softmax(scale * logits[start : start + _BLOCK])
    stated = f"SIMULATED softmax ({n:,} records, {L:,} labels, accuracy {right / n:.3f})"
    fingerprint = hashlib.sha256(repr((spec, seed)).encode()).hexdigest()
    return Probabilities(logits, labels, stated, True, fingerprint, semantic)


def _softmax(z: Floats) -> Floats:
    e = np.exp(z - z.max(axis=1, keepdims=True), dtype=np.float64)
    p: Floats = e / e.sum(axis=1, keepdims=True)
    return p


def _scale(logits: Floats, confidence: float) -> float:
    """The inverse temperature at which the mean confidence equals the accuracy."""
    low, high = 0.05, 50.0
    for _ in range(40):
        middle = (low * high) ** 0.5
        if _softmax(middle * logits).max(axis=1).mean() < confidence:
            low = middle
        else:
            high = middle
    return high
