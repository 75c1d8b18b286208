"""Make probability files from images and a network: `python -m experiments.models NAME ...`.

    python -m experiments.models pathmnist -o pathmnist.npz             trains the CNN first
    python -m experiments.models cifar10 --model networks:resnet56 -o cifar10.npz
    python -m experiments.models imagenet --data DIR -o imagenet.npz    ResNet-50, pretrained

This needs the extra `images` (torch, torchvision, medmnist), which nothing else needs.
CIFAR-10 and PathMNIST are downloaded. ImageNet must be there already. The networks are of the
paper's kind:

- CIFAR-10: a trained network of your own. MODULE:FUNCTION names the function that returns it. The
  paper uses a ResNet-56.
- PathMNIST: a small CNN, which is trained here.
- ImageNet: torchvision's pretrained ResNet-50.

A file holds `probs` float32 (n, L), `labels` (n,) and `about`, a line of text.
"""

from __future__ import annotations

import argparse
import importlib
import io
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gcfcp import codec
from gcfcp.errors import GCFCPError
from gcfcp.libraries import needs


def _import(name: str) -> Any:
    """The module, or an error that names the extra to install."""
    needs(name.partition(".")[0], "the networks of the experiments", "images")
    return importlib.import_module(name)


def small_cnn(labels: int, channels: int = 3) -> Any:
    """A network of five 3x3 convolutions (32, 32, 64, 64, 128) and two dense layers.

    It has some 150,000 weights.
    """
    nn = _import("torch.nn")
    layers: list[Any] = []
    width = channels
    for wider, halve in ((32, False), (32, True), (64, False), (64, True), (128, False)):
        layers += [nn.Conv2d(width, wider, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * halve
        width = wider
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, labels))


def as_tensor(image: Any) -> Any:
    """An image of bytes (height, width, channels) as a tensor in [0, 1] with channels first."""
    pixels = np.asarray(image, dtype=np.float32) / 255
    return _import("torch").from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def train(
    model: Any,
    data: Any,
    *,
    epochs: int = 20,
    batch: int = 128,
    rate: float = 5e-4,
    seed: int = 0,
    device: str = "cpu",
) -> list[float]:
    """Train the model with Adam on the cross entropy; return the mean loss of each epoch.

    data: Pairs of an image and its label.
    """
    torch = _import("torch")
    torch.manual_seed(seed)
    shuffled = torch.utils.data.DataLoader(
        data, batch, shuffle=True, generator=torch.Generator().manual_seed(seed)
    )
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for images, labels in shuffled:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(
                model(images.to(device)), labels.reshape(-1).long().to(device)
            )
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
        losses.append(total / len(data))
    return losses


def softmax_outputs(
    model: Any, data: Any, *, batch: int = 256, device: str = "cpu"
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The model's probabilities for every image, float32 (n, L), and the labels (n,)."""
    torch = _import("torch")
    model.to(device).eval()
    probs, labels = [], []
    with torch.inference_mode():
        for images, own in torch.utils.data.DataLoader(data, batch):
            # The softmax is computed in float64, so that rows sum to 1 as closely as float32 can.
            logits = model(images.to(device)).double()
            probs.append(torch.softmax(logits, dim=1).float().cpu().numpy())
            labels.append(np.asarray(own).reshape(-1).astype(np.int64))
    return np.concatenate(probs), np.concatenate(labels)


def write_file(
    path: str | PathLike[str],
    probs: NDArray[np.floating[Any]],
    labels: NDArray[np.integer[Any]],
    about: str,
) -> None:
    """Write a probability file, whole or not at all."""
    if probs.ndim != 2 or labels.shape != (len(probs),):
        raise GCFCPError(f"probs {probs.shape} and labels {labels.shape} do not fit together")
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, probs=probs.astype(np.float32), labels=labels, about=np.array(about)
    )
    codec.write(path, buffer.getvalue())


def cifar10_file(
    out: str | PathLike[str],
    model: Any,
    data: str | PathLike[str] = "data",
    device: str = "cpu",
    about: str = "a network",
) -> None:
    """Write the probabilities of the 10,000 test images.

    model: A network that takes images normalised by channel. about: Its name, for the file.
    """
    torch = _import("torch")
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).reshape(3, 1, 1)
    deviation = torch.tensor([0.2470, 0.2435, 0.2616]).reshape(3, 1, 1)
    images = _import("torchvision.datasets").CIFAR10(
        str(data),
        train=False,
        download=True,
        transform=lambda image: (as_tensor(image) - mean) / deviation,
    )
    probs, labels = softmax_outputs(model, images, device=device)
    write_file(out, probs, labels, f"CIFAR-10 test images through {about}")


def pathmnist_file(
    out: str | PathLike[str],
    data: str | PathLike[str] = "data",
    epochs: int = 20,
    seed: int = 0,
    device: str = "cpu",
) -> None:
    """Train the CNN on the training images; write the probabilities of the other images."""
    torch, medmnist = _import("torch"), _import("medmnist")
    Path(data).mkdir(parents=True, exist_ok=True)
    split = {
        name: medmnist.PathMNIST(split=name, download=True, root=str(data), transform=as_tensor)
        for name in ("train", "val", "test")
    }
    torch.manual_seed(seed)
    model = small_cnn(9)
    train(model, split["train"], epochs=epochs, seed=seed, device=device)
    both = torch.utils.data.ConcatDataset([split["val"], split["test"]])
    probs, labels = softmax_outputs(model, both, device=device)
    write_file(out, probs, labels, f"PathMNIST val and test, a small CNN after {epochs} epochs")


def imagenet_file(out: str | PathLike[str], data: str | PathLike[str], device: str = "cpu") -> None:
    """Write the probabilities of the 50,000 validation images by torchvision's ResNet-50.

    data: A directory in torchvision's layout.
    """
    datasets, models = _import("torchvision.datasets"), _import("torchvision.models")
    weights = models.ResNet50_Weights.DEFAULT
    images = datasets.ImageNet(str(data), split="val", transform=weights.transforms())
    probs, labels = softmax_outputs(models.resnet50(weights=weights), images, device=device)
    write_file(out, probs, labels, f"ImageNet-1K validation images through ResNet-50, {weights}")


def _network(name: str) -> Any:
    """The network that MODULE:FUNCTION returns. Modules of the current directory are found."""
    module, _, function = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise GCFCPError(
            f"--model {name} is not a MODULE:FUNCTION that can be imported: {error}"
        ) from None
    return made()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make one file, and print the command that uses it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.models")
    parser.add_argument("name", choices=["cifar10", "pathmnist", "imagenet"])
    parser.add_argument("-o", "--out", required=True, help="the probability file to write")
    parser.add_argument("--data", default="data", help="directory of the data set")
    parser.add_argument("--model", help="MODULE:FUNCTION that returns the network (cifar10)")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of training (pathmnist)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    given = parser.parse_args(arguments)
    try:
        if given.name == "cifar10":
            if given.model is None:
                parser.error("cifar10 needs --model MODULE:FUNCTION")
            cifar10_file(given.out, _network(given.model), given.data, given.device, given.model)
        elif given.name == "pathmnist":
            pathmnist_file(given.out, given.data, given.epochs, device=given.device)
        else:
            imagenet_file(given.out, given.data, given.device)
    except GCFCPError as error:
        print(f"error: {error}")
        return 1
    print(f"{given.out}: python3 dev.py reproduce {given.name} --probs {given.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
