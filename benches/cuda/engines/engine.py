#!/usr/bin/env python3
"""An inference engine as a process that takes orders by its standard input and answers by lines, as roles.py does.

  engine.py [--model FOLDER] [--kv-gib N] [--seqs N] [--sync] [--standin]

vLLM's AsyncLLM runs in this process, and its EngineCore, which holds the GPU, in a child. The model has random weights: FOLDER gets the
configuration of a Llama of 1.1 billion parameters unless it has one. Orders:

  warm                               answers WARM once requests of each kind were served
  tokens                             TOKENS and a digest of greedy answers to fixed prompts, one at a time
  go poisson START END RATE SEED     RESULT and what came of the requests that were due in that time (CLOCK_MONOTONIC, s)

A RESULT has, for each request, its arrival and the times of its tokens in ms after that. --sync schedules a token once the one before is
there, as vLLM did before it had asynchronous scheduling: the device rests meanwhile. --standin needs neither vLLM nor a GPU: a
thread that sleeps makes the tokens.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from roles import due_times, prompt_lengths, say  # noqa: E402

TOKENS = 64  # of an answer
VOCABULARY = 32000
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}


def prompt(seed, length):
    draw = random.Random(f"prompt {seed}")
    return [draw.randrange(3, VOCABULARY) for _ in range(length)]


class Vllm:
    """vLLM with CUDA graphs and asynchronous scheduling, as it is by default."""

    def __init__(self, args):
        folder = Path(args.model)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():
            (folder / "config.json").write_text(json.dumps(LLAMA))
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind, SamplingParams
        from vllm.v1.engine.async_llm import AsyncLLM

        options = AsyncEngineArgs(
            model=str(folder),
            load_format="dummy",
            skip_tokenizer_init=True,
            generation_config="vllm",
            attention_backend="FLASH_ATTN",
            enable_flashinfer_autotune=False,
            max_model_len=2048,
            max_num_seqs=args.seqs,
            kv_cache_memory_bytes=args.kv_gib << 30,  # no profile, which neighbours disturb
            gpu_memory_utilization=0.15,  # so much must be free
            **({"async_scheduling": False} if args.sync else {}),
        )
        self.engine = AsyncLLM.from_engine_args(options)
        self.sampling = SamplingParams(
            max_tokens=TOKENS, temperature=0.0, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        self.count = 0

    async def tokens(self, words):
        """The tokens of an answer, in the pieces in which they come."""
        self.count += 1
        request = {"prompt_token_ids": words}
        async for output in self.engine.generate(request, self.sampling, str(self.count)):
            yield list(output.outputs[0].token_ids)

    def close(self):
        self.engine.shutdown()


class Standin:
    """Tokens without a model: each follows from the ones before."""

    def __init__(self, _):
        pass

    async def tokens(self, words):
        state = sum(words)
        await asyncio.sleep(0.01)
        for _ in range(TOKENS):
            await asyncio.sleep(0.001)
            state = state * 1103515245 % 2**31
            yield [state % VOCABULARY]

    def close(self):
        pass


async def answer(engine, words):
    """Times at which tokens were there, and the tokens."""
    marks, tokens = [], []
    async for piece in engine.tokens(words):
        now = time.monotonic()
        marks += [now] * len(piece)
        tokens += piece
    return marks, tokens


async def go(engine, mode, start, end, rate, seed):
    async def one(number, due, length):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        marks, _ = await answer(engine, prompt(f"{seed} {number}", length))
        return {"at_s": round(due - start, 6), "token_ms": [round((mark - due) * 1e3, 4) for mark in marks]}

    times = due_times(mode, start, end, rate, seed)
    lengths = prompt_lengths(seed, len(times))
    requests = await asyncio.gather(*(one(*each) for each in zip(range(len(times)), times, lengths)))
    return {"mode": mode, "rate": rate, "requests": requests}


async def serve(engine):
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        words = line.split()
        if words == ["warm"]:
            for length in range(128, 513, 64):
                await answer(engine, prompt(f"warm {length}", length))
            await asyncio.gather(*(answer(engine, prompt(f"together {n}", 256)) for n in range(4)))
            say("WARM")
        elif words == ["tokens"]:
            digest = hashlib.sha256()
            for number in range(4):
                _, tokens = await answer(engine, prompt(f"fixed {number}", 200))
                digest.update(json.dumps(tokens).encode())
            say(f"TOKENS {digest.hexdigest()[:16]}")
        elif words[:1] == ["go"] and len(words) == 6:
            mode, start, end, rate, seed = words[1], *map(float, words[2:5]), int(words[5])
            say("RESULT " + json.dumps(await go(engine, mode, start, end, rate, seed)))
        elif words:
            sys.exit(f"not an order: {line!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="/tmp/llama-1b")
    parser.add_argument("--kv-gib", type=int, default=1)
    parser.add_argument("--seqs", type=int, default=16)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--standin", action="store_true")
    args = parser.parse_args()

    async def run():
        engine = (Standin if args.standin else Vllm)(args)
        say("IMPORTED")
        try:
            await serve(engine)
        finally:
            engine.close()

    asyncio.run(run())
    os._exit(0)  # threads of the engine need not be waited for


if __name__ == "__main__":
    main()
