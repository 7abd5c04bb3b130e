"""Completes words of the command line for the shell, and sorts options into panels of `--help`."""

from __future__ import annotations

import os
from typing import Any

PANELS = {
    "Program": "shapes shape dims outputs allow_opaque inputs parameters weights seed train loss optimizer "
    "quantize wrt activations",
    "Target": "target targets array arrays machine objective objectives max_rows max_weight_growth link unit loads "
    "stores on",
    "Search": "node_limit time_limit iter_limit memory_limit no_cache blocking mapping method extract_seconds "
    "exact_order explain check no_check jobs scheduler",
    "Output": "output json_path as_json html plot pareto every emit layer after quiet",
}
"""Panel of `--help` -> the names of its parameters. All others are in the panel `Options`."""
_MANY = 12
"""Minimum number of parameters of a command whose `--help` has panels."""


def sort_into_panels(command: Any) -> None:
    """Assigns the options of a command to panels, if it has many."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names.split()}
    for parameter in command.params if len(command.params) >= _MANY else ():
        if parameter.param_type_name == "option":
            parameter.rich_help_panel = panel_of.get(parameter.name)


def sources(incomplete: str) -> list[str]:
    """Returns the models, and the folders and files of programs, that continue a word."""
    from glenside.formats import ENDINGS
    from glenside.models import models

    folder, begins = os.path.split(incomplete)
    found = [name for name in models() if name.startswith(incomplete)]
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return found
    for entry in entries:
        if entry.name.startswith(begins) and (entry.is_dir() or entry.name.lower().endswith(tuple(ENDINGS))):
            found.append(os.path.join(folder, entry.name) + ("/" if entry.is_dir() else ""))
    return found


def targets(incomplete: str) -> list[str]:
    """Returns the targets that continue a word, as `glenside targets` writes them."""
    from glenside.targets import TARGETS

    written = (one for entry in TARGETS.values() for one in entry.usage.split(" or "))
    return [one for one in written if one.startswith(incomplete)]
