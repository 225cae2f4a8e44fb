# One image for every service: the entry point is the command line, the command says which verb.
ARG BASE=python:3.12-slim
FROM ${BASE}
WORKDIR /opt/bakemesh
COPY pyproject.toml README.md ./
COPY protocol protocol
COPY libs libs
COPY services services
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir '.[auth,fast]' && rm -rf /opt/bakemesh/*
ENV PATH="/opt/venv/bin:${PATH}" BAKEMESH_STATE=/var/lib/bakemesh
VOLUME /var/lib/bakemesh
WORKDIR /var/lib/bakemesh
ENTRYPOINT ["bakemesh"]
CMD ["--help"]
