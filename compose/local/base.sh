#!/bin/sh
# Makes the images that compose.yaml builds on, where no registry can be reached: a Debian base with Python (by
# debootstrap, about a minute, as root), and on it a NATS server out of a nats-server binary. What is there already is
# kept. Afterwards: BASE=BASE-TAG NATS_IMAGE=NATS-TAG docker compose up --build
#
#   compose/local/base.sh BASE-TAG NATS-TAG NATS-SERVER-BINARY
set -eu
base="$1" nats="$2" server="$3"
docker="${DOCKER:-docker}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

if ! "$docker" image inspect "$base" >/dev/null 2>&1; then
    echo "makes $base" >&2
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/root" \
        "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
    rm -rf "$work/root/var/cache/apt" "$work/root/var/lib/apt/lists" "$work/root/usr/share/doc"
    tar -C "$work/root" -c . | "$docker" import - "$base" >/dev/null
fi
if ! "$docker" image inspect "$nats" >/dev/null 2>&1; then
    echo "makes $nats" >&2
    mkdir "$work/nats"
    cp "$server" "$work/nats/nats-server"
    printf 'FROM %s\nCOPY nats-server /usr/local/bin/\nENTRYPOINT ["nats-server"]\n' "$base" >"$work/nats/Dockerfile"
    DOCKER_BUILDKIT=0 "$docker" build --quiet --tag "$nats" "$work/nats" >/dev/null
fi
