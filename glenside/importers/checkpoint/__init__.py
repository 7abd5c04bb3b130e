"""Imports checkpoints of transformers: config.json and safetensors files in a folder."""

from glenside.importers.checkpoint.decoders import (
    is_checkpoint,
    load_checkpoint,
    open_checkpoint,
    read_decoder,
    ring_checkpoint,
)
from glenside.importers.checkpoint.files import read_vocabulary

__all__ = ["is_checkpoint", "load_checkpoint", "open_checkpoint", "read_decoder", "read_vocabulary", "ring_checkpoint"]
