"""Print how fast scenes are drawn beside a loop over single scenes. `python tests/benchmarks/bench_scenes.py`

Two loops follow the same recipe, one scene at a time: in NumPy, whose small operations are the fastest, object by
object; and `generate(1)` itself. All run in turns in one process on one thread; the figures are the ratios of their
scenes per CPU second.
"""

import statistics
import time

import numpy as np
import torch

from course_utils.scenes import RGB, Recipe, generate

SCENES, LOOP, ROUNDS = 16_000, 600, 5


def one_scene(recipe: Recipe, rng: np.random.Generator, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return one picture (3, S, S) float32 of the recipe; y and x (S, S) are the pixels' places."""
    image = np.full((3, recipe.canvas, recipe.canvas), recipe.background, np.float32)
    cells = rng.choice(recipe.layout**2, recipe.objects, replace=False).tolist()
    pairs = rng.choice(len(recipe.pairs), recipe.objects, replace=False).tolist()
    for cell, pair in zip(cells, pairs):
        shift = rng.uniform(-recipe.jitter, recipe.jitter, 2)
        row, column = (0.5 + recipe.pitch * (k + 0.5) + move for k, move in zip(divmod(cell, recipe.layout), shift))
        r = rng.uniform(*recipe.radius)
        paint = np.clip(RGB[pair // 3].numpy() + rng.uniform(-recipe.colour_jitter, recipe.colour_jitter, 3), 0, 1)
        down, across = y - row, abs(x - column)
        if pair % 3 == 0:
            mask = down**2 + across**2 <= r**2
        elif pair % 3 == 1:
            mask = (abs(down) <= r) & (across <= r)
        else:
            mask = (abs(down) <= r) & (across <= (down + r) / 2)
        image[:, mask] = paint[:, None]
    return np.clip(image + recipe.noise * rng.standard_normal(image.shape, np.float32), 0, 1)


def loop(n: int, recipe: Recipe) -> np.ndarray:
    """Return n pictures (n, 3, S, S), drawn one by one."""
    rng, (y, x) = np.random.default_rng(0), np.mgrid[: recipe.canvas, : recipe.canvas].astype(np.float32)
    return np.stack([one_scene(recipe, rng, y, x) for _ in range(n)])


def seconds(call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def compare(recipe: Recipe, scenes: int) -> None:
    """Print the speeds of one recipe and their ratios."""
    calls = {
        "generate": (scenes, lambda: generate(scenes, recipe)),
        "NumPy loop": (LOOP, lambda: loop(LOOP, recipe)),
        "generate(1) in a loop": (LOOP, lambda: [generate(1, recipe, seed) for seed in range(LOOP)]),
    }
    spent = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (n, call) in calls.items():
            spent[name].append(seconds(call) / n)
    ours = spent["generate"]
    print(f"{recipe.objects} objects on {recipe.canvas} pixels: {SCENES:,} scenes take {SCENES * ours[0]:.2f} s of CPU "
          f"at the first call, {SCENES * statistics.median(ours):.2f} s later")  # fmt: skip
    for name, times in list(spent.items())[1:]:
        ratio = [time / own for time, own in zip(times, ours)]
        print(f"  over {name} ({1 / statistics.median(times):,.0f} scenes a second): {statistics.median(ratio):.1f} "
              f"({min(ratio):.1f} to {max(ratio):.1f}, {ROUNDS} rounds)")  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert abs(loop(400, Recipe()).mean() - generate(400).images.mean()) < 0.01, "the two draw different things"
    compare(Recipe(), SCENES)
    compare(Recipe(objects=5, canvas=64, layout=4, radius=(4.0, 6.0)), 4_000)
