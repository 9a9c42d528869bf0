"""02: each call needs the answer of the one before. The data flows in the sandbox."""

from saving import run_task

CODE = """
from servers.trips import calculate_gas_cost, find_rv_parks, plan_trip

trip = await plan_trip({"origin": origin, "destination": destination})
parks = await find_rv_parks({"locations": trip["waypoints"]})
cheapest = min(parks, key=lambda park: park["cost"])
gas = await calculate_gas_cost({"distance": trip["distance"]})
{"miles": round(trip["distance"]), "gas": round(gas, 2), "cheapest": [cheapest["location"], cheapest["cost"]]}
"""


def task(client):
    context = {"origin": "Phoenix", "destination": "Seattle"}
    return [client.run(CODE, tools=["trips.*"], context=context, use_case="workflow")]


if __name__ == "__main__":
    run_task(task)
