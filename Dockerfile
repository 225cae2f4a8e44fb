# The images of every service: the entry point is the command line, the command says which verb.
#   node     what runs recipes, components, synapse modules and gateways; the default
#   engine   node with llama.cpp in it, for lanes and their workers: docker build --target engine .
# BASE is any Debian-like image with Python 3.11 or newer and its venv. Packages come from the package index, or,
# where there is a folder wheels/ beside this file, from it alone: no network is needed then (docs/operate.md).
ARG BASE=python:3.12-slim

# The sources and what builds them; an image has the environment they became.
FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml README.md wheel[s] wheels/
RUN mv wheels/pyproject.toml wheels/README.md .
COPY protocol protocol
COPY libs libs
COPY services services
RUN set -eu; \
    if ls wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/src/wheels; fi; \
    python3 -m venv /opt/venv; \
    /opt/venv/bin/pip install ".[auth,fast,synapse,axon]"; \
    /opt/venv/bin/pip uninstall --quiet --yes pip setuptools

# All that the images have in common.
FROM ${BASE} AS ground
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

FROM ground AS node
COPY --from=build /opt/venv /opt/venv

# llama.cpp with every CPU variant, of which a worker loads the one that fits its machine: 10 to 20 minutes of two
# cores, or what `make wheel` made before, where it lies in wheels/. Nothing of the compiler reaches an image.
FROM ${BASE} AS wheel
ENV PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY pyproject.toml wheel[s] wheels/
COPY deploy/engine deploy/engine
RUN set -eu; \
    mv wheels/pyproject.toml .; \
    if ls wheels/llama_cpp_python-*.whl >/dev/null 2>&1; then exit 0; fi; \
    if ls wheels/*.whl >/dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/src/wheels; fi; \
    if ! command -v c++ >/dev/null; then \
        apt-get update -qq; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ >/dev/null; \
    fi; \
    python3 -m venv /opt/build; \
    deploy/engine/build.sh portable /opt/build/bin/python wheels

FROM build AS build-engine
COPY --from=wheel /src/wheels wheels
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-index --find-links wheels llama-cpp-python numpy \
    && /opt/venv/bin/pip uninstall --quiet --yes pip setuptools

FROM ground AS engine
COPY --from=build-engine /opt/venv /opt/venv

# Whoever names no target gets the node. (The classic builder makes all of the above for that: name it there.)
FROM node
