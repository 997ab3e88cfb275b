"""The study decoding: beam widths 1 to 20 on the test scenes, for the short and the full Show and Tell."""

from course_utils import recipes
from course_utils.decoding import beam_search, score
from course_utils.metrics import bleu, exact_match
from course_utils.vocabulary import course_vocabulary

WIDTHS = (1, 2, 3, 5, 8, 12, 20)
MODELS = {"short": "ShowTellRNN short", "full": "ShowTellRNN"}
VARIANTS = tuple(f"{name} k={k}" for name in MODELS for k in WIDTHS)
METRICS = ("log_p", "exact_match", "bleu4", "search_errors")


def job(variant: str, seed: int) -> dict[str, float]:
    """Return what one beam width reaches on the test scenes of one seed: mean log_p, exact_match, bleu4, search_errors.

    A search error is a wrong caption although the model scores a right one higher; given as a share of all captions.
    """
    name, k = variant.split(" k=")
    model, info = recipes.show_and_tell(MODELS[name], seed)
    image, test, words = recipes.grids(seed)["test"], recipes.data(seed)["test"], course_vocabulary()
    found = beam_search(model.eval(), image, int(k))
    candidates, references = words.decode_batch(found.tokens), [test.references(i) for i in range(len(test))]
    exact = exact_match(candidates=candidates, references=references)
    right = score(model, image, test.reference_ids(words)).amax(1)  # (N,) log p of the better reference
    missed = sum(not hit and better for hit, better in zip(exact.images, (right > found.log_probs + 1e-4).tolist()))
    return {"log_p": found.log_probs.mean().item(), "exact_match": exact.corpus,
            "bleu4": bleu(candidates=candidates, references=references).corpus[3],
            "search_errors": missed / len(test), "updates": len(info["losses"])}
