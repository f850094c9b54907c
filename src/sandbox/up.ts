import { VERSION } from "../roles/version.js";
import { type Sandbox, withSandbox } from "./sandbox.js";

/** Starts a sandbox, prints its addresses, and stays up until a signal. */
export async function up(options: { httpPort: number; grpcPort: number; followers: number }): Promise<void> {
  await withSandbox({ ...options, exitCode: 0 }, async (sandbox) => {
    sandbox.progress.end();
    console.log(await description(sandbox));
    const { worker } = sandbox;
    worker.onReplaced(() => console.log(`The worker has ended; another one is started with pid ${worker.pid()}.`));
    await new Promise(() => undefined);
  });
}

async function description(sandbox: Sandbox): Promise<string> {
  const { redis, nats, httpUrl, grpcAddress } = sandbox;
  const token = await sandbox.issueToken("ada");
  return `
avion-timeline ${VERSION} is up: ${sandbox.seeded}.

  Page     ${httpUrl}/   pick a user, post a drop, watch it arrive
  gRPC     ${grpcAddress}   TimelineService, UserService and PostService of package avion, with health and reflection
  HTTP     ${httpUrl}   /events/timeline/home /api/v1/timeline/analyze /api/v1/xp /openapi.json /healthz /readyz /metrics
  Redis    ${redis.url}   redis-server ${redis.version}, pid ${redis.pid}
  NATS     ${nats.url}   nats-server ${nats.version}, pid ${nats.pid}
  Worker   pid ${sandbox.worker.pid()}   kill -9 it: another one starts, and nothing is missing
  Data     ${sandbox.folder}   gone when this ends; the roles log to ${sandbox.logFile}

Ada's access token (one day):
  export TOKEN=${token}

Try:
  curl -N -H "Authorization: Bearer $TOKEN" ${httpUrl}/events/timeline/home
  curl -H "Authorization: Bearer $TOKEN" --json '{"did":"nova","type":"full"}' ${httpUrl}/api/v1/timeline/analyze
  npx buf curl --protocol grpc --http2-prior-knowledge -d '{"user_id":"ada","limit":5}' http://${grpcAddress}/avion.TimelineService/GetHomeTimeline
  npx buf curl --protocol grpc --http2-prior-knowledge -d '{"user_id":"nova","visibility":"VISIBILITY_PUBLIC","body":"Hello"}' http://${grpcAddress}/avion.PostService/CreateDrop
  ${redis.cli} -u ${redis.url} zrevrange timeline:home:ada 0 4 withscores
  ${redis.cli} -u ${redis.url} publish drop_created 'not json'
  nats -s ${nats.url} stream ls
  nats -s ${nats.url} stream view DLQ
  nats -s ${nats.url} consumer info DROPS planner

Go through docs/operating.md (avion-timeline is node dist/main.js):
  export HTTP=${httpUrl} NATS_URL=${nats.url} REDIS_URL=${redis.url}
  export TIMELINE_USER_SERVICE_ADDR=${grpcAddress} TIMELINE_POST_SERVICE_ADDR=${grpcAddress}
  export TIMELINE_JWT_SECRET=${sandbox.secret}   # doctor asks for it
  curl --json '{"service":"users","method":"GetFollowersList","user_id":"alan","code":"INTERNAL"}' $HTTP/world/faults
  curl --json '{"user":"alan","count":5}' $HTTP/world/drops   # five dead letters; redrive them after this:
  curl -X DELETE $HTTP/world/faults

Ctrl-C ends it.`;
}
