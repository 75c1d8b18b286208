"""Thin adapters over the peers. A peer that is not installed raises `MissingError`."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Bools, Floats
from benchmarks.measure import Elsewhere

PACKAGES = (
    "fastdigest",
    "pytdigest",
    "datasketches",
    "tdigest",
    "mapie",
    "conditionalconformal",
    "scipy",
)
_HERE = Path(__file__).resolve().parent
_OWN = _HERE / ".peers" / "conditionalconformal"
_OWN_PYTHON = _OWN / ("Scripts" if os.name == "nt" else "bin") / "python"


class MissingError(Exception):
    """A peer cannot take part; the message says why."""


def version(package: str) -> str:
    """The version of a package, or "missing"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingError(f"missing: {package} is not installed ({error})") from None


# --- digests -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DigestPeer:
    """A digest library: how a digest is built, read and evaluated."""

    name: str
    build: Callable[[Floats, float], Any]
    centroids: Callable[[Any], Floats]  # The means and weights of a digest, (m, 2).
    cdf: Callable[[Any, Floats], Floats]
    usual: float  # This size parameter gives about 126 centroids.
    slow: bool = False  # A slow peer runs on the smallest data only.


def _fastdigest() -> DigestPeer:
    TDigest = _module("fastdigest", "fastdigest").TDigest
    return DigestPeer(
        "fastdigest",
        lambda values, size: TDigest.from_values(values, max_centroids=int(size)),
        lambda d: np.array(d.centroids),
        lambda d, at: np.array([d.cdf(x) for x in at.tolist()]),
        126,
    )


def _pytdigest() -> DigestPeer:
    TDigest = _module("pytdigest", "pytdigest").TDigest

    def build(values: Floats, size: float) -> Any:
        digest = TDigest.compute(values, compression=int(size))
        digest.force_merge()
        return digest

    return DigestPeer(
        "pytdigest",
        build,
        lambda d: np.array(d.get_centroids()),
        lambda d, at: np.asarray(d.cdf(at)),
        250,
    )


def _datasketches() -> DigestPeer:
    sketch = _module("datasketches", "datasketches").tdigest_double

    def build(values: Floats, size: float) -> Any:
        digest = sketch(int(size))
        digest.update(values)
        digest.compress()
        return digest

    def centroids(digest: Any) -> Floats:
        """Read them from the serialised form: 8 bytes, two counts, min, max, then the pairs."""
        data = digest.serialize()
        (count,) = struct.unpack_from("<I", data, 8)
        pairs = np.frombuffer(data, dtype=[("mean", "<f8"), ("weight", "<u8")], offset=32)
        if len(pairs) != count or pairs["weight"].sum() != digest.get_total_weight():
            raise ArithmeticError("datasketches serialises a t-digest in an unknown way")
        return np.column_stack([pairs["mean"], pairs["weight"].astype(float)])

    return DigestPeer(
        "datasketches",
        build,
        centroids,
        lambda d, at: np.array([d.get_rank(x) for x in at.tolist()]),
        84,
    )


def _tdigest() -> DigestPeer:
    TDigest = _module("tdigest", "tdigest").TDigest

    def build(values: Floats, size: float) -> Any:
        digest = TDigest(delta=1 / size)
        digest.batch_update(values)
        digest.compress()
        return digest

    return DigestPeer(
        "tdigest (pure Python)",
        build,
        lambda d: np.array([(c["m"], c["c"]) for c in d.centroids_to_list()]),
        lambda d, at: np.array([d.cdf(x) for x in at.tolist()]),
        50,
        slow=True,
    )


def digest_peers() -> Iterator[tuple[str, DigestPeer | MissingError]]:
    """Every digest library by name, or the reason why it cannot take part."""
    for name, make in (
        ("fastdigest", _fastdigest),
        ("pytdigest", _pytdigest),
        ("datasketches", _datasketches),
        ("tdigest (pure Python)", _tdigest),
    ):
        try:
            yield name, make()
        except MissingError as missing:
            yield name, missing


# --- MAPIE ---------------------------------------------------------------------------------------


