"""The transformers of roles.py, with random weights: a language model that serves or decodes, and training."""


class Language:
    """A language model of 0.78 billion parameters in fp16, as a server runs it: eager prefill of prompts of any length,
    and decoding by one CUDA graph a token with a key-value cache that stays where it is."""

    def __init__(self, torch, batch, context, layers=24, width=1536, heads=24, vocabulary=32000):
        self.torch, self.batch, self.context = torch, batch, context
        self.heads, self.width, self.dim = heads, width, width // heads
        half = dict(device="cuda", dtype=torch.float16)

        def matrix(rows, columns):
            return torch.randn(rows, columns, **half).div_(rows**0.5)

        self.blocks = [
            dict(
                qkv=matrix(width, 3 * width),
                out=matrix(width, width),
                up=matrix(width, 4 * width),
                down=matrix(4 * width, width),
                keys=torch.zeros(batch, heads, context, self.dim, **half),
                values=torch.zeros(batch, heads, context, self.dim, **half),
            )
            for _ in range(layers)
        ]
        self.table, self.head = torch.randn(vocabulary, width, **half), matrix(width, vocabulary)
        self.prompt = torch.randint(0, vocabulary, (context,)).pin_memory()
        self.token = torch.zeros(batch, dtype=torch.int64, device="cuda")
        self.place = torch.full((1,), context // 2, dtype=torch.int64, device="cuda")
        self.places = torch.arange(context, device="cuda")
        self.graph = self.logits = None

    def norm(self, x):
        return self.torch.nn.functional.layer_norm(x, (self.width,))

    def rest(self, x, y, block):
        """What follows attention in a block."""
        functional = self.torch.nn.functional
        x = x + y @ block["out"]
        return x + functional.gelu(self.norm(x) @ block["up"]) @ block["down"]

    def prefill(self, length):
        """Reads a prompt into the cache and chooses the first token. For a batch of one."""
        functional = self.torch.nn.functional
        x = functional.embedding(self.prompt[:length].to("cuda", non_blocking=True), self.table)
        for block in self.blocks:
            qkv = (self.norm(x) @ block["qkv"]).view(length, 3, self.heads, self.dim)
            q, k, v = qkv.permute(1, 2, 0, 3).unbind(0)
            block["keys"][0, :, :length] = k
            block["values"][0, :, :length] = v
            y = functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
            x = self.rest(x, y.transpose(0, 1).reshape(length, self.width), block)
        logits = self.norm(x[-1:]) @ self.head
        self.token.copy_(logits.argmax(-1))
        self.place.fill_(length)
        return logits

    def next_token(self):
        """One token for each of the batch, by commands that a graph can hold. At the cache's end it begins anew."""
        torch, batch = self.torch, self.batch
        x = torch.nn.functional.embedding(self.token, self.table)
        mask = torch.zeros(1, 1, self.context, dtype=x.dtype, device="cuda")
        mask = mask.masked_fill(self.places > self.place, float("-inf"))
        for block in self.blocks:
            q, k, v = (self.norm(x) @ block["qkv"]).view(batch, 3, self.heads, self.dim).unbind(1)
            block["keys"].index_copy_(2, self.place, k.unsqueeze(2))
            block["values"].index_copy_(2, self.place, v.unsqueeze(2))
            keys, values = (block[n].view(batch * self.heads, self.context, self.dim) for n in ("keys", "values"))
            q = q.reshape(batch * self.heads, 1, self.dim)
            weights = torch.softmax(torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=self.dim**-0.5), -1)
            x = self.rest(x, torch.bmm(weights, values).view(batch, self.width), block)
        logits = self.norm(x) @ self.head
        self.token.copy_(logits.argmax(-1))
        self.place.copy_((self.place + 1) % self.context)
        return logits

    def capture(self):
        """Makes the graph of `decode`. What libraries set up at first use must have been set up by then."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.next_token()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.logits = self.next_token()

    def decode(self):
        """The next token: one graph launch."""
        self.graph.replay()
        return self.logits

    def read(self):
        """The token that was chosen last, once it is known."""
        return self.token.tolist()


def training(torch, batch=16, length=512, layers=12, width=768, heads=12, vocabulary=8192, note=None, copies=True):
    """A step that trains a transformer of 0.1 billion parameters by AdamW under bf16 autocast, and how many tokens it
    takes. The vocabulary is small, so that it fits beside others: about 6 GiB. `note` is called with the name of each part of
    a step that begins; without `copies` the text stays on the device."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.rest = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            qkv = self.qkv(self.before(x)).view(batch, length, 3, heads, width // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.rest(self.between(x))

    blocks = (Block() for _ in range(layers))
    last = nn.LayerNorm(width), nn.Linear(width, vocabulary)
    model = nn.Sequential(nn.Embedding(vocabulary, width), *blocks, *last).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    text = torch.randint(0, vocabulary, (batch, length + 1))
    text = text.pin_memory() if copies else text.cuda()
    note = note or (lambda _: None)

    def step():
        note("copy")
        tokens = text.to("cuda", non_blocking=True)
        note("forward")
        with torch.enable_grad():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens[:, :-1])
                loss = functional.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
            note("backward")
            loss.backward()
        note("optimizer")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, batch * length


def generating(torch, context, tokens=24, vocabulary=32000):
    """`generate()` of transformers, as most people serve a language model: a Llama of 1.1 billion parameters in fp16. Gives a
    function from the length of a prompt to when each token was there, what was made, and how long the device was waited for
    for each token, with what else is between the calls of the model: the choice of a token and whether to stop, which read from the
    device twice and launch a dozen short kernels, alike under all systems. No waits where transformers calls what is watched
    otherwise."""
    import functools
    import time

    from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessorList

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=context,
    )
    model = LlamaForCausalLM(config).half().cuda().eval()
    prompt = torch.randint(0, vocabulary, (1, context))

    class Marks:
        """Streamer and logits processor of one answer: when the model's commands were given, when each token was there, and when
        the model was about to be called after it."""

        def __init__(self):
            self.marks, self.given, self.begun = [], [], []

        def put(self, _):
            self.marks.append(time.monotonic())

        def end(self):
            pass

        def __call__(self, input_ids, scores):
            self.given.append(time.monotonic())
            return scores

        def begins(self):
            if len(self.marks) - 1 > len(self.begun):  # the prompt is put first
                self.begun.append(time.monotonic())

        def waits(self):
            there = self.marks[1:]
            if len(self.given) != len(there) or len(self.begun) < len(there) - 1:
                return []
            before = [0.0, *(b - a for a, b in zip(there, self.begun))]
            return [first + b - a for first, a, b in zip(before, self.given, there)]

    now, prepare = [Marks()], model.prepare_inputs_for_generation

    @functools.wraps(prepare)
    def watched(*args, **kwargs):
        now[0].begins()
        return prepare(*args, **kwargs)

    model.prepare_inputs_for_generation = watched

    def generate(length):
        now[0] = marks = Marks()
        ids = prompt[:, :length].cuda()
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=marks,
            logits_processor=LogitsProcessorList([marks]),
        )
        return marks.marks[1:], made, marks.waits()

    return generate
