"""Images: from a file of softmax outputs to prediction sets that hold for every group.

    python examples/images.py                        uses the digits of scikit-learn
    python examples/images.py softmax.npz            uses your file: `probs` (n, L), `labels` (n,)

Each client holds other classes, as in the paper: the labels are cut into five parts. The groups are
overlapping windows of the predicted label, which is known before the true label is. Half of the
file is used to calibrate and the other half to test. This is repeated for several random splits,
and the averages are shown.

Without a file, the program makes one from the 1,797 handwritten digits (8 x 8 pixels) that come
with scikit-learn. The model is a logistic regression that was trained on only 200 of them, so it is
often wrong. The other 1,597 digits are left for calibration and test.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import gcfcp

ALPHA, CLIENTS, SPLITS, WINDOW = 0.1, 5, 20, 4


def make_file(path: Path) -> None:
    """Write the softmax outputs of a small model on scikit-learn's digits to a file."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    train, rest = order[:200], order[200:]
    model = LogisticRegression(C=0.02, max_iter=2000).fit(images[train] / 16, labels[train])
    np.savez(path, probs=model.predict_proba(images[rest] / 16), labels=labels[rest])


def windows(labels: int) -> list[range]:
    """Overlapping windows of the labels. For ten labels they are 0-3, 2-5, 4-7 and 6-9."""
    step = WINDOW // 2
    starts = range(0, max(labels - step, 1), step)
    return [range(s, min(s + WINDOW, labels)) for s in starts]


def main(path: Path) -> None:
    """Compare FedCP with GC-FCP on the file, and print the coverage of every group."""
    with np.load(path) as file:
        probabilities, labels = file["probs"].astype(np.float64), file["labels"].astype(int)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    n, L = probabilities.shape
    predicted = probabilities.argmax(axis=1)
    print(f"{path}: {n:,} images, {L} labels, accuracy {np.mean(predicted == labels):.3f}\n")

    # A group for everyone is added. Without it, these windows cannot give all records the same
    # threshold, and sets grow for no reason.
    groups = gcfcp.Groups(["all", *(f"predicted {w[0]} to {w[-1]}" for w in windows(L))])
    membership = np.column_stack(
        [np.ones(n, dtype=bool), *(np.isin(predicted, w) for w in windows(L))]
    )
    client = labels * CLIENTS // L
    score = gcfcp.scores.THR()
    scores = score.of(probabilities, labels)

    rng = np.random.default_rng(1)
    covered = {"FedCP": np.zeros(len(groups)), "GC-FCP": np.zeros(len(groups))}
    sizes = dict.fromkeys(covered, 0.0)
    sent = 0
    for _ in range(SPLITS):
        order = rng.permutation(n)
        calibration, test = order[: n // 2], order[n // 2 :]
        rows = [calibration[client[calibration] == k] for k in range(CLIENTS)]
        clients = [(scores[r], membership[r]) for r in rows if len(r)]
        for name, method in (("FedCP", gcfcp.methods.fedcp), ("GC-FCP", gcfcp.methods.gcfcp)):
            result = method(clients, ALPHA, "proportional", groups=groups)
            predictor = gcfcp.Predictor(score, result)
            sets = predictor.predict_set(probabilities[test], membership[test])
            hit = sets[np.arange(len(test)), labels[test]]
            covered[name] += [hit[m].mean() for m in membership[test].T]
            sizes[name] += sets.sum(axis=1).mean()
            sent = result.sent.bytes

    print(f"{'coverage, promised ' + format(1 - ALPHA, 'g'):24} {'FedCP':>8} {'GC-FCP':>8}")
    for g, name in enumerate(groups.names):
        one, ours = (covered[m][g] / SPLITS for m in covered)
        print(f"{name:24} {one:8.3f} {ours:8.3f}{'   <- left out by FedCP' if one < 0.89 else ''}")
    print(f"{'mean set size':24} {sizes['FedCP'] / SPLITS:8.2f} {sizes['GC-FCP'] / SPLITS:8.2f}")
    print(f"\nGC-FCP: {CLIENTS} clients sent {sent:,} bytes in all. Averages over {SPLITS} splits.")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        made = Path("digits-softmax.npz")
        make_file(made)
        main(made)
