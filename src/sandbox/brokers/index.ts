export { clearStale } from "./data-folder.js";
export { findBroker } from "./find-broker.js";
export { freePort, isFree } from "./free-port.js";
export type { Broker, StartOptions } from "./launch.js";
export { type RedisOptions, startNats, startRedis } from "./servers.js";
