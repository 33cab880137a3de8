"""BERT-base with random weights answers requests of one sentence.

xsched compare --high 'python3 examples/pytorch/bert.py' --low 'python3 examples/pytorch/cnn.py'
"""

import pace  # first: it may start the program again

import torch


class Bert(torch.nn.Module):
    """The encoder of BERT: 12 layers of width 768 unless said otherwise."""

    def __init__(self, layers=12, width=768, heads=12, vocabulary=30522, longest=512):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(longest, width)
        self.norm = torch.nn.LayerNorm(width)
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu", batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.layers(self.norm(self.words(tokens) + self.places(places)))


def main():
    parser = pace.options("BERT-base with random weights")
    parser.add_argument("--layers", type=int, default=12, help="[12]")
    parser.add_argument("--length", type=int, default=128, help="tokens of a sentence [128]")
    args = parser.parse_args()
    model = Bert(args.layers).eval().to(args.device)
    sentence = torch.randint(0, 30522, (1, args.length))

    @torch.inference_mode()
    def request():
        return model(sentence.to(args.device))[:, 0].cpu()

    pace.serve(request, args)


if __name__ == "__main__":
    main()
