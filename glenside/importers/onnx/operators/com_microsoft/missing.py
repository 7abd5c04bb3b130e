"""Lists operators of onnxruntime without import, and the constructs that an import would need."""

from __future__ import annotations

from collections.abc import Mapping

_SEARCH = "it runs subgraphs until a condition on data ends it"
_TEXT = "it needs tensors of strings"
_RANDOM = "its result is random"
_FLOATS = "its sums of 8-bit or 4-bit floats round as on one device"
_ORDER = "it needs a device-specific tensor layout"
_PLACE = "it updates caches in place, at indices that depend on data"
_RAGGED = "the size of its result depends on data"
_EXPERTS = "which experts run depends on data"
_SPARSE = "which blocks are multiplied depends on data"
_STATE = "its states are updated element by element in a loop over a sequence"
_HASH = "it needs integer hashes"
_DEVICE = "it is a program for one device"

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
    "MatMulFpQ4": "it needs a library-specific layout of packed blocks",
    "Inverse": "it needs the inverse of a matrix",
    "CropAndResize": "it samples at positions that depend on data",
}
"""Operator -> the constructs that its import would need, as the end of a sentence."""
