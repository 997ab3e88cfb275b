"""Decoding against enumeration, a naive search, teacher forcing and Hugging Face's generate."""

import inspect
import itertools
import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_utils import decoding
from course_utils.captioners.interface import Captioner
from course_utils.decoding import (
    beam_search,
    diverse_beam_search,
    forbid,
    greedy,
    keep_top_k,
    keep_top_p,
    length_penalty,
    sample,
    score,
)
from course_utils.vocabulary import END, PAD, START, course_vocabulary

INF = float("inf")
DECODERS = {
    "greedy": greedy,
    "beam": lambda model, image, length=8: beam_search(model, image, 3, length),
    "average": lambda model, image, length=8: beam_search(model, image, 3, length, penalty="average"),
    "diverse": lambda model, image, length=8: diverse_beam_search(model, image, 4, 2, 1.5, length),
}


# ---------------------------------------------------------------- toys
class Chain(Captioner):
    """A Markov chain: the image is a table (N, V, V) of log p(next word | word), so every image is a model of its own.

    A table (N, T, V, V) holds one for each step, so that no two captions score the same.
    """

    def init_state(self, image):
        return (image, torch.zeros(len(image), dtype=torch.int64), None)

    def step(self, tokens, state):
        table, t, _ = state
        at = (torch.arange(len(tokens)), tokens) if table.dim() == 3 else (torch.arange(len(tokens)), t, tokens)
        return table[at], (table, t + 1, None)


class Recurrent(Captioner):
    """An LSTM with random weights; h_0 is the image (N, H); end is how much likelier <end> is made."""

    def __init__(self, V=30, H=16, seed=0, spread=0.6, end=1.0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.cell, self.out = nn.Embedding(V, H), nn.LSTMCell(H, H), nn.Linear(H, V)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=spread)
        self.out.bias.data[END] += end

    def init_state(self, image):
        return image, torch.zeros_like(image)

    def step(self, tokens, state):
        h, c = self.cell(self.embed(tokens), state)
        return self.out(h).log_softmax(1), (h, c)


class Parts(NamedTuple):
    past: list
    both: dict
    nothing: None


class Remembering(Recurrent):
    """The same LSTM with its state in a named tuple of a list, a dict and None, and with the words read kept in it."""

    def init_state(self, image):
        return Parts([torch.zeros(len(image), 0, dtype=torch.int64)], {"h": (image, torch.zeros_like(image))}, None)

    def step(self, tokens, state):
        h, c = self.cell(self.embed(tokens), state.both["h"])
        past = torch.cat([state.past[0], tokens[:, None]], 1)
        seen = self.embed(past).sum(1)  # so that a past of the wrong parent changes the scores
        return self.out(h + torch.tanh(seen)).log_softmax(1), Parts([past], {"h": (h, c)}, None)


