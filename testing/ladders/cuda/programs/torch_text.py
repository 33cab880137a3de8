#!/usr/bin/env python3
"""Language and image transformers of transformers, and an LSTM, with random weights."""

import checks

torch = checks.need("torch", "transformers", "numpy")
import transformers  # noqa: E402

DEVICE = checks.DEVICE
WORDS = 1000


def words(batch, length):
    return torch.randint(2, WORDS, (batch, length)).to(DEVICE)


def made(kind, config):
    torch.manual_seed(1)
    return kind(config).to(DEVICE).eval()


@checks.check
@torch.inference_mode()
def bert():
    model = made(transformers.BertModel, transformers.BertConfig(vocab_size=WORDS))
    checks.show("bert", model(words(4, 64)).last_hidden_state)
    if DEVICE == "cuda":
        checks.show("bert.half", model.half()(words(4, 64)).last_hidden_state)


@checks.check
@torch.inference_mode()
def gpt2():
    config = transformers.GPT2Config(vocab_size=WORDS, n_layer=6, bos_token_id=0, eos_token_id=1)
    model = made(transformers.GPT2LMHeadModel, config)
    prompt = words(2, 16)
    mask = torch.ones_like(prompt)
    checks.show("gpt2", model(prompt).logits)
    common = {"attention_mask": mask, "max_new_tokens": 40, "pad_token_id": 1}
    checks.show("gpt2.greedy", model.generate(prompt, do_sample=False, **common))
    torch.manual_seed(5)
    checks.show("gpt2.sampled", model.generate(prompt, do_sample=True, top_k=50, **common))
    checks.show("gpt2.beams", model.generate(prompt, do_sample=False, num_beams=4, **common))


@checks.check
@torch.inference_mode()
def t5():
    config = transformers.T5Config(vocab_size=WORDS, num_layers=4, decoder_start_token_id=0)
    model = made(transformers.T5ForConditionalGeneration, config)
    source = words(2, 32)
    checks.show("t5", model(input_ids=source, decoder_input_ids=words(2, 8)).logits)
    torch.manual_seed(5)
    mask = torch.ones_like(source)
    checks.show(
        "t5.sampled", model.generate(source, attention_mask=mask, do_sample=True, min_new_tokens=20, max_new_tokens=20)
    )


@checks.check
@torch.inference_mode()
def vit():
    model = made(transformers.ViTModel, transformers.ViTConfig(num_hidden_layers=6))
    checks.show("vit", model(torch.randn(4, 3, 224, 224).to(DEVICE)).last_hidden_state)


@checks.check
@torch.inference_mode()
def lstm():
    torch.manual_seed(1)
    model = torch.nn.LSTM(128, 256, num_layers=2, bidirectional=True).to(DEVICE).eval()
    out, (hidden, cell) = model(torch.randn(50, 8, 128).to(DEVICE))
    for name, value in (("lstm", out), ("lstm.hidden", hidden), ("lstm.cell", cell)):
        checks.show(name, value)


if __name__ == "__main__":
    checks.main()
