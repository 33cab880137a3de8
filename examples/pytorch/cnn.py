"""A small convolutional network is trained without end, on random pictures.

xsched run --priority low -- python3 examples/pytorch/cnn.py
"""

import pace  # first: it may start the program again

import torch
from torch import nn


def main():
    parser = pace.options("trains a small convolutional network")
    parser.add_argument("--batch", type=int, default=256, help="pictures of a batch [256]")
    args = parser.parse_args()
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10),
    ).to(args.device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.randn(args.batch, 3, 32, 32).to(args.device)
    labels = torch.randint(0, 10, (args.batch,)).to(args.device)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()

    pace.work(step, args)


if __name__ == "__main__":
    main()
