"""What a request passes before its handler, one file a step, in this order:

| step | what it asks | answer |
|---|---|---|
| `deny_list` | is its address listed | 403 |
| `verification` | who signed it, for whom and when; is that hotkey listed | 401 |
| `replay` | was it here before | 401 |
| `limits` | does its hotkey have too much already | 429 |
| `blacklist` | does its route want this hotkey | 403 |
| `priority` | how urgent is it | |
| `body_hash` | is the body what was signed; which profile is it | 400 |

A step is called with the Exchange and raises Refused, NotVerified or another SynapseError, or returns: None,
or what must be awaited. So a step that waits for nothing costs a call and no more.
"""
