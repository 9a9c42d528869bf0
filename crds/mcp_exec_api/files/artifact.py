"""Artifacts of an execution: files that it produced for people."""

from typing import Annotated, Final

from pydantic import Field

from mcp_exec_api.meta import Model

MAX_ARTIFACTS: Final = 50
MAX_ARTIFACT_NAME: Final = 200
MAX_TITLE: Final = 200
MAX_PREVIEW: Final = 2000
MEDIA_TYPE: Final = r"^[a-z0-9.+-]{1,63}/[a-z0-9.+-]{1,63}$"


class Artifact(Model):
    """One file that the run produced by `show()` or in the folder `artifacts`."""

    id: Annotated[str, Field(min_length=1, max_length=32, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    """Id of the artifact within the execution, for `GET /v1/executions/NAME/artifacts/ID`."""
    name: Annotated[str, Field(min_length=1, max_length=MAX_ARTIFACT_NAME)]
    """File name, for example `sales.png`; a path below the folder `artifacts`."""
    media_type: Annotated[str, Field(max_length=127, pattern=MEDIA_TYPE)] = "application/octet-stream"
    """Media type that the code gave or the name suggests. Nobody has checked the bytes."""
    bytes: Annotated[int, Field(ge=0)]
    """Size in bytes."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the bytes, in hexadecimal digits."""
    title: Annotated[str, Field(max_length=MAX_TITLE)] = ""
    """Title that the code gave."""
    preview: Annotated[str, Field(max_length=MAX_PREVIEW)] = ""
    """Beginning of the content as text, for a model that can't see the bytes."""
