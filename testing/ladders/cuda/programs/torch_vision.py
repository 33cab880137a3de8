#!/usr/bin/env python3
"""Image models of torchvision with random weights, in single and half precision."""

import checks

torch = checks.need("torch", "torchvision", "numpy")
import torchvision  # noqa: E402

DEVICE = checks.DEVICE


def normalised(model):
    """Random weights let activations vanish layer by layer: normalise by the batch, nothing has been learnt."""
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.train()
    return model


def classify(name, batch=4, size=224):
    torch.manual_seed(1)
    model = normalised(getattr(torchvision.models, name)().to(DEVICE))
    x = torch.randn(batch, 3, size, size).to(DEVICE)
    with torch.inference_mode():
        checks.show(name, model(x))
        if DEVICE == "cuda":
            model, x = model.half(), x.half()
            for turn in range(3):  # the later ones find all algorithms chosen
                checks.show(f"{name}.half.{turn}", model(x))


@checks.check
def resnet18():
    classify("resnet18")


@checks.check
def resnet50():
    classify("resnet50")


@checks.check
def vgg16():
    classify("vgg16")


@checks.check
def efficientnet_b0():
    classify("efficientnet_b0")


if __name__ == "__main__":
    checks.main()
