# The agent as an image, and as /ate: one folder that runs in any other image.
#
#   docker build -t ateenvd .                 the agent on Debian (the last stage)
#   docker build -t ate --target ate .        only /ate, to be mounted or copied into other images
#   docker build --build-arg COMMIT="$(git rev-parse --short=12 HEAD)" ...      its commit in --version
#
# amd64 and arm64. Base images are pinned by exact tag; where your registry can be asked, add the
# digests (tests/packaging builds this file without a registry, so it cannot know them). Deno comes from
# npm with the checksums of .ci/image/package-lock.json, libraries with those of deno.lock.

FROM node:20.20.2-bookworm-slim AS build
RUN apt-get update \
  && apt-get install --yes --no-install-recommends busybox-static \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /build/deno
COPY .ci/image/package.json .ci/image/package-lock.json ./
RUN npm ci --no-audit --no-fund --ignore-scripts
WORKDIR /build
COPY . .
ARG COMMIT=
RUN sh .ci/image/make_ate.sh "$(echo /build/deno/node_modules/@deno/linux-*-glibc/deno)" /ate "$COMMIT"

# Nothing but the folder: `COPY --from`, an image volume, or an init container that copies it.
FROM scratch AS ate
COPY --from=build /ate /ate
ENTRYPOINT ["/ate/ateenvd"]

FROM debian:bookworm-20250520-slim AS ateenvd
COPY --from=build /ate /ate
# Group 0 owns what any user of the image may write: uid 0 without capabilities (as owner) and any other
# uid with gid 0 alike.
RUN ln -s /ate/ateenvd /ate/ateenv /usr/local/bin/ \
  && mkdir -p /workspace /var/lib/ateenv \
  && chmod 0770 /workspace /var/lib/ateenv
# The names that lose against all others, so that a platform's own settings win. 0.0.0.0:8080 is reachable
# from outside: the agent starts only with ATEENV_TOKEN_FILE, ATEENV_TLS_CLIENT_CA or ATEENV_AUTH=none.
ENV PORT=8080 WORKDIR=/workspace
WORKDIR /
USER 65532:0
EXPOSE 8080
VOLUME ["/workspace", "/var/lib/ateenv"]
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=3 CMD ["/ate/ateenv", "health"]
ENTRYPOINT ["/ate/ateenvd"]