def tables(*shape, words, seed, end=True, spread=2.0, dtype=torch.float32):
    """Random chains (N, V, V) or (N, T, V, V) over so many words; <pad> and <start> never follow, <end> only if end."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(*shape, words + 3, words + 3, generator=generator, dtype=dtype)
    scores[..., [PAD, START] if end else [PAD, START, END]] = -INF
    return scores.log_softmax(-1)


def following(table, ids):
    """(word, log p) of every word that can follow ids in a chain (V, V) or (T, V, V)."""
    row = (table if table.dim() == 2 else table[len(ids)])[ids[-1] if ids else START]
    return [(word, log_p) for word, log_p in enumerate(row.tolist()) if log_p > -INF]


def chain_of(rules):
    """The chain (1, V, V) of {word: {next word: p}}; a word without a rule is followed by <end>."""
    V = 1 + max(itertools.chain([END], rules, *rules.values()))
    table = torch.zeros(1, V, V)
    table[:, :, END] = 1.0
    for word, after in rules.items():
        table[0, word] = 0.0
        table[0, word, list(after)] = torch.tensor(list(after.values()))
    assert torch.allclose(table.sum(2), torch.ones(1, V))
    return table.log()


def wider_is_worse():
    """A chain in which k = 1 finds p = .18 and k = 2 only .19 / 6: the heirs of 4 push out 3 6, and lead nowhere."""
    return chain_of({
        START: {3: 0.40, 4: 0.38, 5: 0.22},
        3: {6: 0.45} | {word: 0.11 for word in range(9, 14)},
        5: {word: 1 / 6 for word in range(9, 15)},
        4: {7: 0.50, 8: 0.50},
        7: {word: 1 / 6 for word in range(9, 15)},
        8: {word: 1 / 6 for word in range(9, 15)},
    })  # fmt: skip


def hidden(N=6, seed=1, H=16):
    return torch.randn(N, H, generator=torch.Generator().manual_seed(seed))


def captions_of(table, length):
    """Every caption of a chain that is complete or cut at length, with log p: {ids: float}."""
    found, live = {}, {(): 0.0}
    for t in range(length):
        longer = {}
        for caption, total in live.items():
            for word, log_p in following(table, caption):
                ends = word == END or t == length - 1
                (found if ends else longer)[(*caption, word)] = total + log_p
        live = longer
    return found


def naive_beam(table, k, length, penalty, alpha):
    """Beam search over one chain with lists, never stopping early: [(score, ids)], best first."""
    live, pool = [(0.0, ())], []
    for t in range(length):
        grown = [(total + log_p, (*ids, word)) for total, ids in live for word, log_p in following(table, ids)]
        grown = sorted(grown, reverse=True)[: 2 * k]
        complete = [item for item in grown[:k] if item[1][-1] == END or t == length - 1]
        divisor = length_penalty(t + 1, penalty, alpha)
        pool = sorted(pool + [(total / divisor, ids) for total, ids in complete], reverse=True)[:k]
        live = [item for item in grown if item[1][-1] != END][:k]
    return pool


def ids_of(row):
    """The tokens of a row as a tuple, without the <pad> behind <end>."""
    ids = row.tolist()
    return tuple(ids[: ids.index(END) + 1] if END in ids else ids)


# ---------------------------------------------------------------- greedy and beam search
@pytest.mark.parametrize("penalty", ["none", "average", "gnmt"])
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_width_one_is_greedy_bit_for_bit(penalty, early_stopping):
    for seed in range(4):
        model, image = Recurrent(seed=seed), hidden(20, seed)
        one, best = (
            greedy(model, image, 12),
            beam_search(model, image, 1, 12, penalty=penalty, early_stopping=early_stopping),
        )
        assert torch.equal(one.tokens, best.tokens)
        assert torch.equal(one.log_probs, best.log_probs)
    assert len({ids_of(row) for row in one.tokens}) > 3  # the images lead to different captions
    assert (one.tokens == END).any() and not (one.tokens == END).any(1).all()


def test_full_width_is_enumeration():
    image = tables(4, 3, words=3, seed=0, end=False)
    found = beam_search(Chain(), image, 27, 3, n_best=27)
    for i in range(4):
        every = sorted(((total, ids) for ids, total in captions_of(image[i], 3).items()), reverse=True)
        assert len(every) == 27
        assert [ids for _, ids in every] == [ids_of(row) for row in found.tokens[i]]
        assert torch.allclose(found.scores[i], torch.tensor([total for total, _ in every]), atol=1e-5)


@pytest.mark.parametrize(("penalty", "alpha"), [("none", None), ("average", 1.0), ("average", -0.5), ("gnmt", 0.9)])
def test_full_width_with_end_is_enumeration(penalty, alpha):
    image = tables(3, 3, words=3, seed=5)
    found = beam_search(Chain(), image, 40, 3, penalty=penalty, alpha=alpha, n_best=40)  # 1 + 3 + 9 + 27 captions
    for i in range(3):
        every = captions_of(image[i], 3)
        every = sorted(((v / length_penalty(len(ids), penalty, alpha), ids) for ids, v in every.items()), reverse=True)
        assert len(every) == 40
        assert [ids for _, ids in every] == [ids_of(row) for row in found.tokens[i]]
        assert torch.allclose(found.scores[i], torch.tensor([value for value, _ in every]), atol=1e-5)


def test_greedy_and_beam_differ_and_a_wider_beam_can_be_worse():
    image = wider_is_worse()
    one, two, three = (beam_search(Chain(), image, k, 6) for k in (1, 2, 3))
    assert ids_of(one.tokens[0]) == ids_of(greedy(Chain(), image).tokens[0]) == (3, 6, END)
    assert one.log_probs.item() == pytest.approx(math.log(0.4 * 0.45), abs=1e-6)
    assert two.log_probs.item() == pytest.approx(math.log(0.38 * 0.5 / 6), abs=1e-6)
    assert two.log_probs < one.log_probs
    assert three.log_probs.item() == pytest.approx(one.log_probs.item(), abs=1e-6)
    usual = chain_of(
        {START: {3: 0.6, 4: 0.4}, 3: {5: 0.4, 6: 0.3, 7: 0.3}, 4: {5: 1.0}}
    )  # the case that is taught first
    assert ids_of(greedy(Chain(), usual).tokens[0]) == (3, 5, END)
    assert ids_of(beam_search(Chain(), usual, 2).tokens[0]) == (4, 5, END)


@pytest.mark.parametrize("name", DECODERS)
def test_batched_is_one_by_one_and_order_does_not_matter(name):
    model, image, decode = Recurrent(V=24, seed=21, spread=1.2, end=2.0), hidden(12, 3), DECODERS[name]
    together = decode(model, image)
    for i in range(len(image)):
        alone = decode(model, image[i : i + 1])
        assert torch.equal(alone.tokens[0], together.tokens[i])
        assert torch.allclose(alone.scores[0], together.scores[i], atol=1e-5)
    order = torch.randperm(len(image), generator=torch.Generator().manual_seed(0))
    moved = decode(model, image[order])
    assert torch.equal(moved.tokens, together.tokens[order])
    assert torch.allclose(moved.scores, together.scores[order], atol=1e-5)
    assert len({tuple(row.flatten().tolist()) for row in together.tokens}) > 5


@pytest.mark.parametrize("model", [Recurrent(seed=4), Remembering(seed=4)], ids=["flat state", "nested state"])
def test_scores_are_what_teacher_forcing_says(model):
    image = hidden(8, 4)
    results = [decode(model, image) for decode in DECODERS.values()]
    results += [
        beam_search(model, image, 5, 9, penalty="gnmt", n_best=5),
        beam_search(model, image, 4, 9, no_repeat=2, min_length=4, suppress=[7, 8], n_best=2),
        sample(
            model, image, 9, n=6, temperature=1.7, top_p=0.9, no_repeat=1, generator=torch.Generator().manual_seed(0)
        ),
    ]
    for found in results:
        assert torch.allclose(score(model, image, found.tokens), found.log_probs, atol=1e-5)
    for found in results[:2]:
        assert torch.equal(found.scores, found.log_probs)
    lengths = (results[4].tokens != PAD).sum(2)
    penalty = torch.tensor([[length_penalty(int(n), "gnmt") for n in row] for row in lengths])
    assert torch.allclose(results[4].scores, results[4].log_probs / penalty, atol=1e-6)


def test_all_end_and_never_end():
    always = chain_of({START: {END: 1.0}, 4: {END: 1.0}}).expand(3, -1, -1)
    never = tables(3, words=4, seed=0, end=False)
    draw = {
        "sample": lambda model, image, length: sample(model, image, length, generator=torch.Generator().manual_seed(0))
    }
    for name, decode in (DECODERS | draw).items():
        found = decode(Chain(), always, length=5)
        assert (found.tokens[..., 0] == END).all() and (found.tokens[..., 1:] == PAD).all(), name
        assert (found.log_probs == 0).all(), name
        found = decode(Chain(), never, length=5)
        assert found.tokens.shape[-1] == 5 and (found.tokens > END).all(), name
        assert torch.isfinite(found.scores).all(), name
        assert torch.allclose(score(Chain(), never, found.tokens), found.log_probs, atol=1e-5), name
    three = beam_search(Chain(), always, 3, 5, n_best=3)
    assert three.scores.tolist() == [[0.0, -INF, -INF]] * 3  # there is one caption only: two empty places
    assert (three.tokens[:, 1:] == PAD).all()
    single = beam_search(Chain(), tables(1, words=1, seed=0, end=False), 3, 4, trace=True)
    assert [step.finished.sum().item() for step in single.trace] == [0, 0, 0, 1]  # and not the empty places


def test_length_penalty_values():
    assert [length_penalty(n, "gnmt") for n in (1, 5, 10)] == pytest.approx([1, 1.358655, 1.732862], abs=1e-6)
    assert [length_penalty(n, "gnmt", 0.7) for n in (5, 10)] == pytest.approx([1.429862, 1.899144], abs=1e-6)
    assert [length_penalty(n, "average") for n in (1, 4)] == [1, 4]
    assert length_penalty(4, "average", 0.5) == 2 and length_penalty(9) == 1


def test_longer_captions_win_with_a_penalty():
    image = chain_of({START: {END: 0.5, 3: 0.5}, 3: {4: 0.9, END: 0.1}, 4: {5: 0.9, END: 0.1}})
    assert ids_of(beam_search(Chain(), image, 3).tokens[0]) == (END,)
    assert ids_of(beam_search(Chain(), image, 3, penalty="average").tokens[0]) == (3, 4, 5, END)


def test_stopping_early_is_safe_by_default_only():
    """<end> at .5 fills the pool at once; the average of the long caption is better, its sum is not yet."""
    long = {word: {word + 1: 1.0} for word in range(4, 8)}
    image = chain_of({START: {END: 0.45, 3: 0.55}, 3: {END: 0.3, 4: 0.4, 9: 0.3}} | long)
    best = {
        stop: beam_search(Chain(), image, 2, 9, penalty="average", early_stopping=stop)
        for stop in (True, False, "never")
    }
    assert ids_of(best["never"].tokens[0]) == (3, 4, 5, 6, 7, 8, END)
    assert best["never"].scores > best[True].scores
    assert ids_of(best[True].tokens[0]) != ids_of(best["never"].tokens[0])
    losses = 0
    for seed in range(40):
        image = tables(8, words=4, seed=seed, spread=1.0)
        safe, fast = (
            beam_search(Chain(), image, 3, 9, penalty="average", early_stopping=s).scores for s in ("never", False)
        )
        assert (safe >= fast - 1e-6).all()
        losses += int((safe > fast + 1e-6).sum())
    assert losses > 0  # so the heuristic does lose captions


def test_trace_tells_the_whole_search():
    model, image = Recurrent(seed=6), hidden(5, 6)
    silent, told = (beam_search(model, image, 3, 8, penalty="average", trace=trace) for trace in (False, True))
    assert silent.trace == () and torch.equal(silent.tokens, told.tokens) and torch.equal(silent.scores, told.scores)
    for i in range(5):
        live, complete = [()], {}
        for step in told.trace:
            assert step.words.shape == (5, 6) and step.kept.shape == (5, 3)
            assert (step.log_probs.diff() <= 0).all()
            candidates = [(*live[int(p)], int(w)) for p, w in zip(step.parents[i], step.words[i])]
            for ids, total, finished in zip(candidates, step.log_probs[i].tolist(), step.finished[i].tolist()):
                if finished:
                    assert not step.done[i]
                    complete[ids] = total / len(ids)
            live = [candidates[j] for j in step.kept[i].tolist()]
            assert all(ids[-1] != END for ids in live)
        best = max(complete, key=complete.get)
        assert best == ids_of(told.tokens[i])
        assert complete[best] == pytest.approx(told.scores[i].item(), abs=1e-6)
    one = greedy(model, image, 8, trace=True)
    assert torch.equal(torch.stack([step.words for step in one.trace], 1), one.tokens[:, : len(one.trace)])
    assert all(torch.allclose(step.before.exp().sum(1), torch.ones(5)) for step in one.trace)
    assert one.state[0].shape == image.shape


# ---------------------------------------------------------------- diverse beam search
def test_one_group_or_no_diversity_is_beam_search():
    model, image = Recurrent(seed=7), hidden(6, 7)
    whole, plain = diverse_beam_search(model, image, 3, 1, 5.0, 8), beam_search(model, image, 3, 8)
    assert torch.equal(whole.tokens[:, 0], plain.tokens) and torch.allclose(whole.scores[:, 0], plain.scores)
    same, narrow = diverse_beam_search(model, image, 6, 3, 0.0, 8), beam_search(model, image, 2, 8)
    for g in range(3):
        assert torch.equal(same.tokens[:, g], narrow.tokens)


def test_groups_of_one_image_differ():
    image = tables(7, words=8, seed=2, end=False)
    found = diverse_beam_search(Chain(), image, 4, 4, 1e3, 5)
    assert found.tokens.shape == (7, 4, 5)
    assert all(len(set(words)) == 4 for i in range(7) for words in found.tokens[i].T.tolist())
    image = chain_of({START: {3: 0.5, 4: 0.3, 5: 0.2}})
    first = {d: diverse_beam_search(Chain(), image, 3, 3, d).tokens[0, :, 0].tolist() for d in (0.1, 0.6, 1.0)}
    # nats: -.69, -1.20, -1.61; the third group at .6 sees -1.29, -1.80, -1.61
    assert first == {0.1: [3, 3, 3], 0.6: [3, 4, 3], 1.0: [3, 4, 5]}
    image = chain_of({START: {END: 0.5, 3: 0.3, 4: 0.2}})  # the first group takes <end> and keeps 3: both count
    assert diverse_beam_search(Chain(), image, 2, 2, 1.0, 2).tokens.tolist() == [[[END, PAD], [4, END]]]


def test_trace_of_groups():
    image = tables(2, words=6, seed=3)
    found = diverse_beam_search(Chain(), image, 4, 2, 1.0, 5, trace=True)
    assert all(len(step) == 2 and step[0].words.shape == (2, 4) for step in found.trace)


# ---------------------------------------------------------------- rules and cuts
def test_rules():
    log_probs = torch.full((2, 7), 1 / 7).log()
    out = forbid(log_probs, torch.tensor([[3, 4, 3], [4, 4, 5]]), min_length=4, no_repeat=2, suppress=[6])
    assert (out == -INF).tolist() == [
        [True, True, True, False, True, False, True],
        [True, True, True] + [False] * 3 + [True],
    ]
    assert torch.equal(out[out > -INF], log_probs[out > -INF])
    assert torch.isfinite(log_probs).all()  # the model's own tensor is left alone
    kept = forbid(log_probs, torch.tensor([[3, 4], [3, 3]]), min_length=5, no_repeat=1, suppress=[5, 6])
    assert kept[0, :2].tolist() == [-INF] * 2 and torch.equal(kept[0, 2:], log_probs[0, 2:])  # nothing left: all words
    assert (kept[1] > -INF).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_repeat_min_length_and_suppress_hold_in_every_decoder(n):
    image, generator = tables(6, words=12, seed=n, spread=3.0), torch.Generator().manual_seed(n)
    rules = {"no_repeat": n, "min_length": 5, "suppress": [5, 9]}
    results = [
        beam_search(Chain(), image, 3, 9, **rules),
        diverse_beam_search(Chain(), image, 4, 2, 1.0, 9, **rules),
        sample(Chain(), image, 9, n=20, generator=generator, **rules),
    ]
    for found in results:
        for ids in map(ids_of, found.tokens.flatten(0, -2)):
            grams = [ids[i : i + n] for i in range(len(ids) - n + 1)]
            assert len(grams) == len(set(grams))
            assert len(ids) > 5 and not {5, 9} & set(ids)
    free = sample(Chain(), image, 9, n=20, generator=generator)
    assert (free.tokens == 5).any() and (free.tokens[..., :5] == END).any()


def test_rules_that_leave_nothing_do_not_stop_decoding():
    image = tables(3, words=2, seed=0, end=False)
    for found in (beam_search(Chain(), image, 2, 6, no_repeat=1), sample(Chain(), image, 6, no_repeat=1)):
        assert (found.tokens > END).all() and torch.isfinite(found.scores).all()


@given(st.integers(0, 10_000), st.floats(0.01, 1.0), st.integers(2, 40))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_top_p_keeps_the_smallest_set_that_reaches_p(seed, p, V):
    logits = 3 * torch.randn(1, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    kept = keep_top_p(logits, p) > -INF
    probs = logits.softmax(1)[kept]
    assert len(probs) >= 1 and probs.sum() >= p - 1e-9
    assert probs.min() >= logits.softmax(1)[~kept].max() if len(probs) < V else True
    assert probs.sum() - probs.min() < p + 1e-9  # one word fewer is not enough


def test_top_k_keeps_ties():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0], [0.0, 1.0, 2.0, 3.0]])
    assert (keep_top_k(logits, 2) > -INF).tolist() == [[False, True, True, True], [False, False, True, True]]
    assert torch.equal(keep_top_k(logits, 0), logits) and torch.equal(keep_top_k(logits, 9), logits)


# ---------------------------------------------------------------- sampling
def p_value(counts, probabilities):
    """How probable a chi-square statistic as large as that of the counts is, cells below 5 expected pooled into one."""
    expected = counts.sum() * probabilities
    small = expected < 5
    observed = torch.cat([counts[~small], counts[small].sum()[None]]).double()
    expected = torch.cat([expected[~small], expected[small].sum()[None]])
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2).double(), statistic / 2).item()


def cut_table(table, temperature, top_k, top_p):
    """The chain (V, V) that sampling follows, computed word by word."""
    out = torch.full_like(table, -INF)
    for row, log_p in enumerate(table.double()):
        p = (log_p / temperature).softmax(0)
        order = p.argsort(descending=True)[: top_k or None].tolist()
        p = p / p[order].sum()
        keep, mass = [], 0.0
        for word in order:
            if mass < top_p:
                keep.append(word)
            mass += p[word].item()
        out[row, keep] = (p[keep] / p[keep].sum()).log().float()
    return out


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.8, 3, 1.0), (1.0, 0, 0.8), (1.3, 4, 0.9)]
)
def test_sampling_frequencies(temperature, top_k, top_p):
    table, draws = tables(1, words=5, seed=11, spread=1.0), 20_000
    found = sample(Chain(), table, 3, n=draws, temperature=temperature, top_k=top_k, top_p=top_p,
                   generator=torch.Generator().manual_seed(1))  # fmt: skip
    every = captions_of(cut_table(table[0], temperature, top_k, top_p), 3)
    number = {ids: i for i, ids in enumerate(every)}
    drawn = torch.tensor([number[ids_of(row)] for row in found.tokens[0]])  # KeyError: a caption that was cut away
    counts = torch.bincount(drawn, minlength=len(every))
    probabilities = torch.tensor(list(every.values()), dtype=torch.float64).exp()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    assert p_value(counts, probabilities) > 0.01
    other = {
        ids: math.exp(total)
        for ids, total in captions_of(cut_table(table[0], temperature * 1.15, top_k, top_p), 3).items()
    }
    assert (
        p_value(counts, torch.tensor([other.get(ids, 0.0) for ids in every]).double()) < 1e-4
    )  # it can tell them apart


def test_sampling_limits_and_generator():
    model, image = Recurrent(seed=8), hidden(10, 8)
    best = greedy(model, image)
    for options in ({"top_k": 1}, {"temperature": 1e-4}, {"top_p": 1e-6}):
        assert torch.equal(sample(model, image, **options).tokens, best.tokens)
    before = torch.random.get_rng_state()
    first, again, other = (
        sample(model, image, n=4, generator=torch.Generator().manual_seed(s)).tokens for s in (0, 0, 1)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == (10, 4, 10) and sample(model, image, 6).tokens.shape == (10, 6)
    assert len({ids_of(row) for row in first[0]}) > 1


def test_trace_of_sampling():
    model, image = Recurrent(seed=9), hidden(4, 9)
    found = sample(model, image, 6, top_k=3, temperature=0.5, trace=True, generator=torch.Generator().manual_seed(0))
    for t, step in enumerate(found.trace):
        assert torch.allclose(step.after.exp().sum(1), torch.ones(4)) and ((step.after > -INF).sum(1) == 3).all()
        live = step.words != PAD
        assert (step.after.gather(1, step.words[:, None])[live] > -INF).all()
        assert torch.equal(step.words, found.tokens[:, t])


# ---------------------------------------------------------------- score
def test_score_reads_captions_with_and_without_start():
    table = tables(2, words=4, seed=1)
    captions = torch.tensor([[3, 4, END, PAD, PAD], [5, END, 6, 3, END]])  # what is behind <end> does not count
    expected = [
        table[0, START, 3] + table[0, 3, 4] + table[0, 4, END],
        table[1, START, 5] + table[1, 5, END],
    ]
    assert torch.allclose(score(Chain(), table, captions), torch.stack(expected))
    started = torch.cat([torch.full((2, 1), START), captions], 1)
    assert torch.allclose(score(Chain(), table, started), torch.stack(expected))
    many = torch.stack([captions, captions.flip(0)], 1)
    assert torch.allclose(score(Chain(), table, many)[:, 0], torch.stack(expected))


def test_only_score_has_gradients_and_the_mode_stays():
    model, image = Recurrent(seed=10), hidden(3, 10)
    for training in (True, False):
        model.train(training)
        found = [
            greedy(model, image),
            beam_search(model, image),
            sample(model, image),
            diverse_beam_search(model, image),
        ]
        assert model.training is training
        assert not any(one.scores.requires_grad for one in found)
    score(model, image, found[0].tokens).sum().backward()
    assert model.out.weight.grad.abs().sum() > 0


# ---------------------------------------------------------------- forms of input
class Regions(NamedTuple):
    nothing: None
    boxes: dict


class FromRegions(Recurrent):
    def init_state(self, image):
        return super().init_state(image.boxes["h"])


def test_nested_image_float64_and_empty_batch():
    image = hidden(4, 2)
    for decode in DECODERS.values():
        nested = decode(FromRegions(seed=2), Regions(None, {"h": image}))
        assert torch.equal(nested.tokens, decode(Recurrent(seed=2), image).tokens)
        double = decode(Recurrent(seed=2).double(), image.double())
        assert double.scores.dtype == torch.float64
        assert torch.allclose(double.log_probs, score(Recurrent(seed=2).double(), image.double(), double.tokens))
        assert len(decode(Recurrent(seed=2), image[:0]).tokens) == 0


def test_tokens_become_captions():
    words = course_vocabulary()
    model, image = Recurrent(V=len(words), seed=1), hidden(5, 1)
    captions = words.decode_batch(beam_search(model, image).tokens)
    assert len(captions) == 5 and all("<" not in caption for caption in captions)
    assert captions == [
        " ".join(words.words[i] for i in ids_of(row) if i != END) for row in beam_search(model, image).tokens
    ]


@pytest.mark.parametrize(("call", "message"), [
    (lambda m, x: greedy(m, x, 0), r"length is 0; expected an integer >= 1"),
    (lambda m, x: beam_search(m, x, 0), r"k is 0; expected an integer >= 1"),
    (lambda m, x: beam_search(m, x, 2.0), r"k is 2.0"),
    (lambda m, x: beam_search(m, x, 3, -1), r"length is -1"),
    (lambda m, x: beam_search(m, x, 3, n_best=4), r"n_best is 4; expected an integer >= 1 and <= 3"),
    (lambda m, x: beam_search(m, x, 3, n_best=0), r"n_best is 0"),
    (lambda m, x: beam_search(m, x, penalty="mean"), r"penalty is 'mean'; expected \"none\", \"average\" or \"gnmt\""),
    (lambda m, x: beam_search(m, x, alpha=1.0), r"alpha is 1.0; expected None"),
    (lambda m, x: beam_search(m, x, early_stopping="always"), r"early_stopping is 'always'"),
    (lambda m, x: beam_search(m, x, early_stopping=1), r"early_stopping is 1"),
    (lambda m, x: beam_search(m, x, min_length=11), r"min_length is 11; expected an integer >= 0 and <= 10"),
    (lambda m, x: beam_search(m, x, no_repeat=-1), r"no_repeat is -1"),
    (lambda m, x: beam_search(m, x, suppress=[30]), r"suppress is \[30\]; expected ids 0 .. 29"),
    (lambda m, x: diverse_beam_search(m, x, 5, 2), r"groups is 2; expected a divisor of k = 5"),
    (lambda m, x: diverse_beam_search(m, x, 0, 2), r"k is 0"),
    (lambda m, x: diverse_beam_search(m, x, 4, 0), r"groups is 0"),
    (lambda m, x: diverse_beam_search(m, x, 4, 2, -1.0), r"diversity is -1.0"),
    (lambda m, x: sample(m, x, temperature=0), r"temperature is 0; expected a number > 0; for the limit 0 use greedy"),
    (lambda m, x: sample(m, x, temperature=float("nan")), r"temperature is nan"),
    (lambda m, x: sample(m, x, temperature=INF), r"temperature is inf"),
    (lambda m, x: sample(m, x, top_p=0), r"top_p is 0; expected a share"),
    (lambda m, x: sample(m, x, top_p=1.1), r"top_p is 1.1"),
    (lambda m, x: sample(m, x, top_k=-2), r"top_k is -2"),
    (lambda m, x: sample(m, x, n=0), r"n is 0"),
    (lambda m, x: score(m, x, torch.ones(3)), r"shape of captions is \(3,\); expected \(N, T\)"),
    (lambda m, x: score(m, x, torch.ones(3, 4)), r"dtype of captions is torch.float32"),
    (lambda m, x: score(m, x, torch.tensor([[1, 3], [3, 2], [3, 2]])), r"<start> in front of all or of none"),
    (lambda m, x: greedy(Unnormalised(), x), r"sum of p .*return log_softmax"),
])  # fmt: skip
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(Recurrent(), hidden(3))


class Unnormalised(Recurrent):
    def step(self, tokens, state):
        h, c = self.cell(self.embed(tokens), state)
        return self.out(h), (h, c)


# ---------------------------------------------------------------- properties
@pytest.mark.parametrize("alpha", [-2.0, -0.5, 0.5, 1.5])
def test_no_caption_is_lost_by_stopping_early(alpha):
    image = tables(60, 7, words=2, seed=3, spread=2.0, dtype=torch.float64)
    found = beam_search(Chain(), image, 4, 7, penalty="average", alpha=alpha, n_best=4)
    for i in range(len(image)):
        assert [ids_of(row) for row in found.tokens[i]] == [
            ids for _, ids in naive_beam(image[i], 4, 7, "average", alpha)
        ]


@given(
    seed=st.integers(0, 10_000), words=st.integers(1, 6), N=st.integers(1, 4), k=st.integers(2, 6),
    length=st.integers(1, 6),
    penalty=st.sampled_from([("none", None), ("average", 1.0), ("average", -1.0), ("gnmt", 0.6)]),
    spread=st.sampled_from([0.3, 1.0, 3.0]),
)  # fmt: skip
@settings(derandomize=True, deadline=None, max_examples=80)
def test_beam_search_is_the_naive_one(seed, words, N, k, length, penalty, spread):
    image = tables(N, length, words=words, seed=seed, spread=spread, dtype=torch.float64)
    found = beam_search(Chain(), image, k, length, penalty=penalty[0], alpha=penalty[1], n_best=k)
    assert (found.scores[:, :-1] >= found.scores[:, 1:]).all()
    for i in range(N):
        expected = naive_beam(image[i], k, length, *penalty)
        assert [ids_of(row) for row in found.tokens[i, : len(expected)]] == [ids for _, ids in expected]
        assert found.scores[i, : len(expected)].tolist() == pytest.approx([value for value, _ in expected], abs=1e-9)
        assert (found.scores[i, len(expected) :] == -INF).all()


@given(seed=st.integers(0, 10_000), words=st.integers(1, 6), N=st.integers(1, 4), length=st.integers(1, 7))
@settings(derandomize=True, deadline=None, max_examples=40)
def test_form_and_score_of_every_result(seed, words, N, length):
    image = tables(N, words=words, seed=seed)
    results = [decode(Chain(), image, length) for decode in DECODERS.values()]
    results.append(sample(Chain(), image, length, generator=torch.Generator().manual_seed(seed)))
    for found in results:
        assert found.tokens.dtype == torch.int64 and found.tokens.shape[0] == N and found.tokens.shape[-1] == length
        ended = (found.tokens == END).long().cumsum(-1)
        behind = ended - (found.tokens == END).long() > 0
        assert (found.tokens[behind] == PAD).all() and (found.tokens[~behind] >= END).all()
        assert torch.allclose(score(Chain(), image, found.tokens), found.log_probs, atol=1e-5)


# ---------------------------------------------------------------- Hugging Face
@pytest.fixture(scope="module")
def generate():
    """A function (model, image, beams, length, **options) -> (captions, scores); the prefix runs anew each step."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_outputs import CausalLMOutput

    class Wrapped(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = transformers.PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, config, model):
            super().__init__(config)
            self.model = model
            self.generation_config = transformers.GenerationConfig(
                bos_token_id=START, eos_token_id=END, pad_token_id=PAD, use_cache=False
            )

        def prepare_inputs_for_generation(self, input_ids, h0=None, **kwargs):
            return {"input_ids": input_ids, "h0": h0}

        def forward(self, input_ids, h0=None, **kwargs):
            one_more = torch.cat([input_ids, input_ids[:, :1]], 1)  # teacher forcing scores captions[:, 1:]
            return CausalLMOutput(logits=self.model(h0, one_more))

    def run(model, image, beams, length, **options):
        config = transformers.PretrainedConfig(vocab_size=model.out.out_features, is_encoder_decoder=False)
        wrapped = Wrapped(config, model).eval()
        prompt = torch.full((len(image), 1), START)
        out = wrapped.generate(
            prompt, h0=image, num_beams=beams, max_new_tokens=length, do_sample=False,
            suppress_tokens=[PAD, START], output_scores=True, return_dict_in_generate=True, **options,
        )  # fmt: skip
        return [ids_of(row[1:]) for row in out.sequences], getattr(out, "sequences_scores", None)

    return run


