"""Presses a red and a blue button in turn, once a node's components are all there."""


async def crank(api):
    ready = await api.wait_for_message()
    if ready is None:
        return  # asked to stop before anything was ready
    api.log.info("everything is ready on node %s", ready.entries["Node"])
    pause, pressed = 1 / api.parameter("rate"), 0
    while api.should_continue():
        await api.post("Red" if pressed % 2 == 0 else "Blue", {"Press": pressed + 1})
        pressed += 1
        api.watch("pressed", pressed)
        await api.wait_for_message(timeout=pause)
