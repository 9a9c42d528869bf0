"""A demo server: weather that is made up, and the same whenever it is asked for."""

from datetime import date, timedelta
from typing import Annotated, Final, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import READS, dice, run

TODAY: Final = date(2026, 11, 1)
"""Forecasts begin on this day, so that they stay the same."""
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
"""Places, with the usual temperature of the season and how far it strays."""

Sky = Literal["sunny", "partly cloudy", "cloudy", "rain", "storm"]
SKIES: Final[tuple[Sky, ...]] = ("sunny", "partly cloudy", "cloudy", "rain", "storm")
Location = Annotated[str, Field(description="A city, such as `Sydney`; list_locations has all", min_length=1)]
Units = Annotated[Literal["celsius", "fahrenheit"], Field(description="Of the temperatures")]

server = MCPServer("weather", instructions="Made-up weather of a few cities: now, and for up to 14 days.")


class Weather(BaseModel):
    """The weather of a place on a day."""

    location: str
    date: str = Field(description="YYYY-MM-DD")
    temperature: float = Field(description="At noon, in the units that were asked for")
    units: Literal["celsius", "fahrenheit"]
    sky: Sky
    humidity: int = Field(ge=0, le=100, description="Per cent")
    wind_kmh: float = Field(ge=0)


def weather_of(location: str, day: date, units: Literal["celsius", "fahrenheit"]) -> Weather:
    """The weather of a known place; ToolError names the known ones otherwise."""
    place = location.split(",")[0].strip().lower()
    if place not in CLIMATES:
        raise ToolError(f"no weather of {location!r}; known are {', '.join(name.title() for name in CLIMATES)}")
    usual, strays = CLIMATES[place]
    numbers = dice("weather", place, day)
    celsius = usual + numbers.uniform(-strays, strays)
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
    """The cities whose weather is known."""
    return [name.title() for name in CLIMATES]


@server.tool(annotations=READS)
def get_weather(location: Location, units: Units = "celsius") -> Weather:
    """The weather of a city today."""
    return weather_of(location, TODAY, units)


@server.tool(annotations=READS)
def get_forecast(
    location: Location,
    days: Annotated[int, Field(ge=1, le=14, description="How many, from today on")] = 7,
    units: Units = "celsius",
) -> list[Weather]:
    """The weather of a city, day by day."""
    return [weather_of(location, TODAY + timedelta(days=day), units) for day in range(days)]


if __name__ == "__main__":
    run(server)
