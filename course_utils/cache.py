"""Trained models on disk: what was trained once, by this code with this configuration, is loaded from then on."""

import ast
import dataclasses
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
import time
from pathlib import Path

import platformdirs
import torch
from filelock import FileLock, Timeout

from course_utils import __version__
from course_utils.files import misfit, read_tensors, set_aside, write_tensors
from course_utils.training import own_randomness

COURSE, IMPORTED = __name__.partition(".")[0], time.time()


def cache_folder():
    """Return the folder of the cached models (Path): the environment's COURSE_CACHE, or the user's cache folder."""
    return Path(os.environ.get("COURSE_CACHE") or platformdirs.user_cache_dir("captioning-course"))


def cached(name, config, build, train, sources=(), vocabulary=None):
    """Return a trained model in eval mode and its `info`: loaded if it was trained before, otherwise trained and kept.

    `build()` -> untrained model; `train(model, checkpoint)` -> info, a dict for JSON: it trains the model in place and
    hands the path `checkpoint` (None without a cache) to `fit`, so that a run that was cut off goes on; a second run
    of `fit` takes f"{checkpoint}-2". Both run on random states seeded with config's "seed" (0 if it has none) and leave
    the outer ones alone. `config`: a dict for JSON, dataclasses allowed, of all the numbers that matter. The file is
    NAME-KEY.safetensors in `cache_folder()`. KEY changes with name, config, vocabulary, the versions of course and
    torch, the text of build and train, and the files of the course that define the model, `fit` and `sources`
    (functions, classes, modules: those that make the data), with all that these import. A damaged or foreign file is
    set aside and replaced; one process trains a model while others wait: each prints a line, all else is silent.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"name={name!r}; expected letters, digits, - and _, as it becomes the name of a file")
    with own_randomness(config.get("seed", 0)):
        model = build()
        texts = source_texts(model, sources, (build, train))
        key = cache_key(name, config, texts, vocabulary)
        path, edited = cache_folder() / f"{name}-{key[:16]}.safetensors", _edited(texts)
        lock, problem = _lock(name, path) if not edited else (None, edited)
        try:
            info = _find(name, path, model, vocabulary, key) if path.exists() and not edited else None
            if info is None:
                if problem:
                    print(f"{name}: {problem}; training goes on without a cache")
                info = train(model, None if problem else path.with_suffix(".partial"))
                model.eval()
                info = json.loads(_json("info, which train returned,", info))  # cold as it will be when warm
                if not problem:
                    _keep(name, path, model, info, vocabulary, key)
            return model, info
        finally:
            if lock is not None:
                lock.release()


def save(path, model, info, vocabulary=None, key=""):
    """Write the model's weights, `info` (a dict for JSON) and the vocabulary to the file `path`, in one move."""
    words = {"vocabulary": list(vocabulary.words), "vocabulary_sha256": vocabulary.fingerprint} if vocabulary else {}
    write_tensors(path, model.state_dict(), {"kind": "trained model", "key": key, "info": info, **words})


def load(path, model, vocabulary=None):
    """Return the `info` of a file that `save` wrote, after loading its weights into `model` and setting eval mode.

    ValueError, and the model stays as it was, if the file is damaged, is no such file, does not fit the model, or was
    trained with another vocabulary: its ids would mean other words.
    """
    return _restore(path, *read_tensors(path), model, vocabulary)


def _restore(path, tensors, found, model, vocabulary, key=None):
    """Return the info of the contents of `path`, after loading them into the model; ValueError if that is wrong."""
    if found.get("kind") != "trained model":
        raise ValueError(f"{path} holds no trained model of this course; expected a file written by save")
    if key is not None and found["key"] != key:
        raise ValueError(f"{path} holds a model of other code or configuration: key {found['key'][:16]}")
    if found.get("vocabulary_sha256") != (vocabulary.fingerprint if vocabulary else None):
        theirs, ours = found.get("vocabulary", []), list(vocabulary.words) if vocabulary else []
        i = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
        raise ValueError(
            f"{path} was trained with another vocabulary: {len(theirs)} words, vocabulary has {len(ours)}; the first "
            f"difference is at id {i}, {theirs[i:i + 1]} in the file, {ours[i:i + 1]} here; pass the vocabulary of the "
            "training, or train again")
    if difference := misfit(tensors, model):
        raise ValueError(f"{path} does not fit the model {type(model).__name__}: {difference}")
    model.load_state_dict(tensors)
    model.eval()
    return found["info"]


