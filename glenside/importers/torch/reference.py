"""Tabulates the operators of Core ATen: supported, supported in part, or refused and why."""

from __future__ import annotations

from glenside.importers.torch.node import Record, records

CORE = (
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward _embedding_bag "
    "_fft_c2r _fft_r2c _local_scalar_dense _log_softmax _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy abs acos acosh add addmm alias amax "
    "amin any arange argmax argmin as_strided asin asinh atan atan2 atanh avg_pool2d avg_pool2d_backward "
    "avg_pool3d bitwise_and bitwise_not bitwise_or bitwise_xor bmm cat ceil clamp clone col2im constant_pad_nd "
    "convolution convolution_backward copy cos cosh cumsum diagonal div elu embedding embedding_dense_backward "
    "empty empty_strided eq erf exp expand expm1 fill flip floor fmod full full_like gather ge gelu "
    "grid_sampler_2d gt hardtanh index index_put index_select isinf isnan le leaky_relu log log10 log1p log2 "
    "logical_and logical_not logical_or logical_xor lt masked_scatter max max_pool2d_with_indices "
    "max_pool2d_with_indices_backward max_pool3d_with_indices maximum mean min minimum mm mul native_dropout "
    "native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg nonzero "
    "permute pow prod rand randn randperm reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu "
    "remainder repeat replication_pad2d replication_pad3d round rsqrt scalar_tensor scatter scatter_add "
    "scatter_reduce select select_scatter sigmoid sign sin sinh slice slice_scatter sort split_with_sizes sqrt "
    "squeeze sub sum sym_numel sym_size sym_storage_offset sym_stride tan tanh topk trunc unsqueeze "
    "upsample_bilinear2d upsample_nearest2d var view where"
).split()
"""The operators of PyTorch 2.14 that have the tag `core`, to which `torch.export` decomposes others."""


def markdown() -> str:
    """Returns a table of Core ATen, and the names of further operators that are supported."""
    found = records()
    core = [found[name] for name in CORE]
    more = [record for name, record in found.items() if name not in CORE]
    whole = sum(record.meaning is not None for record in core)
    lines = [
        "# Operators of PyTorch",
        "",
        f"{whole} of the {len(core)} operators of Core ATen have a meaning here; {len(core) - whole} are refused.",
        "`torch.export` decomposes other operators to these. [PyTorch](../pytorch.md) says how programs come in.",
        "",
        "| operator | overloads | |",
        "|---|---|---|",
        *(f"| `{r.name}` | {', '.join(r.overloads)} | {_status(r)} |" for r in core),
        "",
        "## Further operators",
        "",
        "These are imported without being decomposed first:",
        "",
        ", ".join(f"`{r.name}`" for r in more if r.meaning is not None) + ".",
        "",
        "These are refused, and no others have a meaning:",
        "",
        *(f"- `{r.name}`: {r.why}" for r in more if r.meaning is None),
    ]
    return "\n".join(lines)


def _status(record: Record) -> str:
    if record.meaning is None:
        return f"refused: {record.why}"
    return f"without {record.why}" if record.why else "supported"
