"""Writes a folder with a language model of random weights and a tokenizer of bytes, for `transformers serve`."""

import argparse

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("--layers", type=int, default=16, help="[16]")
parser.add_argument("--width", type=int, default=2048, help="[2048]")
args = parser.parse_args()

letters = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.add_special_tokens(["<end>"])
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
fast.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
fast.save_pretrained(args.folder)

config = LlamaConfig(vocab_size=260, hidden_size=args.width, intermediate_size=4 * args.width,
                     num_hidden_layers=args.layers, num_attention_heads=16, num_key_value_heads=4,
                     bos_token_id=None, eos_token_id=256, pad_token_id=256)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(args.folder)
