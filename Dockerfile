# The build needs the development dependencies; only dist of this stage reaches the image.
FROM node:26-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci
COPY tsconfig.json tsconfig.build.json buf.yaml buf.gen.yaml ./
COPY proto ./proto
COPY src ./src
COPY clients ./clients
# The sandbox, with its embedded servers and its demo, stays out of the image.
RUN npm run build && rm -r dist/sandbox

# Optional dependencies stay in: some packages bring their native parts that way.
FROM node:26-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev

FROM node:26-bookworm-slim AS runtime
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=dependencies /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
# The service declares its streams and consumers from these files when it starts.
COPY nats ./nats

# The embedded database of the roles users and posts without DATABASE_URL: for one container at a
# time, and kept only where a volume is mounted here.
RUN install --directory --owner=1000 --group=1000 /data
ENV TIMELINE_DATA_DIR=/data

# The image's own user "node", by number, so that runAsNonRoot can be checked. It owns none of the other files.
USER 1000:1000
EXPOSE 50051 8080
STOPSIGNAL SIGTERM
# Alive, not ready: a process that waits for Redis or NATS must not be restarted for it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["node", "-e", "const address = (process.env.TIMELINE_HTTP_ADDR || '0.0.0.0:8080').replace(/^(0\\.0\\.0\\.0|\\[::\\]):/, 'localhost:'); fetch(`http://${address}/healthz`, { signal: AbortSignal.timeout(4000) }).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "dist/main.js"]
CMD ["serve"]
