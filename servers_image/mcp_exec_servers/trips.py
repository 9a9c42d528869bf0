"""A demo server: journeys by camper between a few American cities."""

import itertools
import math
import threading
from itertools import pairwise
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, DESTROYS, READS, dice, run

CITIES: Final = {
    "Albuquerque": (35.08, -106.65),
    "Boise": (43.62, -116.20),
    "Denver": (39.74, -104.99),
    "Flagstaff": (35.20, -111.65),
    "Las Vegas": (36.17, -115.14),
    "Los Angeles": (34.05, -118.24),
    "Phoenix": (33.45, -112.07),
    "Portland": (45.52, -122.68),
    "Reno": (39.53, -119.81),
    "Sacramento": (38.58, -121.49),
    "Salt Lake City": (40.76, -111.89),
    "San Francisco": (37.77, -122.42),
    "Seattle": (47.61, -122.33),
    "Tucson": (32.22, -110.97),
    "Twin Falls": (42.56, -114.46),
}
ROADS_ARE_LONGER: Final = 1.18
"""Than the shortest line."""
DETOUR: Final = 1.15
"""How much longer a way may become by stops."""
MOST_STOPS: Final = 4
MAX_BOOKINGS: Final = 1000

server = MCPServer("trips", instructions="Plans journeys by camper: the way, places to stay, what the fuel costs.")
_bookings: dict[str, "Booking"] = {}
_lock = threading.Lock()


class Trip(BaseModel):
    """A way between two cities."""

    origin: str
    destination: str
    distance: float = Field(description="Miles by road")
    hours: float = Field(description="At the wheel")
    waypoints: list[str] = Field(description="Cities on the way, where one can stay")


class Park(BaseModel):
    """A place for campers."""

    id: str
    name: str
    location: str
    cost: float = Field(description="US dollars a night")
    rating: float = Field(ge=1, le=5)


class Booking(BaseModel):
    """A place that is kept for somebody."""

    id: str
    park_id: str
    nights: int
    guest: str
    cost: float = Field(description="US dollars in all")


def miles(one: str, other: str) -> float:
    """The shortest line between two cities (haversine)."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, CITIES[city])) for city in (one, other))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 3958.8 * math.asin(math.sqrt(half))


def city_of(name: str) -> str:
    """A known city's name as it is written; ToolError names the known ones otherwise."""
    wanted = name.split(",")[0].strip().lower()
    for city in CITIES:
        if city.lower() == wanted:
            return city
    raise ToolError(f"no city {name!r} is known; there are {', '.join(CITIES)}")


def length(way: list[str]) -> float:
    """Miles along some cities, in a straight line from each to the next."""
    return sum(miles(one, other) for one, other in pairwise(way))


def stops(origin: str, destination: str) -> list[str]:
    """Cities that lie on the way, in order: those with the smallest detours, as long as the way stays short."""

    def through(cities: list[str]) -> list[str]:
        return [origin, *sorted(cities, key=lambda city: miles(origin, city)), destination]

    chosen: list[str] = []
    others = [city for city in CITIES if city not in (origin, destination)]
    for city in sorted(others, key=lambda city: (length(through([city])), city)):
        way = through([*chosen, city])
        apart = min(miles(one, other) for one, other in pairwise(way))
        if len(chosen) < MOST_STOPS and apart > 90 and length(way) <= DETOUR * miles(origin, destination):
            chosen.append(city)
    return through(chosen)[1:-1]


def parks_of(city: str) -> list[Park]:
    """The two places to stay in a city, the cheaper one first."""
    numbers = dice("parks", city)
    names = numbers.sample(["Mesa View", "Pine Flat", "River Bend", "Sunset Ridge", "Willow Creek"], 2)
    found = [
        Park(
            id=f"{city.lower().replace(' ', '-')}-{index}",
            name=f"{name} RV Park",
            location=city,
            cost=float(numbers.randrange(28, 95)),
            rating=round(numbers.uniform(3, 5), 1),
        )
        for index, name in enumerate(names, start=1)
    ]
    return sorted(found, key=lambda park: (park.cost, park.id))


@server.tool(annotations=READS)
def plan_trip(
    origin: Annotated[str, Field(description="A city, such as `Phoenix`")],
    destination: Annotated[str, Field(description="A city, such as `Seattle`")],
) -> Trip:
    """The way from one city to another: how far it is, and what cities lie on it."""
    start, end = city_of(origin), city_of(destination)
    if start == end:
        raise ToolError(f"the trip begins and ends in {start}")
    way = [start, *stops(start, end), end]
    distance = sum(miles(one, other) for one, other in itertools.pairwise(way)) * ROADS_ARE_LONGER
    return Trip(
        origin=start, destination=end, distance=round(distance, 1), hours=round(distance / 52, 1), waypoints=way[1:-1]
    )


@server.tool(annotations=READS)
def find_rv_parks(
    locations: Annotated[list[str], Field(max_length=50, description="Cities, such as a trip's waypoints")],
    max_cost: Annotated[float | None, Field(gt=0, description="Most US dollars a night")] = None,
) -> list[Park]:
    """Places for campers in each of some cities, the cheapest of a city first."""
    found = [park for location in locations for park in parks_of(city_of(location))]
    return [park for park in found if max_cost is None or park.cost <= max_cost]


@server.tool(annotations=READS)
def calculate_gas_cost(
    distance: Annotated[float, Field(ge=0, le=100_000, description="Miles")],
    miles_per_gallon: Annotated[float, Field(gt=0, description="What the camper does with a gallon")] = 10.0,
    price_per_gallon: Annotated[float, Field(gt=0, description="US dollars")] = 3.5,
) -> float:
    """What the fuel for a way costs, in US dollars."""
    return round(distance / miles_per_gallon * price_per_gallon, 2)


@server.tool(annotations=ADDS)
def book_rv_park(
    park_id: Annotated[str, Field(description="From find_rv_parks")],
    guest: Annotated[str, Field(min_length=1, max_length=100, description="For whom")],
    nights: Annotated[int, Field(ge=1, le=30)] = 1,
) -> Booking:
    """Books a place for somebody."""
    park = next((park for city in CITIES for park in parks_of(city) if park.id == park_id), None)
    if park is None:
        raise ToolError(f"there is no park {park_id!r}; find_rv_parks has their ids")
    with _lock:
        if len(_bookings) >= MAX_BOOKINGS:
            raise ToolError(f"no more than {MAX_BOOKINGS} bookings are kept")
        number = f"b-{len(_bookings) + 1:04}"
        _bookings[number] = Booking(id=number, park_id=park_id, nights=nights, guest=guest, cost=park.cost * nights)
        return _bookings[number]


@server.tool(annotations=DESTROYS)
def cancel_booking(booking_id: Annotated[str, Field(description="From book_rv_park")]) -> Booking:
    """Gives a booked place up; what was paid is lost."""
    with _lock:
        if booking_id not in _bookings:
            raise ToolError(f"there is no booking {booking_id!r}")
        return _bookings.pop(booking_id)


if __name__ == "__main__":
    run(server)
