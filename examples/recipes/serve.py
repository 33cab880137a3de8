"""A language model with random weights behind HTTP, as OpenAI's interface has it: POST /v1/completions."""

import argparse
import json
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch
from transformers import LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--device", default="cuda", help="PyTorch's name of the device [cuda]")
parser.add_argument("--port", type=int, default=8000, help="[8000]")
parser.add_argument("--layers", type=int, default=12, help="[12]")
parser.add_argument("--width", type=int, default=1024, help="[1024]")
args = parser.parse_args()

# A token is a byte, so that no tokenizer has to be fetched.
config = LlamaConfig(vocab_size=256, hidden_size=args.width, intermediate_size=4 * args.width,
                     num_hidden_layers=args.layers, num_attention_heads=16, num_key_value_heads=4,
                     bos_token_id=None, eos_token_id=None, pad_token_id=0)
model = LlamaForCausalLM(config).to(args.device, torch.bfloat16).eval()


def complete(prompt, tokens):
    """Text of so many tokens that follow the prompt."""
    ids = torch.tensor([list(prompt.encode()) or [0]], device=args.device)
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
    return bytes(out[0, ids.shape[1]:].tolist()).decode("latin-1")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = complete(asked["prompt"], asked.get("max_tokens", 16))
        answer = json.dumps({"object": "text_completion", "choices": [{"index": 0, "text": text}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Nothing: a line for each answer would hide all else."""


for _ in range(3):
    complete("warm", 8)
print(f"serve.py: ready at http://127.0.0.1:{args.port}/v1/completions", flush=True)
# One request after the other, in this thread: another one would open the device's libraries anew.
HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
