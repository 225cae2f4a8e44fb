"""A plain crank: it runs in a thread of its own, every call of the API blocks."""

import math

SWING, PERIOD = 8.0, 20


def crank(api):
    pause = api.parameter("interval-ms") / 1000
    n = 0
    while api.should_continue():
        celsius = 22.0 + SWING * math.sin(2 * math.pi * n / PERIOD)
        api.post("Reading", {"Celsius": round(celsius, 2)})  # durable: stored when this returns
        api.watch("celsius", f"{celsius:.1f}")
        n += 1
        api.wait_for_message(timeout=pause)  # a pause that ends at once when the component is to stop
