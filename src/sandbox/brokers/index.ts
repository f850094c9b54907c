export { findBroker } from "./find-broker.js";
export {
  type Broker,
  freePort,
  isFree,
  type RedisOptions,
  type StartOptions,
  startNats,
  startRedis,
} from "./servers.js";
