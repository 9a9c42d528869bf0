"""Demo server: journeys by camper between a few American cities."""

import math
import threading
from itertools import pairwise
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field

from mcp_exec_servers.command import ADDS, DESTROYS, READS, run, seeded_random

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
ROAD_FACTOR: Final = 1.18
"""Length of a road relative to the straight line."""
MAX_DETOUR: Final = 1.15
"""Largest length of a route with stops relative to the direct one."""
MAX_STOPS: Final = 4
MAX_BOOKINGS: Final = 1000

server = MCPServer("trips", instructions="Plans journeys by camper: route, places to stay, cost of fuel.")
_bookings: dict[str, "Booking"] = {}
_lock = threading.Lock()


class Trip(BaseModel):
    """A route between two cities."""

    origin: str
    destination: str
    distance: float = Field(description="Miles by road")
    hours: float = Field(description="Hours of driving")
    waypoints: list[str] = Field(description="Cities along the route with places to stay")


class Park(BaseModel):
    """An RV park."""

    id: str
    name: str
    location: str
    cost: float = Field(description="US dollars per night")
    rating: float = Field(ge=1, le=5)


class Booking(BaseModel):
    """A booking of a place in a park."""

    id: str
    park_id: str
    nights: int
    guest: str
    cost: float = Field(description="US dollars in total")


def miles(one: str, other: str) -> float:
    """Return the great-circle distance of two cities in miles (haversine formula)."""
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, CITIES[city])) for city in (one, other))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * 3958.8 * math.asin(math.sqrt(half))


def find_city(name: str) -> str:
    """Return a city's name in its standard spelling. Raises ToolError with the known cities if it is unknown."""
    wanted = name.split(",")[0].strip().lower()
    for city in CITIES:
        if city.lower() == wanted:
            return city
    raise ToolError(f"unknown city {name!r}; known cities: {', '.join(CITIES)}")


def route_length(route: list[str]) -> float:
    """Return the miles of a route, by straight lines between its cities."""
    return sum(miles(one, other) for one, other in pairwise(route))


def choose_stops(origin: str, destination: str) -> list[str]:
    """Return the stops of a route, in order: the cities with the smallest detours, as far as MAX_DETOUR allows."""

    def route_through(cities: list[str]) -> list[str]:
        return [origin, *sorted(cities, key=lambda city: miles(origin, city)), destination]

    chosen: list[str] = []
    others = [city for city in CITIES if city not in (origin, destination)]
    for city in sorted(others, key=lambda city: (route_length(route_through([city])), city)):
        route = route_through([*chosen, city])
        apart = min(miles(one, other) for one, other in pairwise(route))
        if len(chosen) < MAX_STOPS and apart > 90 and route_length(route) <= MAX_DETOUR * miles(origin, destination):
            chosen.append(city)
    return route_through(chosen)[1:-1]


def generate_parks(city: str) -> list[Park]:
    """Return the two parks of a city, the cheaper one first."""
    numbers = seeded_random("parks", city)
    names = numbers.sample(["Mesa View", "Pine Flat", "River Bend", "Sunset Ridge", "Willow Creek"], 2)
    parks = [
        Park(
            id=f"{city.lower().replace(' ', '-')}-{index}",
            name=f"{name} RV Park",
            location=city,
            cost=float(numbers.randrange(28, 95)),
            rating=round(numbers.uniform(3, 5), 1),
        )
        for index, name in enumerate(names, start=1)
    ]
    return sorted(parks, key=lambda park: (park.cost, park.id))


@server.tool(annotations=READS)
def plan_trip(
    origin: Annotated[str, Field(description="A city, such as `Phoenix`")],
    destination: Annotated[str, Field(description="A city, such as `Seattle`")],
) -> Trip:
    """Plan a route from one city to another: its distance and the cities along it."""
    start, end = find_city(origin), find_city(destination)
    if start == end:
        raise ToolError(f"origin and destination are both {start}")
    route = [start, *choose_stops(start, end), end]
    distance = route_length(route) * ROAD_FACTOR
    return Trip(
        origin=start, destination=end, distance=round(distance, 1), hours=round(distance / 52, 1), waypoints=route[1:-1]
    )


@server.tool(annotations=READS)
def find_rv_parks(
    locations: Annotated[list[str], Field(max_length=50, description="Cities, such as a trip's waypoints")],
    max_cost: Annotated[float | None, Field(gt=0, description="Maximum US dollars per night")] = None,
) -> list[Park]:
    """Find RV parks in several cities, the cheapest of each city first."""
    parks = [park for location in locations for park in generate_parks(find_city(location))]
    return [park for park in parks if max_cost is None or park.cost <= max_cost]


@server.tool(annotations=READS)
def calculate_gas_cost(
    distance: Annotated[float, Field(ge=0, le=100_000, description="Miles")],
    miles_per_gallon: Annotated[float, Field(gt=0, description="Miles per gallon of the camper")] = 10.0,
    price_per_gallon: Annotated[float, Field(gt=0, description="US dollars")] = 3.5,
) -> float:
    """Return the cost of fuel for a distance, in US dollars."""
    return round(distance / miles_per_gallon * price_per_gallon, 2)


@server.tool(annotations=ADDS)
def book_rv_park(
    park_id: Annotated[str, Field(description="From find_rv_parks")],
    guest: Annotated[str, Field(min_length=1, max_length=100, description="Name of the guest")],
    nights: Annotated[int, Field(ge=1, le=30)] = 1,
) -> Booking:
    """Book a place in a park."""
    park = next((park for city in CITIES for park in generate_parks(city) if park.id == park_id), None)
    if park is None:
        raise ToolError(f"there is no park {park_id!r}; find_rv_parks returns the ids")
    with _lock:
        if len(_bookings) >= MAX_BOOKINGS:
            raise ToolError(f"at most {MAX_BOOKINGS} bookings are stored")
        number = f"b-{len(_bookings) + 1:04}"
        _bookings[number] = Booking(id=number, park_id=park_id, nights=nights, guest=guest, cost=park.cost * nights)
        return _bookings[number]


@server.tool(annotations=DESTROYS)
def cancel_booking(booking_id: Annotated[str, Field(description="From book_rv_park")]) -> Booking:
    """Cancel a booking without a refund."""
    with _lock:
        if booking_id not in _bookings:
            raise ToolError(f"there is no booking {booking_id!r}")
        return _bookings.pop(booking_id)


if __name__ == "__main__":
    run(server)