class GivenProbabilities:
    """A fitted scikit-learn classifier. Its first features are the probabilities that it returns.

    MAPIE takes models. This one costs no time, so that only MAPIE is timed.
    """

    def __new__(cls, labels: int, features: int) -> Any:
        base = _module("sklearn.base", "scikit-learn")

        class Given(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[misc, name-defined]
            classes_ = np.arange(labels)
            n_features_in_ = features

            def fit(self, X: Any, y: Any) -> Any:
                return self

            def __sklearn_is_fitted__(self) -> bool:
                return True

            def predict_proba(self, X: Any) -> Floats:
                return np.asarray(X)[:, :labels]

            def predict(self, X: Any) -> Any:
                return self.predict_proba(X).argmax(axis=1)

        return Given()


def mapie_classifier(
    probabilities: Floats, labels: Any, membership: Bools, alpha: float
) -> Callable[[Floats, Bools], Bools]:
    """Conformalise MAPIE's conditional classifier, and return the function that predicts sets."""
    module = _module("mapie.conditional_conformal_prediction", "mapie[conditional]")
    L = probabilities.shape[1]
    peer = module.ConditionalSplitConformalClassifier(
        feature_map=lambda x: np.asarray(x)[:, L:],
        estimator=GivenProbabilities(L, L + membership.shape[1]),
        confidence_level=1 - alpha,
        conformity_score="lac",
        prefit=True,
    )
    try:
        peer.conformalize(np.hstack([probabilities, membership]), labels)
    except ImportError as error:
        raise MissingError(f"missing: {error}") from None

    def predict_set(p: Floats, m: Bools) -> Bools:
        return np.asarray(peer.predict_set(np.hstack([p, m]))[1][:, :, 0], dtype=bool)

    return predict_set


# --- conditionalconformal ------------------------------------------------------------------------


def install_conditionalconformal() -> None:
    """Make an environment for conditionalconformal, whose exact mode fails from NumPy 2.4 on."""
    if _OWN_PYTHON.exists():
        return
    print(f"Installing conditionalconformal with NumPy < 2.4 into {_OWN} (once) ...", flush=True)
    venv.EnvBuilder(with_pip=True).create(_OWN)
    command = [str(_OWN_PYTHON), "-m", "pip", "install", "--quiet"]
    subprocess.run([*command, "conditionalconformal==0.0.5", "numpy<2.4"], check=True)


class ConditionalConformal:
    """A process with conditionalconformal, from its own environment if that exists, else this."""

    def __init__(self) -> None:
        self.python = str(_OWN_PYTHON) if _OWN_PYTHON.exists() else sys.executable
        self._folder = tempfile.TemporaryDirectory()
        worker = str(_HERE / "conditionalconformal_worker.py")
        self._process = subprocess.Popen(
            [self.python, "-W", "ignore", worker],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.numpy = str(self._answer()["numpy"])
        except MissingError:
            self.close()
            raise

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            last = (self._process.stderr.read().strip().splitlines() or ["no message"])[-1]
            raise MissingError(f"missing: conditionalconformal does not start ({last})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MissingError(f"failed on NumPy {self.numpy}: {answer['error']}")
        return answer

    def problem(
        self, scores: Floats, membership: Bools, rows: Bools, alpha: float, warm: bool
    ) -> Callable[[], tuple[Elsewhere, list[float]]]:
        """A function that computes the cutoffs of `rows`. With `warm` it keeps the set-up."""
        path = Path(self._folder.name) / f"{len(os.listdir(self._folder.name))}.npz"
        np.savez(
            path,
            scores=scores,
            phi=membership.astype(float),
            rows=rows.astype(float),
            quantile=1 - alpha,
            warm=int(warm),
        )

        def run() -> tuple[Elsewhere, list[float]]:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
            answer = self._answer()
            return Elsewhere(answer["seconds"]), answer["cutoffs"]

        return run

    def close(self) -> None:
        """End the process and delete its files."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._folder.cleanup()

    def __enter__(self) -> ConditionalConformal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
