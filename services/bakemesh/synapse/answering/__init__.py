"""What callers on the bus ask, and what they get.

| module | is |
|---|---|
| `verbs` | which message is answered by what; the subscriptions |
| `desk`, `request`, `endpoint` | requests until their one last answer; counts |
| `embed`, `rerank`, `generate`, `looking`, `probe`, `ingest`, `artifact` | a verb (or two) each |
| `shelf`, `texts`, `streaming` | aliases, threads for long texts, callers that are gone |
| `cutting`, `given`, `mapping` | pure: rows into messages, ids of callers, what went wrong |
"""
