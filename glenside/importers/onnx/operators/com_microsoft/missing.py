"""The operators of onnxruntime that have no meaning here, and what a meaning would need."""

from __future__ import annotations

from collections.abc import Mapping

_SEARCH = "it runs other graphs until data end it"
_TEXT = "it needs tensors of strings"
_RANDOM = "its result is random"
_FLOATS = "its sums of floats of 8 or 4 bits round as one device has them"
_ORDER = "it needs the layout of one device in a tensor"
_PLACE = "it writes caches in place, at places that are data"
_RAGGED = "the size of its result depends on data"
_EXPERTS = "which experts run depends on data"
_SPARSE = "which blocks are multiplied depends on data"
_STATE = "its states are updated element by element in a loop over a sequence"
_HASH = "it needs integer hashes"
_DEVICE = "it is a program of one device"

MISSING: Mapping[str, str] = {
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), _SEARCH),
    **dict.fromkeys(("Tokenizer", "WordConvEmbedding"), _TEXT),
    **dict.fromkeys(("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout"), _RANDOM),
    **dict.fromkeys(("GemmFloat8", "MatMulBlockQuantizedFp4Weight", "MatMulBlockQuantizedFp8Weight"), _FLOATS),
    **dict.fromkeys(("DequantizeBFP", "QuantizeBFP"), "it needs blocks of numbers that share an exponent"),
    **dict.fromkeys(("DequantizeWithOrder", "QuantizeWithOrder", "QOrderedAttention", "QOrderedGelu"), _ORDER),
    **dict.fromkeys(("QOrderedLayerNormalization", "QOrderedLongformerAttention", "QOrderedMatMul"), _ORDER),
    **dict.fromkeys(("DecoderAttention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention"), _PLACE),
    **dict.fromkeys(("PagedAttention", "SparsePagedAttention", "PackedAttention", "PackedMultiHeadAttention"), _PLACE),
    **dict.fromkeys(("RemovePadding", "RestorePadding", "Unique", "BifurcationDetector"), _RAGGED),
    **dict.fromkeys(("MoE", "QMoE"), _EXPERTS),
    **dict.fromkeys(("SparseAttention", "DynamicSparseAttention", "LongformerAttention"), _SPARSE),
    **dict.fromkeys(("SparseAttentionIndexer", "PackedSparseAttentionIndexer", "SparseToDenseMatMul"), _SPARSE),
    **dict.fromkeys(("LinearAttention", "LinearAttentionGate", "GatedDeltaNet", "AttnLSTM"), _STATE),
    **dict.fromkeys(("VarlenCausalConvWithState", "DynamicTimeWarping"), _STATE),
    **dict.fromkeys(("MurmurHash3", "NGramHashMapping", "VarlenNGramHashMapping", "NGramRepeatBlock"), _HASH),
    **dict.fromkeys(("EPContext", "Snpe"), _DEVICE),
    "MatMulFpQ4": "it needs the layout of one library's packed blocks",
    "Inverse": "it needs the inverse of a matrix",
    "CropAndResize": "it samples at places that are data, between rows of its own",
}
"""Operator -> what its meaning would need, as the end of a sentence."""
