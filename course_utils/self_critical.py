"""Self-critical sequence training (Rennie et al. 2017): a captioner's samples against its own greedy captions."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from course_utils.captioners.interface import Captioner
from course_utils.decoding import greedy, sample, score
from course_utils.metrics import cider_d, document_frequency
from course_utils.vocabulary import END, PAD, START, Vocabulary


class CiderReward:
    """CIDEr-D of captions of training scenes on the x10 scale, in which <end> counts as a word.

    references (N, R, T) int64: the padded references of all training scenes, where document frequency is counted too.
    A call with tokens (B, T) int64, as a decoder returns them, and the scenes' rows index (B,) returns (B,) float32.
    ValueError for a reference without <end>: a reward that never sees <end> teaches captions that never end.
    """

    def __init__(self, references: Tensor, vocabulary: Vocabulary):
        if references.dim() != 3 or not (references == END).any(-1).all():
            raise ValueError(f"references has shape {tuple(references.shape)}; expected (N, R, T), <end> in every row")
        self.words = vocabulary.words
        self.references = [[self.spell(row) for row in rows] for rows in references.tolist()]
        self.corpus = document_frequency(references=self.references)

    def spell(self, ids: Iterable[int]) -> list[str]:
        """Return the words of one row of ids up to its first <end>, which is the last of them if there is one."""
        words = []
        for number in ids:
            if number not in (PAD, START):
                words.append(self.words[number])
            if number == END:
                break
        return words

    def __call__(self, tokens: Tensor, index: Tensor) -> Tensor:
        candidates = [self.spell(row) for row in tokens.tolist()]
        references = [self.references[i] for i in index.tolist()]
        scores = cider_d(candidates=candidates, references=references, corpus=self.corpus)
        return torch.tensor(scores.images, device=tokens.device)  # (B,)


def policy_loss(model: Captioner, image: Tensor, captions: Tensor, advantage: Tensor) -> Tensor:
    """Return -mean(advantage * log p(caption | image)): a scalar whose gradient is the policy gradient, descending.

    captions (N, T) int64, drawn by `sample`; advantage (N,) float, through which no gradient flows. log p sums the
    words up to and with the first <end>, and nothing behind it (`decoding.score`). As in `sample`, <pad> and <start>
    have no share in p: otherwise the probability that bad samples lose gathers on words that nobody draws, so that
    nothing takes it away again. Source: Williams 1992, REINFORCE. ValueError unless there is one advantage a caption.
    """
    if advantage.shape != captions.shape[:1]:
        raise ValueError(f"advantage has shape {tuple(advantage.shape)}; expected ({len(captions)},): one a caption")

    def spoken(image: Tensor, words: Tensor) -> Tensor:
        scores = model(image, words)  # (N, T-1, V)
        return scores.index_fill(-1, torch.tensor([PAD, START], device=scores.device), float("-inf"))

    return -(advantage.detach() * score(spoken, image, captions)).mean()


def self_critical_loss(model: Captioner, image: Tensor, reward: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return loss(index, generator) for `fit`: -(r(sample) - r(greedy)) log p(sample), averaged over the batch.

    image (N, L, D) of all training scenes; reward(tokens (B, T), index (B,)) -> (B,) float, such as a `CiderReward`.
    The greedy caption is the baseline: a sample is encouraged by as much as it beats what the model would say at
    test time. Equations 5 to 9 of Rennie et al. 2017, "Self-critical sequence training for image captioning".
    """

    def loss(index: Tensor, generator: torch.Generator) -> Tensor:
        grid = image[index]  # (B, L, D)
        sampled = sample(model, grid, generator=generator).tokens  # (B, T)
        baseline = greedy(model, grid).tokens  # (B, T)
        advantage = reward(sampled, index) - reward(baseline, index)  # (B,)
        return policy_loss(model, grid, sampled, advantage)

    return loss
