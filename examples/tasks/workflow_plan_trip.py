"""Workflow: a trip is planned, priced and booked in one block. The guest comes from the application, not the model."""

from saving import run_task

CODE = """
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
{"nights": len(bookings), "total": round(gas + sum(booking["cost"] for booking in bookings), 2)}
"""


def task(client):
    return [client.run(CODE, tools=["trips.*"], context={"guest": "R. Doe"}, use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
