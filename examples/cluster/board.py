"""Shows the latest count and total as live values (`bakemesh watch`). A plain function runs in a thread."""


def crank(api):
    for message in api.messages():
        if message.trigger == "Count":
            api.watch("count", message.entries["Count"])
        else:
            api.watch("total", message.entries["Total"])
            api.log.info("%d presses in total", message.entries["Total"])
