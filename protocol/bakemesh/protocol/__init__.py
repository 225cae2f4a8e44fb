"""The contract of the mesh, as code that is only data.

Everything here is pure: it awaits nothing, opens nothing, logs nothing and reads no clock. `names` says what
a token may look like, `envelope` turns bytes into entries and back, `message` binds entries to typed models,
`identity` holds the five entries of a bake, `subjects` is the one table of who says what to whom, `storage`
names the streams and buckets, `builder` is the Builder & Supervisor protocol (text: protocol/builder-v1.md).
"""
