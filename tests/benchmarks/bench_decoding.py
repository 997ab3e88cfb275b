"""Print how long beam search takes beside Hugging Face's generate. `python tests/benchmarks/bench_decoding.py`

Both sides search with the same random GPT-2 (2 blocks, width 128, 2,000 words) and keep its keys and values, for
100 captions of 20 words that never end early. They take turns, and the ratio is the median over the rounds of CPU time.
"""

import statistics
import time
from typing import NamedTuple

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from course_utils.captioners.interface import Captioner
from course_utils.decoding import beam_search
from course_utils.vocabulary import END, PAD, START

N, T, ROUNDS = 100, 20, 5


class Cache(NamedTuple):
    """Keys and values (N, heads, t, d) of every block."""

    keys: tuple
    values: tuple


class CachedGPT2(Captioner):
    """The same GPT-2 behind the course's interface: the image is a first word (N,) int64 that it has read already."""

    def __init__(self, model: GPT2LMHeadModel):
        super().__init__()
        self.model = model

    def read(self, words, cache):
        logits = self.model(words[:, None], cache, use_cache=True).logits[:, -1]  # (N, V)
        keys, values = zip(*((layer.keys, layer.values) for layer in cache.layers))
        return logits.log_softmax(1), Cache(keys, values)

    def init_state(self, image):
        return self.read(image, DynamicCache())[1]

    def step(self, words, state):
        cache = DynamicCache()
        for i, (keys, values) in enumerate(zip(*state)):
            cache.update(keys[:, :, :0], values[:, :, :0], i)  # an empty layer, so that nothing is copied
            cache.layers[i].keys, cache.layers[i].values = keys, values
        return self.read(words, cache)


def rounds(calls: dict) -> dict[str, list[float]]:
    """Seconds of CPU of every call, in turns, so that a busy moment of the machine falls on all of them."""
    times = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            if turn:  # the first turn warms up
                times[name].append(time.process_time() - begin)
    return times


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=2000, n_positions=32, n_embd=128, n_layer=2, n_head=4, initializer_range=0.2, bos_token_id=START,
        eos_token_id=END, pad_token_id=PAD, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    ours, image = CachedGPT2(model).eval(), torch.arange(3, 3 + N)
    prompt = torch.stack([image, torch.full((N,), START)], 1)  # (N, 2)
    shared = {"max_new_tokens": T, "min_new_tokens": T, "suppress_tokens": [PAD, START], "do_sample": False}
    shared |= {"attention_mask": torch.ones_like(prompt), "use_cache": True}
    print("seconds of CPU, median; ratio ours / generate, median (lowest to highest)")
    for k in (1, 3, 5):
        options = {"length_penalty": 0.0, "early_stopping": "never"} if k > 1 else {}
        calls = {
            "generate": lambda k=k, options=options: model.generate(prompt, num_beams=k, **options, **shared),
            "ours": lambda k=k: beam_search(ours, image, k, T, min_length=T),
        }
        found = calls["ours"]().tokens
        same = (calls["generate"]()[:, 2:] == found).all(1).float().mean()
        times = rounds(calls)
        ratios = sorted(a / b for a, b in zip(times["ours"], times["generate"]))
        medians = {name: statistics.median(values) for name, values in times.items()}
        print(
            f"beam {k}: generate {medians['generate']:.3f} ours {medians['ours']:.3f} "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); equal captions {same:.0%}"
        )


if __name__ == "__main__":
    main()
