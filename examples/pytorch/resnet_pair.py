"""The pair of the reports: ResNet-18 answers 20 requests a second, ResNet-50 works through batches without end.

xsched compare --high 'python3 examples/pytorch/resnet_pair.py high' --low 'python3 examples/pytorch/resnet_pair.py low'
"""

import pace  # first: it may start the program again

import torch
from torch import nn


def convolution(inputs, outputs, size, stride=1):
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    """Two convolutions of 3 x 3; or, as deep networks have it, one of them between two of 1 x 1."""

    def __init__(self, inputs, width, stride, deep):
        super().__init__()
        outputs = 4 * width if deep else width
        if deep:
            first = convolution(inputs, width, 1) + [nn.ReLU()] + convolution(width, width, 3, stride)
            path = first + [nn.ReLU()] + convolution(width, outputs, 1)
        else:
            path = convolution(inputs, width, 3, stride) + [nn.ReLU()] + convolution(width, width, 3)
        self.path = nn.Sequential(*path)
        same = stride == 1 and inputs == outputs
        self.past = nn.Identity() if same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x):
        return torch.relu(self.path(x) + self.past(x))


def resnet(depths, deep):
    blocks, inputs = convolution(3, 64, 7, 2) + [nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate(depths):
        for n in range(depth):
            width = 64 << stage
            blocks.append(Block(inputs, width, 2 if n == 0 and stage > 0 else 1, deep))
            inputs = 4 * width if deep else width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def main():
    parser = pace.options("ResNet-18 at a pace, or ResNet-50 without end")
    parser.add_argument("part", choices=["high", "low"])
    parser.add_argument("--batch", type=int, default=64, help="pictures of a batch of the low part [64; the reports had 1024]")
    args = parser.parse_args()
    if args.part == "high":
        model, pictures = resnet([2, 2, 2, 2], deep=False), torch.randn(1, 3, 224, 224)
    else:
        model, pictures = resnet([3, 4, 6, 3], deep=True), torch.randn(args.batch, 3, 224, 224)
    model, pictures = model.eval().to(args.device), pictures.to(args.device)

    @torch.inference_mode()
    def run():
        return model(pictures)

    pace.serve(run, args) if args.part == "high" else pace.work(run, args)


if __name__ == "__main__":
    main()
