"""Failure browser: the captions of several models on the same scenes, by kind of failure."""

import ipywidgets as widgets

from course_utils.explorers.scenes import framed, object_names
from course_utils.explorers.view import Explorer, Html, columns, html_table, markup, note, picture, stack
from course_utils.failures import KINDS, Failure, diagnose, first_disagreement, parse, read_scene
from course_utils.scenes import Scenes

EVERY, WRONG = "every caption", "every failure"
SIDE = 256  # of the picture, in pixels of the page
WORD = "border:2px solid #b00020;padding:0px 3px;font-weight:bold;text-decoration:underline"


def failure_browser(captions_by_model: dict[str, list[str]], scenes: Scenes) -> Explorer:
    """Return an explorer of what captions got wrong, by model, kind of failure and scene.

    captions_by_model: name -> one caption for each scene. With "every caption" the slider is the scene's index.
    TypeError unless captions_by_model is a dict of lists of str; ValueError when it is empty, or a list is not as long
    as scenes.
    """
    if not isinstance(captions_by_model, dict) or not captions_by_model:
        raise TypeError(f"captions_by_model is {str(captions_by_model)[:40]!r}; expected {{model: captions}}")
    for name, captions in captions_by_model.items():
        if isinstance(captions, str) or len(captions) != len(scenes):
            raise ValueError(f"captions_by_model[{name!r}] has {len(captions)} captions; expected a list of "
                             f"{len(scenes)}, one for each scene")  # fmt: skip
    references = [scenes.references(i) for i in range(len(scenes))]
    found = {name: [diagnose(candidate=caption, references=image) for caption, image in zip(captions, references)]
             for name, captions in captions_by_model.items()}  # fmt: skip

    def hits(model: str, kind: str) -> list[int]:
        kinds = [failure.kind for failure in found[model]]
        wanted = {EVERY: KINDS, WRONG: KINDS[1:]}.get(kind, (kind,))
        return [i for i, name in enumerate(kinds) if name in wanted]

    def render(model: str, kind: str, number: int) -> Html:
        rows = hits(model, kind)
        if not rows:
            return note(f"{model}: no caption of this kind ({kind}) in {len(scenes)} scenes. Choose another one.")
        number = min(number, len(rows) - 1)
        i = rows[number]
        head = f"{model}, {kind}: number {number} of 0 to {len(rows) - 1}, scene {i} of {len(scenes)}."
        others = [[name, found[name][i].kind, captions[i]] for name, captions in captions_by_model.items()]
        return stack(note(head), case(scenes[i], captions_by_model[model][i], references[i], found[model][i], others))

    models, kinds = list(captions_by_model), [WRONG, *KINDS, EVERY]
    controls = {
        "model": widgets.Dropdown(options=models, value=models[0], description="model:"),
        "kind": widgets.Dropdown(options=kinds, value=WRONG, description="kind:"),
        "number": widgets.IntSlider(0, 0, max(0, len(hits(models[0], WRONG)) - 1), description="number:",
                                    layout=widgets.Layout(width="460px")),
    }  # fmt: skip
    explorer = Explorer(controls, render, f"Failure browser: {len(models)} models on {len(scenes)} scenes",
                        [["model", "kind"], ["number"]])  # fmt: skip

    def resize(_=None):
        controls["number"].max = max(0, len(hits(controls["model"].value, controls["kind"].value)) - 1)

    for name in ("model", "kind"):
        controls[name].observe(resize, "value")
    return explorer


def case(scene: Scenes, caption: str, references: list[str], failure: Failure, others: list[list[str]]) -> Html:
    """Return one caption of one scene: picture, the first word that no reference has, what was said and meant."""
    scale = max(1, SIDE // scene.recipe.canvas)
    seen = f"A scene with a {' and a '.join(object_names(scene))}; {references[0]}"
    return columns(
        picture(scene.images[0], seen, scale, framed(scene)),
        stack(
            disagreement(caption, references),
            note(f"Kind: {failure.kind}. {explanation(caption, references, failure)}"),
            html_table(list(enumerate(references)), ["#", "reference"], "Right captions"),
            html_table(others, ["model", "kind", "caption"], "This scene by every model"),
        ),
    )


def disagreement(caption: str, references: list[str]) -> Html:
    """Return the caption with its first word at which no reference goes on framed, and a sentence that names it."""
    words, at = caption.split(), first_disagreement(candidate=caption, references=references)
    shown = [markup(word) for word in words]
    if at is None:
        told = "It equals a reference word for word."
    elif at == len(words):
        shown.append(f'<span style="{WORD}">(stops)</span>')
        told = f"It stops after {at} words; every reference that begins so goes on."
    else:
        shown[at] = f'<span style="{WORD}">{shown[at]}</span>'
        told = f"First disagreement: word {at + 1}, `{words[at]}`: no reference goes on so."
    return stack(Html(f'<p style="margin:6px 0px;font-size:16px">{" ".join(shown)}</p>'), note(told))


def explanation(caption: str, references: list[str], failure: Failure) -> str:
    """Return what was said and what was meant, as a sentence."""
    said, meant = (" ".join(thing) if thing else "" for thing in (failure.said, failure.meant))
    if failure.kind == "correct":
        return "Both objects and their relation are right."
    if failure.kind == "ungrammatical":
        return "The caption is outside the grammar, so nobody can say what it means."
    if failure.kind == "same object twice":
        return f"Said: `{said}`, twice."
    if failure.kind == "hallucinated object":
        return f"Said: `{said}`; no object that is left agrees with it in colour or shape."
    if failure.kind == "wrong relation":
        statement, relations = parse(caption), read_scene(references)[1]
        right = relations[statement.subject, statement.other]
        return f"Said: `{statement.relation}`; meant: `{right}`. Both objects are right."
    owner = "another object" if failure.kind == "binding swap" else "no other object"
    return f"Said: `{said}`; meant: `{meant}`. The {failure.attribute} said is that of {owner} of the scene."
