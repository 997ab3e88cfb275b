"""Print the CPU time of the caption metrics beside sacrebleu and pycocoevalcap, measured in one run.

    python tests/benchmarks/bench_metrics.py [captions.jsonl.gz] [--rounds 5]

Without a file: 5,000 generated images. A line of a file is [image id, [captions]], already tokenised; the first
caption is scored against the others. Best of some interleaved rounds, one thread, CPU time of this process.
"""

import argparse
import gzip
import itertools
import json
import random
import time
from pathlib import Path

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from sacrebleu.metrics import BLEU

from course_utils.metrics import bleu, cider_d, meteor_2005, rouge_l


def generated(images=5_000, vocabulary=10_000, seed=0):
    """Return one candidate and 4 or 5 references an image, about 10 words each: noisy copies of a Zipf sentence."""
    draw = random.Random(seed)
    names = [f"w{i}" for i in range(vocabulary)]
    heaviness = list(itertools.accumulate(1 / (rank + 1) for rank in range(vocabulary)))

    def noisy(words):
        kept = [word if draw.random() < 0.7 else draw.choices(names, cum_weights=heaviness)[0] for word in words]
        return " ".join(kept[: max(3, len(kept) - draw.randrange(3))])

    candidates, references = [], []
    for _ in range(images):
        base = draw.choices(names, cum_weights=heaviness, k=draw.randint(7, 15))
        candidates.append(noisy(base))
        references.append([noisy(base) for _ in range(draw.choice((4, 5)))])
    return candidates, references


def from_file(path):
    """Return the first caption and the others of every image; white space becomes single spaces, for all libraries."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        images = [[" ".join(caption.split()) for caption in json.loads(line)[1]] for line in lines]
    return [captions[0] for captions in images], [captions[1:] for captions in images]


def contestants(candidates, references):
    """Return the functions to time, each giving its value, in pairs of ours and theirs."""
    ours = {"candidates": candidates, "references": references}
    columns = [list(column) for column in itertools.zip_longest(*references)]
    truth, results = dict(enumerate(references)), {i: [caption] for i, caption in enumerate(candidates)}
    sacre = BLEU(tokenize="none", smooth_method="none", force=True)
    return {
        "BLEU-1..4 / sacrebleu's BLEU-4": (
            lambda: bleu(**ours).corpus[3],
            lambda: sacre.corpus_score(candidates, columns).score / 100,
        ),
        "BLEU-1..4 / pycocoevalcap": (
            lambda: bleu(**ours).corpus[3],
            lambda: Bleu(4).compute_score(truth, results, verbose=0)[0][3],
        ),
        "ROUGE-L / pycocoevalcap": (lambda: rouge_l(**ours).corpus, lambda: Rouge().compute_score(truth, results)[0]),
        "CIDEr-D / pycocoevalcap": (lambda: cider_d(**ours).corpus, lambda: Cider().compute_score(truth, results)[0]),
        "METEOR of 2005, exact": (lambda: meteor_2005(**ours).corpus, None),
    }


def seconds(function):
    """Return the CPU seconds of one call and its value."""
    start = time.process_time()
    value = function()
    return time.process_time() - start, value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("captions", nargs="?", type=Path, help="jsonl.gz of [image id, [captions]]; default: generated")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    candidates, references = from_file(options.captions) if options.captions else generated()
    lengths = [len(caption.split()) for caption in candidates]
    print(
        f"{len(candidates)} candidates of {sum(lengths) / len(lengths):.1f} words, "
        f"{sum(map(len, references))} references; best of {options.rounds} rounds, CPU seconds"
    )
    print(f"{'metric / peer':32} {'ours':>7} {'peer':>7} {'ratio':>6}   value     difference")
    for name, (ours, theirs) in contestants(candidates, references).items():
        pairs = [(seconds(ours), seconds(theirs) if theirs else None) for _ in range(options.rounds)]
        best, value = min(mine for mine, _ in pairs)
        if theirs is None:
            print(f"{name:32} {best:7.3f} {'-':>7} {'-':>6}   {value:.6f}")
            continue
        peer, other = min(their for _, their in pairs)
        print(f"{name:32} {best:7.3f} {peer:7.3f} {best / peer:6.2f}   {value:.6f}  {abs(value - other):.0e}")


if __name__ == "__main__":
    main()
