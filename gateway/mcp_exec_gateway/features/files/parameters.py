"""Parameters and headers of the routes of workspaces and artifacts."""

from typing import Annotated

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field

from mcp_exec_gateway.core.http.parameters import NamespaceQuery, OwnerQuery
from mcp_exec_gateway.features.files.artifacts import DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS


class ReadFilesQuery(OwnerQuery):
    """Parameters of reading files of a workspace."""

    version: Annotated[int | None, Field(ge=1, description="Version to read; the newest by default.")] = None


class ListFilesQuery(ReadFilesQuery):
    """Parameters of listing the files of a workspace."""

    prefix: Annotated[str, Field(max_length=1024, description="Only files whose path begins so.")] = ""
    after: Annotated[str, Field(max_length=1024, description="The `next` of the previous page.")] = ""
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of files on a page.")] = 1000


class ReadArchiveQuery(ReadFilesQuery):
    """Parameters of reading a workspace as an archive."""

    prefix: Annotated[str, Field(max_length=1024, description="Only files whose path begins so.")] = ""


class PutFileQuery(OwnerQuery):
    """Parameters of writing a file."""

    executable: Annotated[bool, Field(description="Whether the file can be executed.")] = False


class PutArchiveQuery(OwnerQuery):
    """Parameters of writing the files of an archive."""

    replace: Annotated[bool, Field(description="Remove all files that the archive does not have.")] = False


class ArtifactsQuery(NamespaceQuery):
    """Parameters of listing an execution's artifacts."""

    link_seconds: Annotated[
        int, Field(alias="linkSeconds", ge=1, le=MAX_LINK_SECONDS, description="How long the links work, in seconds.")
    ] = DEFAULT_LINK_SECONDS


class LinkQuery(BaseModel):
    """Parameters of a link to an artifact, which the gateway wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uid: Annotated[str, Field(max_length=64)]
    expires: Annotated[int, Field(ge=0, le=2**53)]
    signature: Annotated[str, Field(max_length=64)]


IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description="ETags in quotation marks: the write takes place only if one is that of the workspace's newest "
        "version, or of the file that is written or deleted. `*`: only if it exists.",
        json_schema_extra={"maxLength": 2000},
    ),
]


IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        description="The write takes place only if the file, or of an archive the workspace, does not exist.",
        json_schema_extra={"enum": ["*"]},
    ),
]