MODEL, IMAGE = Recurrent(V=24, seed=21, spread=1.2, end=2.0), hidden(10, 12)


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, -1.0])
@pytest.mark.parametrize("k", [3, 5])
def test_beam_search_is_generate(generate, k, alpha, early_stopping):
    theirs, scores = generate(
        MODEL, IMAGE, k, 9, length_penalty=alpha, early_stopping=early_stopping, num_return_sequences=k
    )
    ours = beam_search(MODEL, IMAGE, k, 9, penalty="average", alpha=alpha, early_stopping=early_stopping, n_best=k)
    assert [ids_of(row) for row in ours.tokens.flatten(0, 1)] == theirs
    assert torch.allclose(ours.scores.flatten(), scores, atol=1e-5)
    assert len({len(ids) for ids in theirs}) > 5  # short and long ones


def test_greedy_is_generate(generate):
    theirs, _ = generate(MODEL, IMAGE, 1, 9)
    assert [ids_of(row) for row in greedy(MODEL, IMAGE, 9).tokens] == theirs
    assert [ids_of(row) for row in beam_search(MODEL, IMAGE, 1, 9).tokens] == theirs


def test_rules_in_beam_search_are_those_of_generate(generate):
    theirs, scores = generate(
        MODEL, IMAGE, 4, 9, length_penalty=1.0, early_stopping="never", no_repeat_ngram_size=2, min_new_tokens=4
    )
    ours = beam_search(MODEL, IMAGE, 4, 9, penalty="average", no_repeat=2, min_length=4)
    assert [ids_of(row) for row in ours.tokens] == theirs
    assert torch.allclose(ours.scores, scores, atol=1e-5)


def test_filters_are_those_of_transformers():
    process = pytest.importorskip("transformers.generation.logits_process")
    logits = 2 * torch.randn(64, 500, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(3, 8, (64, 9), generator=torch.Generator().manual_seed(1))
    for k in (1, 5, 50, 500):
        assert torch.equal(keep_top_k(logits, k), process.TopKLogitsWarper(k)(ids, logits))
    for p in (0.1, 0.5, 0.9, 0.95):
        assert torch.equal(keep_top_p(logits, p), process.TopPLogitsWarper(p)(ids, logits))
    for n in (1, 2, 3):
        ours, theirs = (
            decoding.ban_repeats(logits, ids, n),
            process.NoRepeatNGramLogitsProcessor(n)(ids, logits.clone()),
        )
        assert torch.equal(ours[:, 1:], theirs[:, 1:])  # <pad> is banned beside them
        assert (ours[:, 3:8] == -INF).any()


# ---------------------------------------------------------------- size
def test_every_function_fits_one_cell():
    for name in decoding.__all__:
        assert len(inspect.getsource(getattr(decoding, name)).splitlines()) <= 40, name
