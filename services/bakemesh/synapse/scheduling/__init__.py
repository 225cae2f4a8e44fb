"""Scheduling: whose request runs when, where, and merged with whose.

| module | is |
|---|---|
| `admission` `turns` `lines` `cutting` `estimates` `demand` `placement` `failing` | what is decided: pure |
| `core` → `dispatch` → `runs`, `loading` | requests in and out; lines to lanes; what happens on a lane |
| `request` `roster` | one caller's request; what is known of the lanes |
| `asks` `settings` | what goes in and comes out |
"""
