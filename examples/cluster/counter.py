"""Counts presses of any button. A count is posted for each; of every tenth also a total, which is stored."""


async def crank(api):
    every, count = api.parameter("every"), 0
    colours = {}
    async for message in api.messages():
        colour = message.type.split(".")[2]
        count += 1
        colours[colour] = colours.get(colour, 0) + 1
        api.watch("count", count)
        await api.post("Count", {"Count": count, "Colour": colour, "Press": message.entries["Press"]})
        if count % every == 0:
            await api.post("Total", {"Total": count, **colours})
