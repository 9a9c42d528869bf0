"""Explanation of a missing library: which pools have it, or what this sandbox has.

The supervisor sends what the namespace's pools have, as far as the platform knows.
"""

import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence

from mcp_exec_tools.source.lines import INSTALL_SENTENCE
from mcp_exec_tools.text import shorten_line

PoolVersions = Sequence[tuple[str, str]]
"""The pools that have a library, each with the library's version."""

_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Packages whose module has another name."""
_MODULES = {package: module for module, package in _DISTRIBUTIONS.items()}
_MAX_LISTED = 40
_MAX_NAME = 100
_SUFFIX = ".dist-info"

_pools: dict[str, PoolVersions] = {}


def set_libraries(libraries: Mapping[str, PoolVersions]) -> None:
    """Set which pools have which libraries, by the name that code imports."""
    _pools.clear()
    _pools.update(libraries)


def explain_missing_library(name: str) -> str:
    """Return the message of a failed import of a library."""
    hint = _find_pools(name)
    if not hint:
        package = f" (package {_DISTRIBUTIONS[name]})" if name in _DISTRIBUTIONS else ""
        hint = f"this sandbox has {_describe_sandbox()}{package}; {INSTALL_SENTENCE} (docs/platform/images.md)"
    return f"No module named {name[:_MAX_NAME]!r}: {hint}"


def explain_install(packages: Sequence[str]) -> str:
    """Return what to do instead of an installation of packages."""
    modules = [_MODULES.get(_normalize(package), package.replace("-", "_")) for package in packages]
    missing = [module for module in modules if not is_installed(module)]
    if modules and not missing:
        return f"{shorten_line(', '.join(packages), _MAX_NAME)} can be imported without an installation"
    known = (_find_pools(module) for module in missing)
    return next((hint for hint in known if hint), f"this sandbox has {_describe_sandbox()}; {INSTALL_SENTENCE}")


def _find_pools(module: str) -> str:
    """Return the pools that have a library as a sentence, or an empty text."""
    package = _DISTRIBUTIONS.get(module, module)
    versions = next((_pools[name] for name in (module, package, _normalize(module)) if _pools.get(name)), ())
    if not versions:
        return ""
    if len(versions) == 1:
        pool, version = versions[0]
        return f"pool `{pool}` has {package} {version}; set poolRef.name to {pool}".replace("  ", " ")
    listed = ", ".join(f"`{pool}` ({version})" for pool, version in versions)
    return f"the pools {listed} have {package}; set poolRef.name to one of them"


def _describe_sandbox() -> str:
    packages = _list_packages()
    if not packages:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} with the standard library only"
    more = ", ..." if len(packages) > _MAX_LISTED else ""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} with {', '.join(packages[:_MAX_LISTED])}{more}"


@functools.cache
def _list_packages() -> tuple[str, ...]:
    """Return the packages of the image by the names of their folders. The sandbox's own ones are not listed."""
    own = __file__.partition("/mcp_exec_sandbox/")[0]
    names = set[str]()
    for folder in sys.path:
        if folder != own and os.path.isdir(folder):
            names.update(entry for entry in os.listdir(folder) if entry.endswith(_SUFFIX))
    return tuple(sorted(name.removesuffix(_SUFFIX).partition("-")[0].replace("_", "-").lower() for name in names))


def is_installed(module: str) -> bool:
    """Return whether a module can be imported."""
    # Imported for the answer, not in every idle sandbox.
    import importlib.util

    try:
        return module.isidentifier() and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
