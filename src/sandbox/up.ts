import { VERSION } from "../roles/version.js";
import { type Sandbox, withSandbox } from "./sandbox.js";

/** Starts a sandbox, prints its addresses, and stays up until a signal. */
export async function up(options: { httpPort: number; grpcPort: number; followers: number }): Promise<void> {
  await withSandbox({ ...options, exitCode: 0 }, async (sandbox) => {
    sandbox.progress.end();
    console.log(await description(sandbox));
    await new Promise(() => undefined);
  });
}

async function description(sandbox: Sandbox): Promise<string> {
  const { redis, nats, httpUrl } = sandbox;
  const token = await sandbox.issueToken("ada");
  return `
avion-timeline ${VERSION} is up: ${sandbox.seeded}.

  Page     ${httpUrl}/   pick a user, post a drop, watch it arrive
  gRPC     ${sandbox.grpcAddress}   TimelineService, UserService and PostService of package avion, with health and reflection
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
  npx buf curl --protocol grpc --http2-prior-knowledge -d '{"user_id":"ada","limit":5}' http://${sandbox.grpcAddress}/avion.TimelineService/GetHomeTimeline
  npx buf curl --protocol grpc --http2-prior-knowledge -d '{"user_id":"nova","visibility":"VISIBILITY_PUBLIC","body":"Hello"}' http://${sandbox.grpcAddress}/avion.PostService/CreateDrop
  ${redis.cli} -u ${redis.url} zrevrange timeline:home:ada 0 4 withscores
  ${redis.cli} -u ${redis.url} publish drop_created 'not json'
  nats -s ${nats.url} stream ls
  nats -s ${nats.url} stream view DLQ
  nats -s ${nats.url} consumer info DROPS planner

Ctrl-C ends it.`;
}
