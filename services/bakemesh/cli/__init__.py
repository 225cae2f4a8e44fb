"""The command line: one program, `bakemesh`, one file a verb.

`__main__` finds the verb and maps every error to one line and an exit code (`exits`, `failures`); `verbs/`
holds what each verb takes and does; `screen` prints for people and for machines; `link` opens the
Supervisor SDK; `running/` is the part of `up` that keeps processes. Imports are lazy, so that `--help` and
`check` are quick.
"""
