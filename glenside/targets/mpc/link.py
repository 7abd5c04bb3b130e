"""The network link between two parties: bandwidth and latency."""

from __future__ import annotations

import re
from dataclasses import dataclass

from glenside.ir.errors import BadInput
from glenside.targets.mpc.semi2k import Traffic


@dataclass(frozen=True)
class Link:
    """A link: bytes per second in one direction, and seconds of latency of a message in one direction."""

    bandwidth: float
    latency: float

    def seconds(self, traffic: Traffic) -> float:
        """Returns the seconds of the traffic, with messages in sequence."""
        return traffic.bytes / self.bandwidth + traffic.messages * self.latency

    def __str__(self) -> str:
        return f"{self.bandwidth / 1e6:g} MB/s and {self.latency * 1e3:g} ms in one direction"


# The links in the evaluation of Cheetah (USENIX Security 2022): 384 MB/s with 0.3 ms round trip, 44 MB/s with 40 ms.
LINKS = {"lan": Link(384e6, 0.15e-3), "wan": Link(44e6, 20e-3)}


def parse_link(text: str) -> Link:
    """Parses a link: lan, wan, or RATE,LATENCY such as 100Mbit,20ms or 12.5MB,0.02s. Raises BadInput."""
    if text in LINKS:
        return LINKS[text]
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)(bit|B)(?:/s|ps)?,(\d+(?:\.\d+)?)(us|ms|s)", text)
    if match is None or float(match[1]) == 0:
        raise BadInput(f"a link is lan, wan, or RATE,LATENCY such as 100Mbit,20ms or 12.5MB,0.02s; got {text!r}")
    rate = float(match[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[match[2]] / (8 if match[3] == "bit" else 1)
    return Link(rate, float(match[4]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[5]])
