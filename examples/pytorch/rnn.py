"""A recurrent network answers requests: many short kernels, one after the other.

xsched compare --high 'python3 examples/pytorch/rnn.py --cell lstm' --low 'python3 examples/pytorch/cnn.py'
"""

import pace  # first: it may start the program again

import torch


def main():
    parser = pace.options("a GRU or an LSTM with random weights")
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    parser.add_argument("--length", type=int, default=64, help="steps of a sequence [64]")
    args = parser.parse_args()
    kind = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[args.cell]
    model = kind(256, 512, num_layers=2, batch_first=True).eval().to(args.device)
    sequence = torch.randn(1, args.length, 256)

    @torch.inference_mode()
    def request():
        outputs, _ = model(sequence.to(args.device))
        return outputs[:, -1].cpu()

    pace.serve(request, args)


if __name__ == "__main__":
    main()
