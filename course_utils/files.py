"""Files of tensors that are whole or not there: written aside and renamed, checked by a digest, without pickle."""

import hashlib
import json
import os
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError


def _digest(tensors, text):
    """Return the sha256 over the metadata's text and the name, dtype, shape and bytes of every tensor."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def write_tensors(path, tensors, metadata):
    """Write tensors (dict of name to tensor) and metadata (a dict for JSON) to the file `path`, in one move."""
    path, text = Path(path), json.dumps(metadata, sort_keys=True)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(safetensors.torch.save(tensors, {"course": text, "sha256": _digest(tensors, text)}))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_tensors(path):
    """Return the tensors and the metadata of a file that `write_tensors` wrote; {} for metadata in any other file.

    ValueError if the file is damaged: cut short, changed by a single bit, or not a safetensors file.
    """
    data = Path(path).read_bytes()
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not {"course", "sha256"} <= header.keys():
        return tensors, {}
    if header["sha256"] != _digest(tensors, header["course"]):
        raise ValueError(f"{path} is damaged: its contents do not match its sha256")
    return tensors, json.loads(header["course"])


def misfit(weights, model):
    """Return how tensors (dict of name to tensor) differ in name, shape or dtype from the model's, or None."""
    own = model.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        there, here = (f"{tensor.dtype} {tuple(tensor.shape)}" if tensor is not None else "missing"
                       for tensor in (weights.get(name), own.get(name)))
        if there != here:
            return f"{name} is {there} in the file, {here} in the model"
    return None


def set_aside(path, kind, message):
    """Rename a damaged or foreign file to NAME.kind-1, -2, ..., never over another one, and print one line about it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{kind}-{number}")).exists():
        number += 1
    try:
        os.rename(path, aside)
        print(f"{message}; kept as {aside.name}")
    except OSError as error:
        print(f"{message}; it cannot be set aside ({error})")
