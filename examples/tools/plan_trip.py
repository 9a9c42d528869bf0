"""A trip in one block: plan it, find places to stay, work out what it costs, and book. The guest is in the context."""

import asyncio

from servers.trips import book_rv_park, calculate_gas_cost, find_rv_parks, plan_trip

trip = await plan_trip({"origin": "Phoenix", "destination": "Seattle"})
parks, gas = await asyncio.gather(
    find_rv_parks({"locations": trip["waypoints"]}), calculate_gas_cost({"distance": trip["distance"]})
)
nights = {}
for park in parks:
    cheapest = nights.setdefault(park["location"], park)
    if park["cost"] < cheapest["cost"]:
        nights[park["location"]] = park
bookings = [await book_rv_park(park_id=park["id"], guest=guest) for park in nights.values()]
total = gas + sum(booking["cost"] for booking in bookings)
print(f"{trip['origin']} to {trip['destination']}: {trip['distance']:.0f} miles by {', '.join(nights)}")
print(f"Trip cost: ${total:.2f}, of that ${gas:.2f} for gas")
{"waypoints": trip["waypoints"], "total": round(total, 2), "bookings": len(bookings)}
