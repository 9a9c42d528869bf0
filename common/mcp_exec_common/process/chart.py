"""What a setting says of the value of the Helm chart that sets it."""

from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field

Seconds = Annotated[int, Field(ge=1, le=3600)]
Days = Annotated[int, Field(ge=1, le=3650)]
Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Cidrs = Annotated[list[Cidr], Field(max_length=64)]

AS_SET: Final = object()
"""Default of a value whose setting has the same."""


@dataclass(frozen=True)
class ChartValue:
    """Metadata of a field of `Settings`: the value of the chart that sets it.

    `make generate` writes the value, its schema and the variable. The field's docstring is the value's text.
    """

    path: str
    """Path of the value, for example `operator.resyncSeconds`. `hack/chart` declares the objects on the path."""
    kind: Any = None
    """Type of the value, if it is not that of the setting: tests use fractions of a second, for example."""
    default: Any = AS_SET
    """Default of the value, if it is not that of the setting."""
    times: int = 1
    """Number that the value is multiplied by: 86,400 if it has days and the setting has seconds."""
