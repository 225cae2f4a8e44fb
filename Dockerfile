# One image for every service: the entry point is the command line, the command says which verb.
# BASE is any Debian-like image with Python 3.11 or newer and its venv. Packages come from the package index, or,
# where there is a folder wheels/ beside this file, from it alone: no network is needed then (docs/operate.md).
ARG BASE=python:3.12-slim

# The first stage has the sources and what builds them; the image has the environment they became.
FROM ${BASE} AS build
WORKDIR /src
COPY pyproject.toml README.md wheel[s] wheels/
RUN mv wheels/pyproject.toml wheels/README.md .
COPY protocol protocol
COPY libs libs
COPY services services
RUN set -eu; \
    if ls wheels/*.whl >/dev/null 2>&1; then offline="--no-index --find-links wheels"; else offline=; fi; \
    if ls wheels/llama_cpp_python-*.whl >/dev/null 2>&1; then extras=auth,fast,engine; else extras=auth,fast; fi; \
    python3 -m venv /opt/venv; \
    /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check ${offline} ".[${extras}]"; \
    /opt/venv/bin/pip uninstall --quiet --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/venv /opt/venv
COPY compose/probe.py /opt/bakemesh/probe.py
# Recipes run programs: here they run as this user, never as root. The state folder is his.
RUN useradd --uid 10001 --user-group --no-log-init --home-dir /var/lib/bakemesh --shell /bin/sh bakemesh \
    && install -d -m 700 -o bakemesh -g bakemesh /var/lib/bakemesh
ENV PATH="/opt/venv/bin:${PATH}" BAKEMESH_STATE=/var/lib/bakemesh PYTHONUNBUFFERED=1
USER bakemesh
VOLUME /var/lib/bakemesh
WORKDIR /var/lib/bakemesh
# Healthy: the node's own Builder answers on its bus. 30 ms of a core each time.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-I", "/opt/bakemesh/probe.py"]
ENTRYPOINT ["bakemesh"]
CMD ["--help"]