def _find(name, path, model, vocabulary, key):
    """Return the info of the cached model, now loaded, or None after setting aside a file that cannot serve."""
    try:
        contents = read_tensors(path)
    except ValueError as error:
        return set_aside(path, "damaged", f"{name}: {error}; training again")
    try:
        return _restore(path, *contents, model, vocabulary, key)
    except ValueError as error:
        return set_aside(path, "foreign", f"{name}: {error}; training again")


def _keep(name, path, model, info, vocabulary, key):
    """Write the trained model and remove the resume files of its training; one printed line if that fails."""
    try:
        save(path, model, info, vocabulary, key)
        for rest in path.parent.glob(f"{path.stem}.*"):
            if re.search(r"\.partial(-\w+)?$|\.tmp$", rest.name):
                rest.unlink(missing_ok=True)
    except OSError as error:
        print(f"{name}: the trained model cannot be kept in {path.parent} ({error})")


def _lock(name, path):
    """Return the lock of `path`, held, and "" - or None and why the cache cannot be used."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            print(f"{name}: another process is training this model; waiting for it")
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        return None, f"cannot write to the folder {path.parent} ({error}; COURSE_CACHE can name another one)"
    return lock, ""


def _json(what, value):
    """Return a dict as JSON text, dataclasses in it as dicts; TypeError names what cannot be written."""
    def plain(part):
        if dataclasses.is_dataclass(part):
            return {type(part).__name__: dataclasses.asdict(part)}
        raise TypeError(f"it holds a {type(part).__name__}")

    try:
        if not isinstance(value, dict):
            raise TypeError(f"it is a {type(value).__name__}")
        return json.dumps(value, sort_keys=True, default=plain)
    except TypeError as error:
        raise TypeError(f"{what} cannot be kept as JSON: {error}; expected a dict of numbers, strings, lists and "
                        "dicts") from None


def cache_key(name, config, texts, vocabulary=None):
    """Return the sha256 (hex) of all that decides what a training run yields; texts: see `source_texts`."""
    fingerprint, version = vocabulary.fingerprint if vocabulary else "", torch.__version__.split(".")[:2]
    parts = [name, _json("config", config), fingerprint, __version__, version, sorted(texts.values())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def source_texts(model, sources=(), functions=()):
    """Return the source texts (dict by file or object) behind a model: of functions, of sources and the model's classes
    and the course's modules that define them or that these import. TypeError for an object without source text."""
    texts = _course_files("course_utils.training")
    for source in [*functions, *sources, *{type(module) for module in model.modules()}]:
        module = source.__name__ if inspect.ismodule(source) else getattr(source, "__module__", None) or ""
        if source not in functions:
            texts |= _course_files(module)
        if not module.startswith("torch."):  # torch's version is in the key
            texts[repr(source)] = _text(source)
    return texts


def _edited(texts):
    """Return a sentence about a file that is newer than the code in memory, whose text gives a wrong key, or ""."""
    late = [file for file in texts if file.endswith(".py") and os.path.getmtime(file) > IMPORTED]
    return f"{late[0]} was edited after it was imported; restart Python to use it" if late else ""


def _text(source):
    """Return the source text of a module, class or function, of a notebook's too; TypeError if there is none."""
    try:
        return inspect.getsource(source)
    except (OSError, TypeError) as error:
        methods = filter(inspect.isfunction, vars(source).values()) if inspect.isclass(source) else ()
        if methods := list(methods):  # a class of a notebook: Python finds the text of its methods only
            return "".join(inspect.getsource(method) for method in methods)
        raise TypeError(f"{source!r} has no source text for the cache's key ({error}); expected functions, classes or "
                        "modules of a file or a notebook as build, train and sources") from None


def _course_files(module):
    """Return the texts (dict by file) of a module of the course (its name) and of all of the course that it imports."""
    texts, waiting = {}, [module]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name) if name.partition(".")[0] == COURSE else None
        if module is None or module.__file__ in texts:
            continue
        texts[module.__file__] = inspect.getsource(module)
        for node in ast.walk(ast.parse(texts[module.__file__])):
            if isinstance(node, ast.Import):
                waiting += [part.name for part in node.names]
            elif isinstance(node, ast.ImportFrom):
                origin = importlib.util.resolve_name("." * node.level + (node.module or ""), module.__package__)
                waiting += [origin, *(f"{origin}.{part.name}" for part in node.names)]
    return texts
