"""An async crank: it is woken by every reading, and posts when the fan changes."""


async def crank(api):
    limit = api.parameter("limit")
    running = False
    async for message in api.messages():
        celsius = message.entries["celsius"]  # keys are found whatever their case
        if (celsius > limit) != running:
            running = not running
            await api.post("Switched", {"Running": running, "Celsius": celsius})
            api.watch("running", running)
            api.log.info("fan %s at %.1f degrees", "on" if running else "off", celsius)
