"""Demo server: fictitious weather that is the same for every request."""

from datetime import date, timedelta
from typing import Annotated, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import READS, run, seeded_random

TODAY: Final = date(2026, 11, 1)
"""First day of all forecasts, fixed so that they never change."""
CLIMATES: Final = {
    "berlin": (6, 4),
    "cairo": (24, 5),
    "denver": (5, 7),
    "london": (9, 3),
    "mumbai": (28, 3),
    "new york": (10, 6),
    "phoenix": (21, 6),
    "portland": (10, 4),
    "seattle": (9, 4),
    "sydney": (20, 5),
    "tokyo": (14, 5),
}
"""By place, the mean temperature and the largest deviation from it, in degrees Celsius."""

Sky = Literal["sunny", "partly cloudy", "cloudy", "rain", "storm"]
SKIES: Final[tuple[Sky, ...]] = ("sunny", "partly cloudy", "cloudy", "rain", "storm")
Location = Annotated[str, Field(description="A city, such as `Sydney`; list_locations lists all cities", min_length=1)]
Units = Annotated[Literal["celsius", "fahrenheit"], Field(description="Unit of temperatures")]

server = MCPServer("weather", instructions="Fictitious weather of a few cities: today, and for up to 14 days.")


class Weather(BaseModel):
    """The weather of a place on a day."""

    location: str
    date: str = Field(description="YYYY-MM-DD")
    temperature: float = Field(description="At noon, in the requested unit")
    units: Literal["celsius", "fahrenheit"]
    sky: Sky
    humidity: int = Field(ge=0, le=100, description="Percent")
    wind_kmh: float = Field(ge=0)


def compute_weather(location: str, day: date, units: Literal["celsius", "fahrenheit"]) -> Weather:
    """Return the weather of a place. Raises ToolError with the known places if it is unknown."""
    place = location.split(",")[0].strip().lower()
    if place not in CLIMATES:
        known = ", ".join(name.title() for name in CLIMATES)
        raise ToolError(f"unknown location {location!r}; known locations: {known}")
    mean, deviation = CLIMATES[place]
    numbers = seeded_random("weather", place, day)
    celsius = mean + numbers.uniform(-deviation, deviation)
    return Weather(
        location=place.title(),
        date=day.isoformat(),
        temperature=round(celsius if units == "celsius" else celsius * 9 / 5 + 32, 1),
        units=units,
        sky=numbers.choice(SKIES),
        humidity=numbers.randint(20, 95),
        wind_kmh=round(numbers.uniform(0, 45), 1),
    )


@server.tool(annotations=READS)
def list_locations() -> list[str]:
    """List the cities with known weather."""
    return [name.title() for name in CLIMATES]


@server.tool(annotations=READS)
def get_weather(location: Location, units: Units = "celsius") -> Weather:
    """Return the weather of a city today."""
    return compute_weather(location, TODAY, units)


@server.tool(annotations=READS)
def get_forecast(
    location: Location,
    days: Annotated[int, Field(ge=1, le=14, description="Number of days, beginning today")] = 7,
    units: Units = "celsius",
) -> list[Weather]:
    """Return the weather of a city, day by day."""
    return [compute_weather(location, TODAY + timedelta(days=day), units) for day in range(days)]


if __name__ == "__main__":
    run(server)
