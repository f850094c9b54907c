export { clearStale } from "./broker-file.js";
export { type FindOptions, findBroker } from "./find-broker.js";
export { type NatsOptions, startNats } from "./nats.js";
export { type RedisOptions, startRedis } from "./redis.js";
export type { Broker, BrokerBinary, BrokerExit, BrokerName, OnProgress, StartOptions } from "./types.js";
