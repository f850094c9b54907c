export { upstreamChecks } from "./checks.grpc.js";
export { keyChecks } from "./checks.http.js";
export { natsChecks } from "./checks.nats.js";
export { fillCheck, redisChecks } from "./checks.redis.js";
export { databaseChecks, folderChecks } from "./checks.sql.js";
export { about, type Check, checked, examine, findingsAsText, nodeCheck } from "./doctor.js";
