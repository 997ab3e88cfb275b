"""Print how long the layers take beside torch's: CPU-time ratios of one run. `python tests/benchmarks/bench_layers.py`

nn.LSTM is timed twice: with oneDNN's fused kernel, where the processor has one, and without it. A loop of separate
products, however written, is the form without it. The last lines ask how many threads a small training step wants.
"""

import statistics
import time
import warnings
from functools import partial

import torch
from torch import nn

from course_utils.captioners.captioning_rnn import CaptioningRNN
from course_utils.layers import lstm, weights_from_torch
from course_utils.layers_backward import lstm_backward

SIZES = ((64, 10, 32, 96, 10, 15), (64, 20, 512, 512, 1, 3))  # N, T, E, H, passes a round, rounds


def seconds(call, passes: int, clock=time.process_time) -> float:
    begin = clock()
    for _ in range(passes):
        call()
    return (clock() - begin) / passes


def rounds(calls: dict, passes: int, count: int) -> dict[str, list[float]]:
    """Seconds of every call, in turns, so that a busy moment of the machine falls on all of them."""
    times = {name: [] for name in calls}
    for turn in range(count + 1):
        for name, call in calls.items():
            spent = seconds(call, passes)
            if turn:  # the first turn warms up
                times[name].append(spent)
    return times


def lstm_calls(N: int, T: int, E: int, H: int) -> dict:
    module, cell = nn.LSTM(E, H, batch_first=True), nn.LSTMCell(E, H)
    weights = [weight.requires_grad_() for weight in weights_from_torch(module)]
    x, zero, dh = torch.randn(N, T, E, requires_grad=True), torch.zeros(N, H), torch.ones(N, T, H)

    def unfused():
        with torch.backends.mkldnn.flags(enabled=False):
            module(x)[0].sum().backward()

    def cell_loop():
        h, c, states = zero, zero, []
        for step in x.unbind(1):
            h, c = cell(step, (h, c))
            states.append(h)
        torch.stack(states, 1).sum().backward()

    def manual():
        with torch.no_grad():
            lstm_backward(dh, x, zero, zero, *lstm(x, zero, zero, *weights), *weights)

    return {
        "nn.LSTM": lambda: module(x)[0].sum().backward(),
        "nn.LSTM without oneDNN": unfused,
        "nn.LSTMCell in a loop": cell_loop,
        "layers.lstm (hoisted)": lambda: lstm(x, zero, zero, *weights)[0].sum().backward(),
        "layers.lstm, manual backward": manual,
    }


def compare_lstm() -> None:
    for N, T, E, H, passes, count in SIZES:
        torch.manual_seed(0)
        times = rounds(lstm_calls(N, T, E, H), passes, count)
        print(f"LSTM forward + backward, N {N}, T {T}, E {E}, H {H}, one thread, median of {count} rounds")
        print(f"  {'':30s}     ms  / nn.LSTM  / without oneDNN  / LSTMCell loop")
        middle = {name: statistics.median(values) for name, values in times.items()}
        for name, value in middle.items():
            ratios = [value / middle[base] for base in list(middle)[:3]]
            print(f"  {name:30s} {1e3 * value:6.2f}  {ratios[0]:9.2f}  {ratios[1]:16.2f}  {ratios[2]:15.2f}")


def training_step(model, optimiser, features, captions) -> None:
    optimiser.zero_grad()
    model.loss(features, captions).backward()
    optimiser.step()


def compare_threads() -> None:
    torch.manual_seed(0)
    features, captions = torch.randn(32, 64), torch.randint(1, 27, (32, 10))
    for cell_type in ("rnn", "lstm"):
        model = CaptioningRNN(cell_type, D=64, W=32, H=96, V=27)
        train = partial(training_step, model, torch.optim.AdamW(model.parameters(), lr=1e-4), features, captions)
        spent = {(threads, clock): [] for threads in (1, 2) for clock in ("cpu", "wall")}
        for turn in range(9):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                wall, cpu = time.perf_counter(), seconds(train, 20)
                if turn:
                    spent[threads, "cpu"].append(cpu)
                    spent[threads, "wall"].append((time.perf_counter() - wall) / 20)
        torch.set_num_threads(1)
        ratio = {c: statistics.median(spent[2, c]) / statistics.median(spent[1, c]) for c in ("cpu", "wall")}
        print(
            f"training step, {cell_type}, 32 captions, H 96: {1e3 * statistics.median(spent[1, 'wall']):.2f} ms on one "
            f"thread; two threads over one: CPU time {ratio['cpu']:.2f}, wall time {ratio['wall']:.2f}"
        )


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="TF32")
    torch.set_num_threads(1)
    compare_lstm()
    compare_threads()
