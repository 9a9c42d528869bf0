"""Folders that change as the kubelet changes a mounted Secret or ConfigMap."""

from collections.abc import Mapping
from itertools import count
from pathlib import Path


def write_version(folder: Path, entries: Mapping[str, bytes]) -> None:
    """Write these entries: files in a folder of their own, and then the link to it at once."""
    version = next(each for number in count() if not (each := folder / f"..version-{number}").exists())
    version.mkdir()
    for name, content in entries.items():
        (version / name).write_bytes(content)
    new = folder / "..data_tmp"
    new.symlink_to(version.name)
    new.rename(folder / "..data")
    # links that stay are not touched: who reads at the change of `..data` finds all of them
    links = {each.name for each in folder.iterdir() if not each.name.startswith("..")}
    for name in links - entries.keys():
        (folder / name).unlink()
    for name in entries.keys() - links:
        (folder / name).symlink_to(f"..data/{name}")


def mount_namespaces(folder: Path, *names: str) -> Path:
    """Let a folder name these namespaces, as the chart's ConfigMap does, and return it."""
    folder.mkdir(exist_ok=True)
    write_version(folder, {"namespaces": ",".join(names).encode()})
    return folder
