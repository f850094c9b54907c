export { findBroker, onPath } from "./find-broker.js";
export {
  type Broker,
  freePort,
  isFree,
  type RedisOptions,
  type StartOptions,
  startNats,
  startRedis,
  startServer,
} from "./servers.js";
